"""Remove from a VF what its pod left on it: compare its netdev with what ADD noted, restore, and compare again.

What cannot be restored goes with a rebind of the VF's driver (`cni.vf.detach.detach`), which makes a new netdev: XDP
and tcx programs that somebody else still holds, a key of RSS, whatever a driver refuses. The offer may ask for a rebind
in any case, after pods whose containers could change a VF; then nothing has to be known about what they have changed.
"""

import structlog

from cni.kernel import netlink
from cni.kernel.netdev import netdev_state
from cni.kernel.wait import NAMED_S, RACED, retry
from cni.vf import offer
from cni.vf.detach.rebind import rebind
from cni.vf.node import RETURNS_S, Node, netdev_of
from mooring.errors import RecordError
from mooring.records.ledger import LedgerEntry

_log = structlog.get_logger()


def remove_other_devices(node: Node, entry: LedgerEntry) -> None:
    """Remove other devices than its own from below a VF on the host; raise OSError, CniError.

    IPoIB's children on its netdev come to the host when the pod's namespace dies (netns_refund of ipoib_link_ops).
    Another RDMA device goes with a rebind of the VF's driver.

    A pod with CAP_NET_ADMIN can make one in software on the VF's netdev (RDMA_NLDEV_CMD_NEWLINK). Kernels before 6.12
    put siw's below the netdev's parent, the VF (siw_device_create), and leave it there when the netdev moves: siw did
    not heed events of other namespaces than the first (siw_netdev_event in drivers/infiniband/sw/siw/siw_main.c). The
    next pod would get it for the VF's, and the pod's users of the VF's would not be found. It ends with the netdev.
    """
    index = node.sysfs.netdev(entry.pci)
    if index is not None:
        netlink.remove_children(index)
    if node.sysfs.rdma_devices(entry.pci) > 1:
        rebind(node, entry, "the pod left another rdma device on it")


def rebind_if_offered(node: Node, entry: LedgerEntry) -> bool:
    """Rebind a VF on the host if the offer wants that after its pod; return whether it did. Raise CniError 11."""
    if not _is_wanted(node, entry) or node.ledger.is_unprivileged(entry.uid):
        return False
    rebind(node, entry, "the offer requires it after a privileged pod")
    return True


def _is_wanted(node: Node, entry: LedgerEntry) -> bool:
    """Return what the offer says; True for an offer that cannot be read."""
    try:
        return offer.of_pf(node, node.sysfs.pf_of(entry.pci)).rebind_after_privileged
    except RecordError as unreadable:
        _log.error("offer cannot be read: rebinding the vf's driver", pci=entry.pci, reason=str(unreadable))
        return True


def clear(node: Node, entry: LedgerEntry) -> list[str]:
    """Give a VF's netdev on the host what ADD noted of it; return the kinds in which it still differs. Raise OSError.

    A netdev that its driver has just made has nothing of the pod's: what the host itself had set is set again.
    """
    return retry(lambda: _try_clear(node, entry), RACED, NAMED_S) if entry.original.name is not None else []


def _try_clear(node: Node, entry: LedgerEntry) -> list[str]:
    noted = entry.original.netdev or netdev_state.NO_PROGRAMS
    link = netdev_of(node, entry.pci, RETURNS_S, entry.original.parent)
    if link is None:
        raise FileNotFoundError(f"its network interface {entry.original.name!r} did not come back")
    changed = netdev_state.differing(noted, netdev_state.read(link.index))
    if not changed:
        return []
    netdev_state.restore(link.index, noted, changed)
    left = netdev_state.differing(noted, netdev_state.read(link.index))
    if restored := [kind for kind in changed if kind not in left]:
        _log.info("settings that the pod changed on its vf are restored", pci=entry.pci, pod=entry.pod, kinds=restored)
    return left

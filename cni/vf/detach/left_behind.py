"""Remove what a pod left on its VF: compare the netdev with the state that ADD noted, restore it, and compare again.

Settings that cannot be restored need a rebind of the VF's driver (`cni.vf.detach.detach`), which creates a new netdev.
Examples are XDP and tcx programs that a process still holds, an RSS key, and anything that the driver refuses. The
offer may require a rebind after every pod whose containers could change the VF, so that Mooring need not know what they
changed.
"""

import structlog

from cni.kernel import netlink
from cni.kernel.netdev import netdev_state
from cni.kernel.wait import RENAME_ERRNOS, RENAME_S, retry
from cni.vf import offer
from cni.vf.detach.rebind import rebind
from cni.vf.node import RETURNS_S, Node, netdev_of
from mooring.errors import RecordError
from mooring.records.ledger import LedgerEntry

_log = structlog.get_logger()


def remove_other_devices(node: Node, entry: LedgerEntry) -> None:
    """Remove devices that a pod created on a VF, which is on the host; raise OSError or CniError.

    IPoIB's children move to the host when the pod's namespace dies (netns_refund of ipoib_link_ops), and are removed.
    Another RDMA device is removed by a rebind of the VF's driver.

    A pod with CAP_NET_ADMIN can create a software RDMA device on the VF's netdev (RDMA_NLDEV_CMD_NEWLINK). Kernels
    before 6.12 put a siw device below the netdev's parent, the VF (siw_device_create). It stays there when the netdev
    moves, because siw ignored events of other namespaces than the first (siw_netdev_event in
    drivers/infiniband/sw/siw/siw_main.c). The next pod would get it instead of the VF's own device, and users of the
    VF's own device would not be found. The siw device ends with the netdev.
    """
    index = node.sysfs.netdev(entry.pci)
    if index is not None:
        netlink.remove_children(index)
    if node.sysfs.rdma_devices(entry.pci) > 1:
        rebind(node, entry, "the pod left another rdma device on it")


def rebind_by_offer(node: Node, entry: LedgerEntry) -> bool:
    """Rebind the driver of a VF on the host if the offer requires that after its pod; return whether it did.

    Raise CniError 11.
    """
    if not _needs_rebind(node, entry) or node.ledger.is_unprivileged(entry.uid):
        return False
    rebind(node, entry, "the offer requires it after a privileged pod")
    return True


def _needs_rebind(node: Node, entry: LedgerEntry) -> bool:
    """Return ``rebind_after_privileged`` of the offer; True if the offer cannot be read."""
    try:
        return offer.of_pf(node, node.sysfs.pf_of(entry.pci)).rebind_after_privileged
    except RecordError as unreadable:
        _log.error("offer cannot be read: rebinding the vf's driver", pci=entry.pci, reason=str(unreadable))
        return True


def clear(node: Node, entry: LedgerEntry) -> list[str]:
    """Restore the state of a VF's netdev that ADD noted; return the kinds that still differ. Raise OSError.

    A new netdev has nothing from the pod: only the host's own settings are restored on it.
    """
    return retry(lambda: _try_clear(node, entry), RENAME_ERRNOS, RENAME_S) if entry.original.name is not None else []


def _try_clear(node: Node, entry: LedgerEntry) -> list[str]:
    original = entry.original.netdev or netdev_state.NO_PROGRAMS
    link = netdev_of(node, entry.pci, RETURNS_S, entry.original.parent)
    if link is None:
        raise FileNotFoundError(f"its network interface {entry.original.name!r} did not come back")
    kinds = netdev_state.changed_kinds(original, netdev_state.read(link.index))
    if not kinds:
        return []
    netdev_state.restore(link.index, original, kinds)
    remaining_kinds = netdev_state.changed_kinds(original, netdev_state.read(link.index))
    if restored_kinds := [kind for kind in kinds if kind not in remaining_kinds]:
        _log.info(
            "settings that the pod changed on its vf are restored", pci=entry.pci, pod=entry.pod, kinds=restored_kinds
        )
    return remaining_kinds

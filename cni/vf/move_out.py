"""Move one VF out of its pod: its link goes down, its RDMA device leaves (in exclusive mode), then its netdev.

Each step runs only if it is still to be done. All are skipped if the pod's namespace is gone: the kernel then moves the
VF to the host by itself, and the caller waits for that.
"""

import errno
import os
from collections.abc import Callable
from typing import TypeVar

from cni.kernel import driver, netlink, netns, pod_link, rdma
from cni.spec.skel import TRY_AGAIN, CniError
from cni.vf.node import RETURNS_S, Node, in_host_netns, temporary_name
from mooring.ledger import LedgerEntry

T = TypeVar("T")


def move_out(node: Node, entry: LedgerEntry, on_down: Callable[[], object]) -> bool:
    """Move a VF of this boot to the host and wait until it is there; ``on_down`` is called once its link is down.

    Raise CniError 11 if it has not arrived: a process may keep a namespace that has lost its path, and the VF still
    works there, with its settings. Return False, without waiting, for a VF that has left the machine.
    """
    index = _quiesce(entry)
    if index is not None:
        on_down()
    _leave(node, entry, index)
    if not node.sysfs.exists(entry.pci):
        return False
    # The process that rebound its driver may have been killed in the middle.
    driver.finish_rebind(node.sysfs, entry.pci)
    if not in_host_netns(node, entry, RETURNS_S):
        raise CniError(TRY_AGAIN, f"vf {entry.pci} has not come back from the pod {entry.pod!r} yet")
    return True


def _quiesce(entry: LedgerEntry) -> int | None:
    """Take the VF's netdev down in the pod: its addresses may be another's now. Return its index, None without one."""

    def quiesce() -> int | None:
        link = _find_in_pod(entry)
        if link is not None:
            pod_link.withdraw(link)
            netlink.set_up(link.index, up=False)
            # The pod's own names, which may be taken on the host.
            for altname in set(link.altnames) - set(entry.original.altnames):
                netlink.remove_altname(link.index, altname)
        return link.index if link is not None else None

    return _in_pod_netns(entry, quiesce)


def _leave(node: Node, entry: LedgerEntry, index: int | None) -> None:
    """Move the VF's RDMA device, then its netdev with this index, out of the pod's namespace."""
    host = f"/proc/{os.getpid()}/ns/net"
    has_own = entry.rdma is not None and rdma.mode() == "exclusive"

    def leave() -> None:
        link = index
        device = rdma.device_of(node.sysfs, entry.pci) if has_own else None
        if device is not None:
            rdma.move(device.index, host)
            # IPoIB's netdev is removed with its device.
            link = found.index if (found := _find_in_pod(entry)) is not None else None
        if link is not None:
            _move_to_host(link, host, temporary_name(entry.pci))

    if index is not None or has_own:
        _in_pod_netns(entry, leave)


def _move_to_host(index: int, host: str, to: str) -> None:
    """Move a netdev to the host; drop its altnames if a link there took one meanwhile: the entry still has them."""
    try:
        netlink.move(index, host, to)
    except OSError as taken:
        link = netlink.get(index) if taken.errno == errno.EEXIST else None
        if link is None or not link.altnames:
            raise
        for altname in link.altnames:
            netlink.remove_altname(index, altname)
        netlink.move(index, host, to)


def _in_pod_netns(entry: LedgerEntry, work: Callable[[], T]) -> T | None:
    """Run ``work`` in the pod's namespace; return None if it is gone, or the path now names another one."""
    try:
        return netns.run_in(entry.netns.path, lambda: work() if netns.own_cookie() == entry.netns.cookie else None)
    except netns.NetnsGoneError:
        return None
    except OSError as stuck:
        raise CniError(TRY_AGAIN, f"vf {entry.pci} cannot leave the pod {entry.pod!r}", str(stuck)) from stuck


def _find_in_pod(entry: LedgerEntry) -> netlink.Link | None:
    """Find the VF's netdev in this namespace: by its PCI address if the kernel reports it, else by name and MAC."""
    found = netlink.links()
    by_parent = next((link for link in found if link.parent == entry.pci), None)
    if by_parent is not None:
        return by_parent
    macs = {entry.original.netdev_mac, entry.set.mac}
    named = (link for link in found if link.name in (entry.ifname, temporary_name(entry.pci)) and link.parent is None)
    return next((link for link in named if link.mac in macs), None)

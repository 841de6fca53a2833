"""Move one VF out of its pod: its link goes down, its RDMA device leaves (in exclusive mode), then its netdev.

Each step runs only if it is still necessary. If the pod's namespace is gone, all steps are skipped: the kernel then
moves the VF to the host by itself, and `move_out` waits for that.

While this runs, a pod with CAP_NET_ADMIN can rename its links, choose their indexes, and move the VF to the namespace
of an accomplice. It cannot change the PCI address that the kernel reports for the VF's netdev (IFLA_PARENT_DEV_NAME).
So that address is checked before and after each move, and a link that arrived in place of the VF's is moved back. If a
VF is in neither namespace, its driver is rebound, which creates its devices on the host. That is done only for a
deleted pod, because a namespace without a path may still be alive.
"""

import errno
import os
from collections.abc import Callable
from functools import partial
from typing import TypeVar

import structlog

from cni.kernel import driver, netlink, netns, pod_link, rdma
from cni.kernel.sysfs import APPEARS_S
from cni.kernel.wait import RENAME_ERRNOS
from cni.spec.skel import TRY_AGAIN, CniError
from cni.vf.detach.original_settings import restore_unbound
from cni.vf.detach.rebind import RebindError, rebind
from cni.vf.node import RETURNS_S, Node, in_host_netns, temporary_name
from mooring.records.ledger import LedgerEntry

T = TypeVar("T")
_log = structlog.get_logger()
# How often the move is repeated because another link took the VF's index between the check and the move.
_MOST_MOVES = 3


def move_out(node: Node, entry: LedgerEntry, on_down: Callable[[], object]) -> bool:
    """Move a VF of this boot to the host and wait until it is there; call ``on_down`` once its link is down.

    Raise CniError 11 if it does not arrive and its pod is not deleted: a process may keep a namespace without a path,
    and the VF still works there. Return False, without waiting, if the VF no longer exists on this node.
    """
    for _ in range(_MOST_MOVES):
        if _try_leave(node, entry, on_down):
            break
    if not node.sysfs.exists(entry.pci):
        return False
    # A process that rebound its driver may have been killed in between.
    driver.finish_rebind(node.sysfs, entry.pci, partial(restore_unbound, node, entry))
    if not in_host_netns(node, entry, RETURNS_S):
        _rebind_lost_vf(node, entry)
    return True


def _try_leave(node: Node, entry: LedgerEntry, on_down: Callable[[], object]) -> bool:
    """Move a VF out if it is in its pod; return False to try again if the pod changed its links. Raise CniError 11."""
    _return_foreign_link(node, entry)
    try:
        index = _quiesce(entry)
        if index is not None:
            on_down()
        _leave(node, entry, index)
    except OSError as error:
        if error.errno not in RENAME_ERRNOS:
            raise CniError(TRY_AGAIN, f"vf {entry.pci} cannot be moved out of pod {entry.pod!r}", str(error)) from error
        _log.warning(
            "vf's link changed while it was moved out of its pod", pci=entry.pci, pod=entry.pod, reason=str(error)
        )
        return False
    return not _return_foreign_link(node, entry)


def _rebind_lost_vf(node: Node, entry: LedgerEntry) -> None:
    """Rebind the driver of a deleted pod's VF that is neither in its pod nor on the host; raise CniError 11."""
    text = f"vf {entry.pci} has not returned from pod {entry.pod!r} yet"
    if not entry.deleted:
        raise CniError(TRY_AGAIN, text)
    rebind(node, entry, "it is neither in its pod nor on the host")
    if not in_host_netns(node, entry, APPEARS_S):
        raise RebindError(TRY_AGAIN, text, "its driver was rebound")


def _quiesce(entry: LedgerEntry) -> int | None:
    """Take the VF's netdev down in the pod, so that its addresses can be reused; return its index, None without one."""

    def quiesce() -> int | None:
        link = _find_in_pod(entry)
        if link is not None:
            netlink.remove_children(link.index)
            pod_link.withdraw(link)
            netlink.set_up(link.index, up=False)
            # Remove altnames that the pod added, because they may be taken on the host.
            for altname in set(link.altnames) - set(entry.original.altnames):
                netlink.remove_altname(link.index, altname)
        return link.index if link is not None else None

    return _in_pod_netns(entry, quiesce)


def _leave(node: Node, entry: LedgerEntry, index: int | None) -> None:
    """Move the VF's RDMA device, then its netdev (by index), to the host."""
    host = f"/proc/{os.getpid()}/ns/net"
    has_own = entry.rdma is not None and rdma.mode() == "exclusive"

    def leave() -> None:
        link = index
        device = rdma.device_of(node.sysfs, entry.pci) if has_own else None
        if device is not None:
            rdma.move(device.index, host)
            # IPoIB removes its netdev when the device moves.
            link = new_link.index if (new_link := _find_in_pod(entry)) is not None else None
        if link is not None and _belongs_to_vf(entry, netlink.get(link)):
            _move_to_host(entry, link, host)

    if index is not None or has_own:
        _in_pod_netns(entry, leave)


def _belongs_to_vf(entry: LedgerEntry, link: netlink.Link | None) -> bool:
    """Return whether a link belongs to the VF, by its parent if ADD recorded one."""
    return link is not None and (entry.original.parent is None or link.is_of(entry.pci))


def _move_to_host(entry: LedgerEntry, index: int, host: str) -> None:
    """Move a netdev to the host; drop its altnames if a link there has taken one. The entry still has them."""
    name = temporary_name(entry.pci)
    try:
        netlink.move(index, host, name)
    except OSError as error:
        link = netlink.get(index) if error.errno == errno.EEXIST else None
        if link is None or not link.altnames or not _belongs_to_vf(entry, link):
            raise
        for altname in link.altnames:
            netlink.remove_altname(index, altname)
        netlink.move(index, host, name)


def _return_foreign_link(node: Node, entry: LedgerEntry) -> bool:
    """Move a link that arrived in place of the VF's back to the pod; return whether there was one.

    The link had the VF's index in the pod, and has the VF's temporary name on the host. Only a link that this code
    moved has such a name, or a link from a namespace that died. If the pod's namespace is gone, a virtual link is
    removed, as the kernel does when a namespace dies. The netdev of another VF stays, under a name that the kernel
    chooses.
    """
    index = netlink.index_of(temporary_name(entry.pci)) if entry.original.parent is not None else None
    link = netlink.get(index) if index is not None else None
    if link is None or link.is_of(entry.pci):
        return False
    _log.warning("another link arrived in place of the vf's and is moved back", pci=entry.pci, pod=entry.pod)
    try:
        if netns.is_same(entry.netns.path, entry.netns.cookie):
            netlink.move(link.index, entry.netns.path, netlink.ANY_NAME)
        elif link.parent is None or link.lower is not None:
            netlink.remove(link.index)
        else:
            netlink.rename(link.index, netlink.ANY_NAME)
    except OSError as error:
        raise CniError(TRY_AGAIN, f"link {link.index} does not belong to vf {entry.pci}", str(error)) from error
    return True


def _in_pod_netns(entry: LedgerEntry, work: Callable[[], T]) -> T | None:
    """Run ``work`` in the pod's namespace; return None if the namespace is gone, or its path now names another one."""
    try:
        return netns.run_in(entry.netns.path, lambda: work() if netns.own_cookie() == entry.netns.cookie else None)
    except netns.NetnsGoneError:
        return None


def _find_in_pod(entry: LedgerEntry) -> netlink.Link | None:
    """Return the VF's netdev in this namespace: by its PCI address if the kernel reports it, else by name and MAC."""
    by_parent = netlink.with_parent(entry.pci)
    if by_parent is not None or entry.original.parent is not None:
        return by_parent
    links = netlink.links()
    macs = {entry.original.netdev_mac, entry.set.mac}
    candidates = (
        link for link in links if link.name in (entry.ifname, temporary_name(entry.pci)) and link.parent is None
    )
    return next((link for link in candidates if link.mac in macs), None)

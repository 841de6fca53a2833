"""Give one VF back: from whatever state it is in to the state in which it was found, driven by its ledger entry alone.

Its netdev goes down in the pod, and its addresses are given back from then on. Its RDMA device leaves first (in
exclusive mode), then its netdev; it is waited for and held to be free of the pod's processes; then settings and netdev
are put back. The same code serves DEL, an ADD that failed at any
step, and whatever a killed call left behind: it looks where the VF is now and does what is missing, so that it may be
run again at any point. The entry is removed last.
"""

import errno
import os
from collections.abc import Callable, Iterable
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from dataclasses import replace
from functools import partial
from typing import TypeVar

import structlog

from cni.kernel import driver, netlink, netns, pod_link, rdma
from cni.spec.skel import TRY_AGAIN, CniError
from cni.vf import ipam
from cni.vf.node import RETURNS_S, Node, in_host_netns, temporary_name
from cni.vf.restore import restore
from mooring.errors import RecordError
from mooring.ledger import LedgerEntry
from mooring.locks import hold

_log = structlog.get_logger()
T = TypeVar("T")
_LOCK_S = 30.0
_AT_ONCE = 8


def detach_all(node: Node, entries: Iterable[LedgerEntry], wanted: Callable[[LedgerEntry], bool]) -> None:
    """Give VFs back side by side: one that a process will not released takes seconds."""
    pcis: list[str] = []
    failures: list[CniError] = []
    try:
        # What came before the error stays.
        pcis.extend(entry.pci for entry in entries if wanted(entry))
    except OSError as unknown:
        failures.append(CniError(TRY_AGAIN, "the ledger cannot be read whole", str(unknown)))
    with ThreadPoolExecutor(_AT_ONCE, "give back") as returns:
        tried = returns.map(lambda pci: _try_one(node, pci, wanted), pcis)
        failures += [failure for failure in tried if failure is not None]
    if failures:
        raise failures[-1]


def _try_one(node: Node, pci: str, wanted: Callable[[LedgerEntry], bool]) -> CniError | None:
    """Give a VF back if it is still wanted when its lock is ours; return why it could not be done."""
    try:
        with hold(node.run, pci, _LOCK_S):
            entry = node.ledger.read(pci)
            if entry is not None and wanted(entry):
                _detach_logged(node, entry)
    except RecordError as unreadable:
        _log.error("ledger entry is passed over", reason=str(unreadable))
    except CniError as stuck:
        return stuck
    except OSError as stuck:
        return CniError(TRY_AGAIN, f"vf {pci} cannot be given back", str(stuck))
    return None


def _detach_logged(node: Node, entry: LedgerEntry) -> None:
    free = detach(node, entry)
    event = _log.bind(pod=entry.pod, uid=entry.uid, pci=entry.pci, container=entry.container)
    if free:
        event.info("vf given back")
    else:
        event.warning("vf is restored but not free yet", reason="a process still has its RDMA device")


def detach(node: Node, entry: LedgerEntry) -> bool:
    """Restore a VF and close its entry; the caller holds the VF's lock. Raise CniError 11 if it cannot be done now.

    Return False for a VF that is restored but not free: a process has its RDMA device and cannot be made to let go. Its
    entry stays `returning`, so that nobody gets it.
    """
    entry = replace(entry, phase="returning")
    # A full disk must not keep a VF: the entry says who has it either way, and is removed in the end.
    with suppress(OSError):
        node.ledger.write(entry)
    same_boot = entry.boot == node.boot
    free = True
    return_addresses = partial(_return_addresses, node, entry, entry.netns.path if same_boot else "")
    with ThreadPoolExecutor(1) as meanwhile:
        link = _silence(entry) if same_boot else None
        returned = meanwhile.submit(return_addresses) if link is not None else None
        if same_boot:
            _fetch(node, entry, link)
        if node.sysfs.exists(entry.pci):
            if same_boot and not _comes_home(node, entry):
                # A process may keep a namespace that has lost its path: the VF still works there, with its settings.
                raise CniError(TRY_AGAIN, f"vf {entry.pci} has not come back from the pod {entry.pod!r} yet")
            returned = returned or meanwhile.submit(return_addresses)
            free = restore(node, entry, same_boot=same_boot)
        (returned or meanwhile.submit(return_addresses)).result()
    if free:
        node.ledger.remove(entry.pci)
    else:
        node.ledger.write(replace(entry, addresses=(), ipam=None))
    return free


def _comes_home(node: Node, entry: LedgerEntry) -> bool:
    """Wait for a VF, bound by its driver again; one of another boot may be without it because somebody wants it so."""
    driver.ensure_bound(node.sysfs, entry.pci)
    return in_host_netns(node, entry, RETURNS_S)


def _return_addresses(node: Node, entry: LedgerEntry, path: str) -> None:
    """Call the IPAM plugin's DEL for what it gave; a plugin that gave nothing may fail, as it did on ADD."""
    if entry.ipam is None:
        return
    try:
        ipam.remove(entry.ipam, ipam.IpamCall(entry.container, path, "", node.run, entry.pci))
    except CniError as failed:
        if entry.addresses:
            raise
        _log.warning("ipam plugin that gave no address fails", pci=entry.pci, reason=str(failed))


def _silence(entry: LedgerEntry) -> str | None:
    """Take the VF's netdev down in the pod: its addresses may be another's now. Return its name, None without one."""

    def quieten() -> str | None:
        link = _in_pod(entry)
        if link is not None:
            pod_link.withdraw(link)
            netlink.set_up(link.name, up=False)
            # The pod's own, which may be somebody's on the host.
            for altname in set(link.altnames) - set(entry.original.altnames):
                netlink.remove_altname(link.name, altname)
        return link.name if link is not None else None

    return _in_its_netns(entry, quieten)


def _fetch(node: Node, entry: LedgerEntry, name: str | None) -> None:
    """Move the VF's RDMA device, then its netdev, out of the pod's namespace."""
    host = f"/proc/{os.getpid()}/ns/net"
    device = node.sysfs.rdma(entry.pci) if entry.rdma is not None and rdma.mode() == "exclusive" else None

    def leave() -> None:
        link = name
        if device is not None and device in rdma.devices():
            rdma.move(device, host)
            # That of IPoIB is unmade with its device.
            link = found.name if (found := _in_pod(entry)) is not None else None
        if link is not None:
            _move_home(link, host, temporary_name(entry.pci))

    if name is not None or device is not None:
        _in_its_netns(entry, leave)


def _move_home(name: str, host: str, to: str) -> None:
    """Move a netdev to the host; altnames that a link there took meanwhile are in its way, and in its entry."""
    try:
        netlink.move(name, host, to)
    except OSError as taken:
        link = netlink.find(name) if taken.errno == errno.EEXIST else None
        if link is None or not link.altnames:
            raise
        for altname in link.altnames:
            netlink.remove_altname(name, altname)
        netlink.move(name, host, to)


def _in_its_netns(entry: LedgerEntry, work: Callable[[], T]) -> T | None:
    """Run ``work`` in the pod's namespace; None where it is gone, or the path is another one's by now."""
    try:
        return netns.run_in(entry.netns.path, lambda: work() if netns.own_cookie() == entry.netns.cookie else None)
    except netns.NetnsGoneError:
        return None
    except OSError as stuck:
        raise CniError(TRY_AGAIN, f"vf {entry.pci} cannot leave the pod {entry.pod!r}", str(stuck)) from stuck


def _in_pod(entry: LedgerEntry) -> netlink.Link | None:
    """Find the VF's netdev in this namespace: by its PCI address where the kernel tells it, else by name and MAC."""
    found = netlink.links()
    by_parent = next((link for link in found if link.parent == entry.pci), None)
    if by_parent is not None:
        return by_parent
    macs = {entry.original.netdev_mac, entry.set.mac}
    named = (link for link in found if link.name in (entry.ifname, temporary_name(entry.pci)) and link.parent is None)
    return next((link for link in named if link.mac in macs), None)

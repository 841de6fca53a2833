"""Give one VF back: from whatever state it is in to the state in which it was found, driven by its ledger entry alone.

The same code serves DEL, an ADD that failed at any step, and whatever a killed call left behind: it looks where the VF
is now and does what is missing, so that it may be run again at any point. The entry is removed last.
"""

import errno
import os
import time
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass, replace
from pathlib import Path

import structlog

from cni import ipam, netlink, netns
from cni.ledger import Ledger
from cni.skel import TRY_AGAIN, CniError
from cni.sysfs import Sysfs
from mooring.ledger import LedgerEntry
from mooring.locks import hold
from mooring.pci import routing_id
from mooring.settings import SETTING_NAMES, VfSettings
from mooring.vfport import VfPort

_log = structlog.get_logger()
# How long a VF may take to come back from a namespace that died, in seconds; past it the VF stays `returning`.
RETURNS_S = 3.0
_LOCK_S = 30.0
_POLL_S = 0.01
# What one netlink attribute carries. Spoof check first: with it on, some drivers refuse to change the MAC.
_ATTRIBUTES = (
    *(("spoofchk",), ("mac",), ("vlan", "qos"), ("min_tx_rate", "max_tx_rate"), ("trust",), ("link_state",)),
    ("guid",),
)


@dataclass(frozen=True, slots=True)
class Node:
    """What a call works with on its node: folders, the ledger, the PFs' settings, this boot's id."""

    sysfs: Sysfs
    ledger: Ledger
    run: Path
    port: VfPort
    boot: str


def temporary_name(pci: str) -> str:
    """Return a name that no other interface of the host has: made from the VF's PCI address, at most 15 characters."""
    domain, rid = routing_id(pci)
    return f"mo{int(domain, 16):x}-{rid:04x}"


def give_back(node: Node, entry: LedgerEntry) -> None:
    """Restore a VF and close its entry; the caller holds the VF's lock. Raise CniError 11 if it cannot be done now."""
    entry = replace(entry, phase="returning")
    # A full disk must not keep a VF: the entry says who has it either way, and is removed in the end.
    with suppress(OSError):
        node.ledger.write(entry)
    same_boot = entry.boot == node.boot
    if same_boot:
        _fetch(entry)
    if node.sysfs.exists(entry.pci):
        if same_boot and entry.original.name is not None and node.sysfs.await_netdev(entry.pci, RETURNS_S) is None:
            # A process may keep a namespace that has lost its path: the VF still works there, with its settings.
            raise CniError(TRY_AGAIN, f"vf {entry.pci} has not come back from the pod {entry.pod!r} yet")
        _restore(node, entry, same_boot=same_boot)
    _return_addresses(entry, entry.netns.path if same_boot else "")
    node.ledger.remove(entry.pci)


def _return_addresses(entry: LedgerEntry, path: str) -> None:
    """Call the IPAM plugin's DEL for what it gave; a plugin that gave nothing may fail, as it did on ADD."""
    if entry.ipam is None:
        return
    try:
        ipam.remove(entry.ipam, entry.container, path)
    except CniError as failed:
        if entry.addresses:
            raise
        _log.warning("ipam plugin that gave no address fails", pci=entry.pci, reason=str(failed))


def _fetch(entry: LedgerEntry) -> None:
    """Move the VF's netdev out of the pod's namespace, if that is still the one and the netdev is in it."""
    if not netns.is_same(entry.netns.path, entry.netns.cookie):
        return
    host = f"/proc/{os.getpid()}/ns/net"
    temporary = temporary_name(entry.pci)

    def leave() -> None:
        link = _in_pod(entry, temporary)
        if link is None:
            return
        netlink.set_up(link.name, up=False)
        netlink.rename(link.name, temporary)
        netlink.move(temporary, host)

    try:
        netns.run_in(entry.netns.path, leave)
    except netns.NetnsGoneError:
        return
    except OSError as stuck:
        raise CniError(TRY_AGAIN, f"vf {entry.pci} cannot leave the pod {entry.pod!r}", str(stuck)) from stuck


def _in_pod(entry: LedgerEntry, temporary: str) -> netlink.Link | None:
    """Find the VF's netdev in this namespace: by its PCI address where the kernel tells it, else by name and MAC."""
    found = netlink.links()
    by_parent = next((link for link in found if link.parent == entry.pci), None)
    if by_parent is not None:
        return by_parent
    macs = {entry.original.netdev_mac, entry.set.mac}
    named = (link for link in found if link.name in (entry.ifname, temporary) and link.parent is None)
    return next((link for link in named if link.mac in macs), None)


def _restore(node: Node, entry: LedgerEntry, *, same_boot: bool) -> None:
    """Put back the VF's settings, then its netdev's own; another boot's entry resets and replays nothing."""
    try:
        _restore_settings(node, entry, _fresh(entry) if not same_boot else entry.original.settings)
        if same_boot and entry.original.name is not None:
            _restore_netdev(node, entry)
    except OSError as stuck:
        raise CniError(TRY_AGAIN, f"vf {entry.pci} cannot be restored", str(stuck)) from stuck


def _restore_settings(node: Node, entry: LedgerEntry, wanted: VfSettings) -> None:
    """Set what was changed and is not as wanted, attribute by attribute: one that the NIC refuses was never set."""
    changed = {name for name in SETTING_NAMES if getattr(entry.set, name) is not None}
    with hold(node.run, _pf_pci(node, entry), _LOCK_S):
        found = node.port.read(entry.pf, entry.vf)
        for attribute in _ATTRIBUTES:
            values = {name: getattr(wanted, name) for name in attribute if getattr(wanted, name) is not None}
            differs = any(getattr(found, name) != value for name, value in values.items())
            if differs and changed & set(attribute):
                node.port.write(entry.pf, entry.vf, VfSettings(**values))


def _fresh(entry: LedgerEntry) -> VfSettings:
    """What a reset leaves set: nothing. A setting that was unsupported before is left alone."""
    fresh = VfSettings(0, 0, "00:00:00:00:00:00", 0, 0, trust=False, spoofchk=False, link_state="auto")
    known = {name: getattr(fresh, name) for name in SETTING_NAMES if getattr(entry.original.settings, name) is not None}
    return VfSettings(**known)


def _restore_netdev(node: Node, entry: LedgerEntry) -> None:
    original = entry.original
    name = node.sysfs.await_netdev(entry.pci, RETURNS_S)
    if name is None or original.name is None:
        raise OSError(errno.ENODEV, f"its network interface {original.name!r} has not come back")
    link = _settled(name)
    netlink.set_up(link.name, up=False)
    if original.netdev_mac and link.mac != original.netdev_mac:
        netlink.set_mac(link.name, original.netdev_mac)
    if original.mtu and link.mtu != original.mtu:
        netlink.set_mtu(link.name, original.mtu)
    netlink.rename(link.name, original.name)
    _restore_altnames(original.name, original.altnames)
    if original.up:
        netlink.set_up(original.name, up=True)
    _await(lambda: node.sysfs.netdev(entry.pci) == original.name, RETURNS_S)


def _restore_altnames(name: str, wanted: tuple[str, ...]) -> None:
    link = netlink.find(name)
    present = set(link.altnames) if link is not None else set()
    for altname in present - set(wanted):
        netlink.remove_altname(name, altname)
    netlink.add_altnames(name, [altname for altname in wanted if altname not in present and altname != name])


def _settled(name: str) -> netlink.Link:
    link = netlink.find(name)
    if link is None:
        raise OSError(errno.ENODEV, f"network interface {name!r} is gone again")
    return link


def _pf_pci(node: Node, entry: LedgerEntry) -> str:
    return (node.sysfs.root / "bus/pci/devices" / entry.pci / "physfn").readlink().name


def _await(reached: Callable[[], bool], limit_s: float) -> None:
    deadline = time.monotonic() + limit_s
    while not reached() and time.monotonic() < deadline:
        time.sleep(_POLL_S)

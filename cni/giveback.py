"""Give one VF back: from whatever state it is in to the state in which it was found, driven by its ledger entry alone.

Its RDMA device leaves the pod first (in exclusive mode), then its netdev; it is waited for and held to be free of the
pod's processes; then settings, netdev and addresses are put back. The same code serves DEL, an ADD that failed at any
step, and whatever a killed call left behind: it looks where the VF is now and does what is missing, so that it may be
run again at any point. The entry is removed last.
"""

import errno
import os
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path

import structlog

from cni import freeing, ipam, netlink, netns, podlink, rdma
from cni.ledger import Ledger
from cni.plan import ATTRIBUTES, NO_MAC, refusal_text
from cni.skel import NIC_REFUSED, TRY_AGAIN, CniError
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
# Spoof check first: with it on, some drivers refuse to change the MAC.
_ATTRIBUTES = sorted(ATTRIBUTES, key=lambda attribute: attribute != ("spoofchk",))


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


def netdev_of(node: Node, pci: str, limit_s: float) -> netlink.Link | None:
    """Return a VF's netdev in this network namespace, None if it does not come within ``limit_s`` seconds.

    It has the name that we gave it, or the one that sysfs shows, once the kernel knows it: udev may rename in between.
    """
    found: list[netlink.Link] = []

    def is_there() -> bool:
        names = (temporary_name(pci), node.sysfs.netdev(pci))
        found.extend(link for name in names if name is not None and (link := netlink.find(name)) is not None)
        return bool(found)

    freeing.comes_true(is_there, limit_s)
    return found[0] if found else None


def give_back(node: Node, entry: LedgerEntry) -> bool:
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
    if same_boot:
        _fetch(node, entry)
    if node.sysfs.exists(entry.pci):
        freeing.ensure_bound(node.sysfs, entry.pci)
        if same_boot and not is_home(node, entry, RETURNS_S):
            # A process may keep a namespace that has lost its path: the VF still works there, with its settings.
            raise CniError(TRY_AGAIN, f"vf {entry.pci} has not come back from the pod {entry.pod!r} yet")
        with ThreadPoolExecutor(1) as meanwhile:
            returned = meanwhile.submit(return_addresses)
            free = _restore(node, entry, same_boot=same_boot)
            returned.result()
    else:
        return_addresses()
    if free:
        node.ledger.remove(entry.pci)
    else:
        node.ledger.write(replace(entry, addresses=(), ipam=None))
    return free


def is_home(node: Node, entry: LedgerEntry, limit_s: float) -> bool:
    """Say whether all that a VF has is on the host: its netdev and, in exclusive mode, its RDMA device.

    Waits up to ``limit_s`` seconds: the kernel takes its time over a namespace that died.
    """
    return freeing.comes_true(lambda: _netdev_is_home(node, entry) and _rdma_is_home(node, entry), limit_s)


def _netdev_is_home(node: Node, entry: LedgerEntry) -> bool:
    return entry.original.name is None or netdev_of(node, entry.pci, 0) is not None


def _rdma_is_home(node: Node, entry: LedgerEntry) -> bool:
    name = node.sysfs.rdma(entry.pci)
    return entry.rdma is None or name is None or rdma.mode() != "exclusive" or name in rdma.devices()


def _return_addresses(node: Node, entry: LedgerEntry, path: str) -> None:
    """Call the IPAM plugin's DEL for what it gave; a plugin that gave nothing may fail, as it did on ADD."""
    if entry.ipam is None:
        return
    try:
        ipam.remove(entry.ipam, ipam.Asker(entry.container, path, "", node.run, entry.pci))
    except CniError as failed:
        if entry.addresses:
            raise
        _log.warning("ipam plugin that gave no address fails", pci=entry.pci, reason=str(failed))


def _fetch(node: Node, entry: LedgerEntry) -> None:
    """Move the VF's RDMA device, then its netdev, out of the pod's namespace, if that is still the one with them."""
    if not netns.is_same(entry.netns.path, entry.netns.cookie):
        return
    host = f"/proc/{os.getpid()}/ns/net"
    temporary = temporary_name(entry.pci)
    device = node.sysfs.rdma(entry.pci) if entry.rdma is not None and rdma.mode() == "exclusive" else None

    def leave() -> None:
        if device is not None and device in rdma.devices():
            rdma.move(device, host)
        link = _in_pod(entry, temporary)
        if link is None:
            return
        podlink.withdraw(link)
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


def _restore(node: Node, entry: LedgerEntry, *, same_boot: bool) -> bool:
    """Put back the VF's settings, then its netdev's own; another boot's entry resets and replays nothing.

    Return whether the VF is free as well: that is seen to first, for a driver that is rebound makes a new netdev.
    """
    try:
        pf, vf = node.sysfs.found_as(entry.pci, entry.pf)
        entry = replace(entry, pf=pf, vf=vf)
        free = not same_boot or freeing.free_again(node.sysfs, entry)
        _restore_settings(node, entry, _fresh(entry) if not same_boot else entry.original.settings)
        if same_boot and entry.original.name is not None:
            _restore_netdev(node, entry)
    except OSError as stuck:
        raise CniError(TRY_AGAIN, f"vf {entry.pci} cannot be restored", str(stuck)) from stuck
    return free


def _restore_settings(node: Node, entry: LedgerEntry, wanted: VfSettings) -> None:
    """Set what was changed and is not as wanted, attribute by attribute: one that the NIC refuses keeps no other."""
    refusals = []
    changed = {name for name in SETTING_NAMES if getattr(entry.set, name) is not None}
    with hold(node.run, _pf_pci(node, entry), _LOCK_S):
        found = node.port.read(entry.pf, entry.vf)
        for attribute in _ATTRIBUTES:
            values = {name: getattr(wanted, name) for name in attribute if getattr(wanted, name) is not None}
            differs = any(getattr(found, name) != value for name, value in values.items())
            if differs and changed & set(attribute):
                settings = VfSettings(**values)
                try:
                    node.port.write(entry.pf, entry.vf, settings)
                except OSError as refused:
                    refusals.append(refusal_text(entry, settings, refused))
    if refusals:
        raise CniError(NIC_REFUSED, f"vf {entry.pci} cannot be restored", "; ".join(refusals))


def _fresh(entry: LedgerEntry) -> VfSettings:
    """What a reset leaves set: nothing. A setting that was unsupported before is left alone."""
    fresh = VfSettings(0, 0, NO_MAC, 0, 0, trust=False, spoofchk=False, link_state="auto")
    known = {name: getattr(fresh, name) for name in SETTING_NAMES if getattr(entry.original.settings, name) is not None}
    return VfSettings(**known)


def _restore_netdev(node: Node, entry: LedgerEntry) -> None:
    original = entry.original
    link = netdev_of(node, entry.pci, RETURNS_S)
    if link is None or original.name is None:
        raise OSError(errno.ENODEV, f"its network interface {original.name!r} has not come back")
    netlink.set_up(link.name, up=False)
    _restore_mac(node, entry, link)
    if original.mtu and link.mtu != original.mtu:
        netlink.set_mtu(link.name, original.mtu)
    netlink.rename(link.name, original.name)
    _restore_altnames(original.name, original.altnames)
    if original.up:
        netlink.set_up(original.name, up=True)


def _restore_mac(node: Node, entry: LedgerEntry, link: netlink.Link) -> None:
    """Give a netdev its own MAC back; that of IPoIB holds the number of a queue pair and is the driver's."""
    mac, admin_mac = entry.original.netdev_mac, entry.original.settings.mac
    if mac is None or len(mac) != len(NO_MAC) or link.mac == mac:
        return
    try:
        netlink.set_mac(link.name, mac)
    except OSError:
        if admin_mac in (None, NO_MAC):
            raise
        # A VF that is not trusted may only have its admin MAC: it gets its own back by way of that one.
        with hold(node.run, _pf_pci(node, entry), _LOCK_S):
            node.port.write(entry.pf, entry.vf, VfSettings(mac=mac))
            netlink.set_mac(link.name, mac)
            node.port.write(entry.pf, entry.vf, VfSettings(mac=admin_mac))


def _restore_altnames(name: str, wanted: tuple[str, ...]) -> None:
    link = netlink.find(name)
    present = set(link.altnames) if link is not None else set()
    for altname in present - set(wanted):
        netlink.remove_altname(name, altname)
    netlink.add_altnames(name, [altname for altname in wanted if altname not in present and altname != name])


def _pf_pci(node: Node, entry: LedgerEntry) -> str:
    return (node.sysfs.root / "bus/pci/devices" / entry.pci / "physfn").readlink().name

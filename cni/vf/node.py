"""What a call uses on its node, and where a VF's netdev is there."""

import errno
import re
from collections.abc import Collection
from dataclasses import dataclass
from pathlib import Path

import structlog

from cni.kernel import netlink, rdma
from cni.kernel.driver import REBIND_S
from cni.kernel.sysfs import APPEARS_S, Sysfs
from cni.kernel.wait import NAMED_S, RACED, retry, wait_until
from cni.vf.ledger import Ledger
from mooring import names
from mooring.errors import RecordError
from mooring.files import read_foreign_file, read_record
from mooring.nic.pci import routing_id
from mooring.nic.vf_settings import VfSettingsApi
from mooring.records import run_folder, shared_ports
from mooring.records.ledger import LedgerEntry

_log = structlog.get_logger()
# How long a VF may take to return from a namespace that died, in seconds; past it the VF stays `returning`.
RETURNS_S = 3.0
_TEMPORARY = re.compile(r"mo[0-9a-f]{1,8}-[0-9a-f]{4}", re.ASCII)


@dataclass(frozen=True, slots=True)
class Node:
    """What a call uses on its node: folders, the ledger, the PFs' settings, this boot's id.

    ``enforces_offer``: no VF is handed out beyond the operator's offer.
    """

    sysfs: Sysfs
    ledger: Ledger
    run: Path
    vf_settings: VfSettingsApi
    boot: str
    enforces_offer: bool = True


def pfs_of_port(node: Node, pf_pci: str) -> tuple[str, ...]:
    """Return the PCI addresses of all PFs on a PF's cable, itself included; raise RecordError."""
    try:
        text = read_foreign_file(node.run / shared_ports.FILE, shared_ports.MOST_BYTES)
    except OSError as unusable:
        raise RecordError(shared_ports.FILE, "", str(unusable)) from unusable
    if text is None and not (node.run / run_folder.ADVERTISER_VERSION).exists():
        # Where an advertiser of an earlier version puts it.
        text = read_record(node.run / Path(shared_ports.FILE).name)
    shared = shared_ports.read_shared_ports(text) if text is not None else ()
    return next((port for port in shared if pf_pci in port), (pf_pci,))


# What `is_prepared` keeps from being made.
NOT_PREPARED = "this node's VFs are not prepared yet: mooring-advertiser init has not finished"


def is_prepared(node: Node) -> bool:
    """Return whether `init` has prepared this boot's VFs: by its mark, or where earlier versions put it."""
    return any((node.run / mark).exists() for mark in (run_folder.READY, "ready"))


def temporary_name(pci: str) -> str:
    """Return a name that no other interface of the host has: made from the VF's PCI address, at most 15 characters."""
    domain, rid = routing_id(pci)
    return f"mo{int(domain, 16):x}-{rid:04x}"


def is_temporary(name: str) -> bool:
    """Return whether a name is one of those."""
    return _TEMPORARY.fullmatch(name) is not None


def netdev_index(node: Node, pci: str, parent: str | None) -> int | None:
    """Return the index of a VF's netdev in the host's namespace; does not wait for moves of other links (RTNL).

    It is the one in sysfs, whatever its name. ``parent`` is that of the VF's entry: a netdev with which the kernel
    reports none is not in the kernel's own sysfs either, and what stands for that may be late; so one with our
    temporary name is the VF's too.
    """
    index = node.sysfs.netdev(pci)
    if parent is None and (index is None or not netlink.exists(index)):
        return netlink.index_of(temporary_name(pci))
    return index


def netdev_of(node: Node, pci: str, limit_s: float, parent: str | None) -> netlink.Link | None:
    """Return a VF's netdev in the host's namespace, None if the kernel does not find it within ``limit_s`` seconds.

    Its name may change at any time: use its index. ``parent`` is as for `netdev_index`.
    """
    found: list[netlink.Link] = []

    def is_there() -> bool:
        index = netdev_index(node, pci, parent)
        link = netlink.get(index) if index is not None else None
        # An index that sysfs named a moment ago may be another device's now.
        if link is not None and link.parent in (parent, pci):
            found.append(link)
        return bool(found)

    wait_until(is_there, limit_s)
    return found[0] if found else None


def set_aside(node: Node, entry: LedgerEntry, reserved: Collection[str] = ()) -> None:
    """Take a VF's netdev on the host down, under its temporary name and without the altnames in ``reserved``.

    Raise OSError if it does not appear, or if another program keeps changing it.
    """

    def act() -> None:
        link = netdev_of(node, entry.pci, APPEARS_S, entry.original.parent)
        if link is None:
            raise FileNotFoundError(f"vf {entry.pci} has no network interface on the host")
        netlink.set_up(link.index, up=False)
        for altname in set(reserved) & set(link.altnames):
            netlink.remove_altname(link.index, altname)
        netlink.rename(link.index, temporary_name(entry.pci))

    retry(act, RACED, NAMED_S)


def recorded_name(pci: str, name: str) -> str:
    """Return the name that a VF's entry holds for its netdev: its own, or our temporary one where that is no name.

    The kernel takes any bytes for a name (dev_valid_name), the ledger takes what can be printed and typed.
    """
    return name if names.is_interface(name) else temporary_name(pci)


def recorded_device(node: Node, pci: str) -> str | None:
    """Return the name that a VF's entry holds for its RDMA device, as `recorded_name`; None without a device.

    A device in the middle of a move is waited for: without its name in the entry it would stay behind.
    """
    wait_until(lambda: not node.sysfs.lacks_verbs(pci), NAMED_S)
    name = node.sysfs.rdma(pci)
    return name if name is None or names.is_rdma(name) else temporary_name(pci)


def name_device(node: Node, entry: LedgerEntry) -> None:
    """Give a VF's RDMA device, if it is on the host, the name in its entry: a pod renamed it, or a rebind made it.

    A driver that is bound gets the lowest free name (alloc_name in drivers/infiniband/core/device.c), which may be the
    name of another VF that is rebound at the same time, and that one may have ours: the kernel refuses both
    (ib_device_rename, EEXIST). So each takes its temporary name before it waits for its own. If another device keeps
    the name, this one keeps the temporary one: no program of ours depends on it.
    """
    name = entry.rdma
    if name is None or node.sysfs.rdma(entry.pci) in (None, name):
        return
    refused = _rename_device(node, entry.pci, name, RACED - {errno.EEXIST}, NAMED_S)
    if refused is not None and refused.errno == errno.EEXIST:
        holder = node.sysfs.vf_of("infiniband", name)
        limit_s = gives_way_s(node, holder) if holder is not None else NAMED_S
        _rename_device(node, entry.pci, temporary_name(entry.pci), RACED, NAMED_S)
        refused = _rename_device(node, entry.pci, name, RACED, limit_s)
    if refused is not None:
        _log.warning("cannot rename the rdma device of a vf", pci=entry.pci, wanted=name, reason=str(refused))


def gives_way_s(node: Node, pci: str) -> float:
    """Return how long another VF may keep a name, in seconds.

    One that is on its way itself, out of a pod or into one, gives it up once its driver is bound.
    """
    try:
        entry = node.ledger.read(pci)
    except (RecordError, OSError):
        entry = None
    return REBIND_S if entry is not None and entry.phase != "held" else RETURNS_S


def _rename_device(node: Node, pci: str, name: str, raced: Collection[int], limit_s: float) -> OSError | None:
    """Rename a VF's RDMA device, found by the VF's PCI address each time; return the last refusal."""

    def act() -> None:
        device = rdma.device_of(node.sysfs, pci)
        if device is not None and device.name != name:
            rdma.rename(device.index, name)

    try:
        retry(act, raced, limit_s)
    except OSError as refused:
        return refused
    return None


def give_way(node: Node, entry: LedgerEntry) -> None:
    """Take a VF's netdev and RDMA device, if they are on the host, from names that are not theirs; log what fails.

    For a VF that cannot be given back now. The kernel has named what it made again, and another VF that is given back
    meanwhile may have had that name.
    """
    temporary = temporary_name(entry.pci)
    try:
        link = netdev_of(node, entry.pci, 0, entry.original.parent) if entry.original.name is not None else None
        if link is not None and link.name not in (entry.original.name, temporary):
            netlink.set_up(link.index, up=False)
            netlink.rename(link.index, temporary)
        if node.sysfs.rdma(entry.pci) not in (None, entry.rdma, temporary):
            _rename_device(node, entry.pci, temporary, RACED, NAMED_S)
    except OSError as refused:
        _log.warning("cannot rename the devices of a vf that is not released", pci=entry.pci, reason=str(refused))


def device_returns(node: Node, entry: LedgerEntry) -> bool:
    """Wait for the RDMA device of a VF whose driver has been bound again; return whether it is there, if it had one."""
    return entry.rdma is None or wait_until(lambda: node.sysfs.rdma(entry.pci) is not None, APPEARS_S)


def in_host_netns(node: Node, entry: LedgerEntry, limit_s: float) -> bool:
    """Return whether all that a VF has is on the host: its netdev and, in exclusive mode, its RDMA device.

    Waits up to ``limit_s`` seconds: the kernel cleans up a namespace that died after a delay.
    """
    return wait_until(lambda: _netdev_in_host_netns(node, entry) and _rdma_in_host_netns(node, entry), limit_s)


def _netdev_in_host_netns(node: Node, entry: LedgerEntry) -> bool:
    """Query without RTNL, which may be held for long."""
    name, parent = entry.original.name, entry.original.parent
    index = netdev_index(node, entry.pci, parent) if name is not None else None
    return name is None or (index is not None and netlink.exists(index))


def _rdma_in_host_netns(node: Node, entry: LedgerEntry) -> bool:
    """Return whether an RDMA device is on the host; one that its driver has removed is in no other namespace."""
    if entry.rdma is None or rdma.mode() != "exclusive":
        return True
    if node.sysfs.rdma(entry.pci) is None:
        return not node.sysfs.lacks_verbs(entry.pci)
    return rdma.device_of(node.sysfs, entry.pci) is not None

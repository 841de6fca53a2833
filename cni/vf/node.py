"""The node that a call works on: its folders and ledger, and the names of a VF's netdev and RDMA device there."""

import errno
import re
from collections.abc import Collection
from dataclasses import dataclass
from pathlib import Path

import structlog

from cni.kernel import netlink, rdma
from cni.kernel.driver import REBIND_S
from cni.kernel.sysfs import APPEARS_S, Sysfs
from cni.kernel.wait import RENAME_ERRNOS, RENAME_S, retry, wait_until
from cni.vf.ledger import Ledger
from mooring import names
from mooring.errors import RecordError
from mooring.files import read_foreign_file, read_record
from mooring.nic import node_guid
from mooring.nic.pci import routing_id
from mooring.nic.vf_addresses import vf_guid
from mooring.nic.vf_settings import VfSettingsApi
from mooring.records import run_folder, shared_ports
from mooring.records.ledger import LedgerEntry

_log = structlog.get_logger()
# How long a VF may take to return from a namespace that died, in seconds; after that it stays `returning`.
RETURNS_S = 3.0
_TEMPORARY = re.compile(r"mo[0-9a-f]{1,8}-[0-9a-f]{4}", re.ASCII)


@dataclass(frozen=True, slots=True)
class Node:
    """A node: its sysfs, its ledger, its run folder, access to the settings of its VFs, and the id of this boot.

    ``enforces_offer``: refuse assignments that exceed the operator's offer.
    """

    sysfs: Sysfs
    ledger: Ledger
    run: Path
    vf_settings: VfSettingsApi
    boot: str
    enforces_offer: bool = True


def pfs_of_port(node: Node, pf_pci: str) -> tuple[str, ...]:
    """Return the PCI addresses of all PFs on the cable of a PF, including itself; raise RecordError."""
    try:
        text = read_foreign_file(node.run / shared_ports.FILE, shared_ports.MOST_BYTES)
    except OSError as unusable:
        raise RecordError(shared_ports.FILE, "", str(unusable)) from unusable
    if text is None and not (node.run / run_folder.ADVERTISER_VERSION).exists():
        # The path that advertisers of earlier versions use.
        text = read_record(node.run / Path(shared_ports.FILE).name)
    ports = shared_ports.read_shared_ports(text) if text is not None else ()
    return next((port for port in ports if pf_pci in port), (pf_pci,))


# The error while `is_prepared` is False.
INIT_PENDING = "this node's VFs are not prepared yet: mooring-advertiser init has not finished"


def is_prepared(node: Node) -> bool:
    """Return whether `init` has prepared the VFs in this boot, by its mark (or that of an earlier version)."""
    return any((node.run / mark).exists() for mark in (run_folder.READY, "ready"))


def temporary_name(pci: str) -> str:
    """Return an interface name that is unique on the host, from the VF's PCI address; at most 15 characters."""
    domain, rid = routing_id(pci)
    return f"mo{int(domain, 16):x}-{rid:04x}"


def is_temporary(name: str) -> bool:
    """Return whether a name has the form of `temporary_name`."""
    return _TEMPORARY.fullmatch(name) is not None


def netdev_index(node: Node, pci: str, parent: str | None) -> int | None:
    """Return the index of a VF's netdev on the host; does not wait for moves of other links (RTNL).

    It is the netdev in sysfs, whatever its name. ``parent`` is the recorded PCI address of the netdev. If the kernel
    reports none (virtual links), sysfs may be late, and a link with the VF's temporary name also counts.
    """
    index = node.sysfs.netdev(pci)
    if parent is None and (index is None or not netlink.exists(index)):
        return netlink.index_of(temporary_name(pci))
    return index


def netdev_of(node: Node, pci: str, limit_s: float, parent: str | None) -> netlink.Link | None:
    """Return a VF's netdev on the host, None if it does not appear within ``limit_s`` seconds.

    Its name may change at any time: use its index. ``parent`` is as for `netdev_index`.
    """
    links: list[netlink.Link] = []

    def look_up() -> bool:
        index = netdev_index(node, pci, parent)
        link = netlink.get(index) if index is not None else None
        # The index from sysfs may belong to another device by now.
        if link is not None and link.parent in (parent, pci):
            links.append(link)
        return bool(links)

    wait_until(look_up, limit_s)
    return links[0] if links else None


def park_netdev(node: Node, entry: LedgerEntry, reserved_names: Collection[str] = ()) -> None:
    """Take a VF's netdev on the host down, give it its temporary name, and remove altnames in ``reserved_names``.

    Raise OSError if the netdev does not appear, or if another program keeps changing it.
    """

    def act() -> None:
        link = netdev_of(node, entry.pci, APPEARS_S, entry.original.parent)
        if link is None:
            raise FileNotFoundError(f"vf {entry.pci} has no network interface on the host")
        netlink.set_up(link.index, up=False)
        for altname in set(reserved_names) & set(link.altnames):
            netlink.remove_altname(link.index, altname)
        netlink.rename(link.index, temporary_name(entry.pci))

    retry(act, RENAME_ERRNOS, RENAME_S)


def recorded_name(pci: str, name: str) -> str:
    """Return the netdev name for a VF's ledger entry: its own, or the temporary one if the ledger cannot have it.

    The kernel allows almost any bytes in a name (dev_valid_name), the ledger only names that can be printed and typed.
    """
    return name if names.is_interface(name) else temporary_name(pci)


def recorded_device(node: Node, pci: str) -> str | None:
    """Return the RDMA device name for a VF's ledger entry, as in `recorded_name`; None without a device.

    It waits for a device in the middle of a move: without a name in the entry the device would not follow its VF.
    """
    wait_until(lambda: not node.sysfs.lacks_verbs(pci), RENAME_S)
    name = node.sysfs.rdma(pci)
    return name if name is None or names.is_rdma(name) else temporary_name(pci)


def name_device(node: Node, entry: LedgerEntry) -> None:
    """Give a VF's RDMA device on the host the name in its entry, after a pod renamed it or a rebind created it.

    A new device gets the lowest free name (alloc_name in drivers/infiniband/core/device.c). Two VFs that are rebound at
    the same time may get each other's names, and the kernel refuses both renames (ib_device_rename, EEXIST). So each
    takes its temporary name before it waits for its own. If another device keeps the name, this one keeps the temporary
    name: Mooring does not depend on it.
    """
    name = entry.rdma
    if name is None or node.sysfs.rdma(entry.pci) in (None, name):
        return
    error = _rename_device(node, entry.pci, name, RENAME_ERRNOS - {errno.EEXIST}, RENAME_S)
    if error is not None and error.errno == errno.EEXIST:
        holder = node.sysfs.vf_of("infiniband", name)
        limit_s = gives_way_s(node, holder) if holder is not None else RENAME_S
        _rename_device(node, entry.pci, temporary_name(entry.pci), RENAME_ERRNOS, RENAME_S)
        error = _rename_device(node, entry.pci, name, RENAME_ERRNOS, limit_s)
    if error is not None:
        _log.warning("cannot rename the rdma device of a vf", pci=entry.pci, wanted=name, reason=str(error))


def gives_way_s(node: Node, pci: str) -> float:
    """Return how long to wait for a name that another VF has, in seconds.

    A VF that is being attached or detached releases the name once its driver is bound.
    """
    try:
        entry = node.ledger.read(pci)
    except (RecordError, OSError):
        entry = None
    return REBIND_S if entry is not None and entry.phase != "held" else RETURNS_S


def _rename_device(node: Node, pci: str, name: str, errnos: Collection[int], limit_s: float) -> OSError | None:
    """Rename a VF's RDMA device, which is looked up at each attempt; return the last error, None on success."""

    def act() -> None:
        device = rdma.device_of(node.sysfs, pci)
        if device is not None and device.name != name:
            rdma.rename(device.index, name)

    try:
        retry(act, errnos, limit_s)
    except OSError as error:
        return error
    return None


def give_way(node: Node, entry: LedgerEntry) -> None:
    """Give a VF's netdev and RDMA device on the host their temporary names if they have other VFs' names; log failures.

    This is for a VF that cannot be released now: the kernel named its new devices, possibly with names of other VFs
    that are being released.
    """
    temporary = temporary_name(entry.pci)
    try:
        link = netdev_of(node, entry.pci, 0, entry.original.parent) if entry.original.name is not None else None
        if link is not None and link.name not in (entry.original.name, temporary):
            netlink.set_up(link.index, up=False)
            netlink.rename(link.index, temporary)
        if node.sysfs.rdma(entry.pci) not in (None, entry.rdma, temporary):
            _rename_device(node, entry.pci, temporary, RENAME_ERRNOS, RENAME_S)
    except OSError as error:
        _log.warning("cannot rename the devices of a vf that is not released", pci=entry.pci, reason=str(error))


def derived_guid(node: Node, pf_pci: str, vf: int) -> str | None:
    """Return the GUID that `init` sets on an InfiniBand VF; None if the PF's own GUID is unknown."""
    pf_guid = node.sysfs.node_guid(pf_pci)
    return None if pf_guid is None or node_guid.is_missing(pf_guid) else vf_guid(pf_guid, vf)


def device_returns(node: Node, entry: LedgerEntry) -> bool:
    """Wait for the RDMA device of a VF after a rebind; return whether it came back. True for VFs without a device."""
    return entry.rdma is None or wait_until(lambda: node.sysfs.rdma(entry.pci) is not None, APPEARS_S)


def in_host_netns(node: Node, entry: LedgerEntry, limit_s: float) -> bool:
    """Return whether a VF's netdev and, in exclusive mode, its RDMA device are on the host.

    It waits up to ``limit_s`` seconds, because the kernel cleans up a dead namespace after a delay.
    """
    return wait_until(lambda: _netdev_in_host_netns(node, entry) and _rdma_in_host_netns(node, entry), limit_s)


def _netdev_in_host_netns(node: Node, entry: LedgerEntry) -> bool:
    """Return whether a VF's netdev is on the host; does not take RTNL, which may be held for long."""
    name, parent = entry.original.name, entry.original.parent
    index = netdev_index(node, entry.pci, parent) if name is not None else None
    return name is None or (index is not None and netlink.exists(index))


def _rdma_in_host_netns(node: Node, entry: LedgerEntry) -> bool:
    """Return whether a VF's RDMA device is on the host; one that its driver removed counts, as it is not elsewhere."""
    if entry.rdma is None or rdma.mode() != "exclusive":
        return True
    if node.sysfs.rdma(entry.pci) is None:
        return not node.sysfs.lacks_verbs(entry.pci)
    return rdma.device_of(node.sysfs, entry.pci) is not None

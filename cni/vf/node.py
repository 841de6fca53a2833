"""What a call uses on its node, and where a VF's netdev is there."""

import re
from dataclasses import dataclass
from pathlib import Path

from cni.kernel import netlink, rdma
from cni.kernel.sysfs import Sysfs
from cni.kernel.wait import wait_until
from cni.vf.ledger import Ledger
from mooring import ports
from mooring.files import read_file
from mooring.ledger import LedgerEntry
from mooring.pci import routing_id
from mooring.vf_settings import VfSettingsApi

# How long a VF may take to return from a namespace that died, in seconds; past it the VF stays `returning`.
RETURNS_S = 3.0
# The file below the run folder that marks this boot's VFs as prepared.
READY = "ready"
_TEMPORARY = re.compile(r"mo[0-9a-f]{1,8}-[0-9a-f]{4}", re.ASCII)


@dataclass(frozen=True, slots=True)
class Node:
    """What a call uses on its node: folders, the ledger, the PFs' settings, this boot's id."""

    sysfs: Sysfs
    ledger: Ledger
    run: Path
    vf_settings: VfSettingsApi
    boot: str


def pfs_of_port(node: Node, pf_pci: str) -> tuple[str, ...]:
    """Return the PCI addresses of all PFs on a PF's cable, itself included; raise RecordError."""
    text = read_file(node.run / ports.FILE)
    shared = ports.read_ports(text) if text is not None else ()
    return next((port for port in shared if pf_pci in port), (pf_pci,))


def temporary_name(pci: str) -> str:
    """Return a name that no other interface of the host has: made from the VF's PCI address, at most 15 characters."""
    domain, rid = routing_id(pci)
    return f"mo{int(domain, 16):x}-{rid:04x}"


def is_temporary(name: str) -> bool:
    """Return whether a name is one of those."""
    return _TEMPORARY.fullmatch(name) is not None


def netdev_of(node: Node, pci: str, limit_s: float) -> netlink.Link | None:
    """Return a VF's netdev in this network namespace, None if it does not appear within ``limit_s`` seconds.

    It has the name that we gave it, or the one in sysfs, once the kernel finds it: udev may rename in between.
    """
    found: list[netlink.Link] = []

    def is_there() -> bool:
        names = (temporary_name(pci), node.sysfs.netdev(pci))
        found.extend(link for name in names if name is not None and (link := netlink.find(name)) is not None)
        return bool(found)

    wait_until(is_there, limit_s)
    return found[0] if found else None


def in_host_netns(node: Node, entry: LedgerEntry, limit_s: float) -> bool:
    """Return whether all that a VF has is on the host: its netdev and, in exclusive mode, its RDMA device.

    Waits up to ``limit_s`` seconds: the kernel cleans up a namespace that died after a delay.
    """
    return wait_until(lambda: _netdev_in_host_netns(node, entry) and _rdma_in_host_netns(node, entry), limit_s)


def _netdev_in_host_netns(node: Node, entry: LedgerEntry) -> bool:
    """Return whether a link has our name or sysfs' name; query without RTNL, which may be held for long."""
    names = (temporary_name(entry.pci), node.sysfs.netdev(entry.pci))
    return entry.original.name is None or any(name is not None and netlink.exists(name) for name in names)


def _rdma_in_host_netns(node: Node, entry: LedgerEntry) -> bool:
    name = node.sysfs.rdma(entry.pci)
    return entry.rdma is None or name is None or rdma.mode() != "exclusive" or name in rdma.devices()

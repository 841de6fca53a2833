"""What a call works with on its node, and where a VF's netdev is there."""

import re
from dataclasses import dataclass
from pathlib import Path

from cni import freeing, netlink
from cni.ledger import Ledger
from cni.sysfs import Sysfs
from mooring.pci import routing_id
from mooring.vf_settings import VfPort

_TEMPORARY = re.compile(r"mo[0-9a-f]{1,8}-[0-9a-f]{4}", re.ASCII)


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


def is_temporary(name: str) -> bool:
    """Say whether a name is one of those."""
    return _TEMPORARY.fullmatch(name) is not None


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

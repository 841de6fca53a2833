"""The record ``<run>/advertiser/ports.json``: which PFs of this node share a port, and so a cable.

    {"v":1,"ports":[["0000:01:00.0","0002:01:00.0"]]}

The advertiser writes it when a scan finds a change, from the same facts and offer as its inventory. mooring-cni reads
it and adds up min rates per port. Without the record every PF has its own cable. The advertiser, which owns the folder,
has fewer privileges than the readers, so they follow no links there.
"""

from collections.abc import Iterable

from mooring import names
from mooring.annotations.inventory import Pf
from mooring.errors import RecordError
from mooring.parsing import dump, parse
from mooring.records.run_folder import ADVERTISER

FILE = f"{ADVERTISER}/ports.json"
_MOST_ENTRIES = 256
MOST_BYTES = 64 * 1024
SharedPorts = tuple[tuple[str, ...], ...]


def shared_ports_of(pfs: Iterable[Pf]) -> SharedPorts:
    """Return the PCI addresses of the PFs of each port that several PFs share."""
    groups: dict[str, list[str]] = {}
    for pf in pfs:
        if pf.port is not None:
            groups.setdefault(pf.port, []).append(pf.pci)
    return tuple(tuple(sorted(group)) for group in groups.values() if len(group) > 1)


def read_shared_ports(text: str) -> SharedPorts:
    """Read the record; raise RecordError."""
    document = parse(text, FILE, RecordError).version(1).fields()
    groups = document.required("ports").items(_MOST_ENTRIES)
    return tuple(tuple(names.address(address) for address in group.items(_MOST_ENTRIES)) for group in groups)


def dump_shared_ports(ports: SharedPorts) -> str:
    return dump({"v": 1, "ports": [list(group) for group in ports]})

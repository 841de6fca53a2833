"""The record ``<run>/advertiser/ports.json``: which PFs of this node share a port, that is, are on one cable.

    {"v":1,"ports":[["0000:01:00.0","0002:01:00.0"]]}

The folder is the advertiser's, which serves with fewer rights than its readers have: they follow no link there.
Written by the advertiser at each scan that finds them otherwise, from the facts and the offer that its inventory is
made of; read by mooring-cni, which counts min rates per port too. Without it every PF has a cable of its own.
"""

from collections.abc import Iterable

from mooring import names
from mooring.annotations.inventory import Pf
from mooring.errors import RecordError
from mooring.parsing import dump, parse
from mooring.records.run_folder import ADVERTISER

FILE = f"{ADVERTISER}/ports.json"
_MOST = 256
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
    groups = document.required("ports").items(_MOST)
    return tuple(tuple(names.address(address) for address in group.items(_MOST)) for group in groups)


def dump_shared_ports(ports: SharedPorts) -> str:
    return dump({"v": 1, "ports": [list(group) for group in ports]})

"""What a node has: the annotation ``mooring.dev/inventory.fpga``.

    {"v":1,"fpgas":[{"pci":"0000:05:00.0","pcie":["0000:00:01.0","0000:02:00.0","0000:03:01.0"]}]}

``pcie`` is the path of bridges from the root, as in the inventory of VFs. Readers pass over fields that they do not
know.
"""

from dataclasses import dataclass

from mooring import names
from mooring.annotations.inventory import Pf
from mooring.errors import AnnotationError
from mooring.parsing import parse

KEY = f"{names.INVENTORY_OF}fpga"
_MOST_FPGAS = 64
_DEEPEST = 32
# The root port and the switch's upstream port; below that the ways to the devices part.
_TO_SWITCH = 2


@dataclass(frozen=True, slots=True)
class Fpga:
    """An FPGA: the switch that it is under (empty for none), and the PFs that are under the same one."""

    switch: tuple[str, ...]
    pfs: frozenset[str]


def read_fpgas(text: str, pfs: tuple[Pf, ...]) -> dict[str, Fpga]:
    """Read the annotation's value beside a node's PFs, by PCI address; raise AnnotationError."""
    listed = parse(text, KEY, AnnotationError).version(1).fields().required("fpgas")
    fpgas: dict[str, Fpga] = {}
    for item in listed.items(_MOST_FPGAS):
        fields = item.fields()
        pci = names.address(fields.required("pci"))
        if pci in fpgas:
            item.fail(f"fpga {pci!r} is listed twice")
        switch = switch_of(tuple(names.address(step) for step in fields.required("pcie").items(_DEEPEST)))
        fpgas[pci] = Fpga(switch, frozenset(pf.name for pf in pfs if switch and switch_of(pf.pcie) == switch))
    return fpgas


def switch_of(path: tuple[str, ...]) -> tuple[str, ...]:
    """Return the switch nearest to the root on a path of bridges; empty for a device at a root port."""
    return path[:_TO_SWITCH] if len(path) >= _TO_SWITCH else ()

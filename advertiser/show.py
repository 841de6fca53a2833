"""Show what a host offers: as a table for a person, as JSON for a program."""

import json
from collections.abc import Iterator

from rich.console import Console, Group, RenderableType
from rich.table import Table
from rich.text import Text

from advertiser.inventory.build_inventory import IgnoredNic, InventoryResult
from mooring.inventory import Pf, dump_inventory

_COLUMNS = ("PF", "PCI", "RDMA", "Mb/s", "up", "NUMA", "network", "VFs", "usable")
# Not broken over two lines: people paste it. A least width instead would let the table outgrow a narrow terminal.
_WHOLE = ("PCI",)
_SHORT_LINKS = {"ethernet": "", "infiniband": " IB"}


def as_json(result: InventoryResult, node: str) -> str:
    """Return the inventory as it is published, and beside it what is ignored and why."""
    document = {
        "node": node,
        "inventory": json.loads(dump_inventory(result.inventory)),
        "left_out": [{"pci": left.pci, "name": left.name, "why": left.why} for left in result.ignored],
        "warnings": [{"pf": found.pf, "vfs": str(found.vfs), "why": found.why} for found in result.warnings],
    }
    return json.dumps(document, indent=2, sort_keys=True)


def print_table(result: InventoryResult, node: str, console: Console) -> None:
    """Print the PFs, then the NICs that are ignored."""
    console.print(_pfs(result, node) if result.inventory.pfs else Text(f"{node} offers no PF"))
    if result.ignored:
        console.print(_ignored(result.ignored))


def _pfs(result: InventoryResult, node: str) -> RenderableType:
    inventory = result.inventory
    size = len(dump_inventory(inventory).encode())
    table = Table(title=f"{node}: {len(inventory.pfs)} PFs on offer in {size} bytes of annotation")
    for column in _COLUMNS:
        right = column in ("Mb/s", "NUMA", "usable")
        whole = column in _WHOLE
        table.add_column(column, justify="right" if right else "left", no_wrap=whole, overflow="fold")
    for pf in inventory.pfs:
        table.add_row(*_row(pf))
    notes = [note for pf in inventory.pfs for note in _notes(pf)]
    notes += [f"{found.pf} VF {found.vfs} on offer, but: {found.why}" for found in result.warnings]
    return Group(table, *(Text(note) for note in notes))


def _row(pf: Pf) -> tuple[str | Text, ...]:
    rate = str(pf.mbps) if pf.mbps == pf.offer_mbps else f"{pf.offer_mbps} of {pf.mbps}"
    return (
        Text(pf.name),
        pf.pci,
        Text(pf.rdma or "-"),
        (rate if pf.mbps else "unknown") + _SHORT_LINKS[pf.link],
        Text("yes", style="green") if pf.up else Text("no", style="red"),
        "-" if pf.numa is None else str(pf.numa),
        pf.network,
        str(pf.vfs),
        str(len(pf.usable)),
    )


def _notes(pf: Pf) -> Iterator[str]:
    yield f"{pf.name} takes {', '.join(sorted(pf.can)) or 'no settings'}"
    if pf.port is not None:
        yield f"{pf.name} shares the cable {pf.port} with other PFs"
    for entry in pf.out:
        held = f" ({entry.min_tx_rate} Mb/s each)" if entry.min_tx_rate else ""
        yield f"{pf.name} VF {entry.vfs} out: {entry.why}{held}"


def _ignored(devices: tuple[IgnoredNic, ...]) -> Table:
    table = Table(title="left out")
    for column in ("PCI", "name", "why"):
        table.add_column(column, overflow="fold")
    for device in devices:
        table.add_row(device.pci, Text(device.name or "-"), Text(device.why))
    return table

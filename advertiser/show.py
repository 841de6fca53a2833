"""Format what a host offers, as a table or as JSON."""

import json
from collections.abc import Iterator, Sequence
from functools import partial

from rich.console import Console, Group, RenderableType
from rich.table import Table
from rich.text import Text

from advertiser.inventory.build_inventory import IgnoredNic, InventoryResult
from advertiser.inventory.matching import EntryMatch
from mooring.annotations.inventory import TESTED_RATES, Pf, dump_inventory
from mooring.gpu.inventory import GpuInventory, dump_gpu_inventory

_GPU_COLUMNS = ("GPU", "UUID", "model", "MiB", "NUMA", "link", "bridges from the root")
_COLUMNS = ("PF", "PCI", "RDMA", "Mb/s", "up", "NUMA", "network", "VFs", "usable")
# Columns that are not wrapped, because people copy the value. A minimum width would exceed a narrow terminal.
_WHOLE = ("PCI",)
_SHORT_LINKS = {"ethernet": "", "infiniband": " IB"}


def as_json(
    result: InventoryResult,
    node: str,
    gpus: GpuInventory | None = None,
    entries: Sequence[EntryMatch] = (),
    warnings: Sequence[str] = (),
) -> str:
    """Return the inventories as published, and the ignored NICs with the reasons, as JSON.

    ``warnings`` are about the offer.
    """
    document: dict[str, object] = {
        "node": node,
        "inventory": json.loads(dump_inventory(result.inventory)),
        "left_out": [{"pci": left.pci, "name": left.name, "why": left.why} for left in result.ignored],
        "warnings": [{"pf": found.pf, "vfs": str(found.vfs), "why": found.why} for found in result.warnings],
    }
    if entries:
        document["entries"] = [{"entry": entry.index, "pfs": list(entry.pfs), "why": entry.fault} for entry in entries]
    if warnings:
        document["offer_warnings"] = list(warnings)
    if gpus is not None:
        document["gpu_inventory"] = json.loads(dump_gpu_inventory(gpus))
    return json.dumps(document, indent=2, sort_keys=True)


def print_table(
    result: InventoryResult,
    node: str,
    console: Console,
    gpus: GpuInventory | None = None,
    entries: Sequence[EntryMatch] = (),
    warnings: Sequence[str] = (),
) -> None:
    """Print the PFs, the NICs that are ignored, the GPUs, what each entry of the offer matches, its warnings."""
    console.print(_pfs(result, node) if result.inventory.pfs else Text(f"no PF of {node} is on offer"))
    if result.ignored:
        console.print(_ignored(result.ignored))
    if gpus is not None:
        console.print(_gpus(gpus, node))
    for entry in entries:
        console.print(Text(_entry(entry), style="red" if entry.fault else ""))
    for warning in warnings:
        console.print(Text(f"warning: {warning}", style="yellow"), soft_wrap=True)


def _entry(found: EntryMatch) -> str:
    earlier = f"; an earlier entry decides about {', '.join(found.earlier)}" if found.earlier else ""
    return f"pfs[{found.index}] of the offer: {found.fault or ', '.join(found.pfs) or 'no PF of this node'}{earlier}"


def _gpus(inventory: GpuInventory, node: str) -> RenderableType:
    size = len(dump_gpu_inventory(inventory).encode())
    table = Table(title=f"{node}: {len(inventory.gpus)} GPUs on offer, annotation of {size} bytes")
    for column in _GPU_COLUMNS:
        right = column in ("MiB", "NUMA", "link")
        table.add_column(column, justify="right" if right else "left", no_wrap=column == "GPU", overflow="fold")
    for gpu in inventory.gpus:
        numbers = ("-" if value is None else str(value) for value in (gpu.memory_mb, gpu.numa, gpu.link))
        table.add_row(*map(Text, (gpu.pci, gpu.uuid, gpu.model or "-", *numbers, " ".join(gpu.pcie) or "-")))
    return Group(table, *(Text(f"GPU {gpu.pci} is out: {gpu.why}") for gpu in inventory.out))


def _pfs(result: InventoryResult, node: str) -> RenderableType:
    inventory = result.inventory
    size = len(dump_inventory(inventory).encode())
    table = Table(title=f"{node}: {len(inventory.pfs)} PFs on offer, annotation of {size} bytes")
    for column in _COLUMNS:
        right = column in ("Mb/s", "NUMA", "usable")
        whole = column in _WHOLE
        table.add_column(column, justify="right" if right else "left", no_wrap=whole, overflow="fold")
    for pf in inventory.pfs:
        table.add_row(*_row(pf))
    notes = [note for pf in inventory.pfs for note in _notes(pf)]
    notes += [f"{found.pf} VF {found.vfs} is on offer with a fault: {found.why}" for found in result.warnings]
    return Group(table, *(Text(note) for note in notes))


def _row(pf: Pf) -> tuple[str | Text, ...]:
    # rich replaces :cd: in a plain string by an emoji, as in 0000:cd:00.0.
    rate = str(pf.mbps) if pf.mbps == pf.offer_mbps else f"{pf.offer_mbps} of {pf.mbps}"
    return (
        Text(pf.name),
        Text(pf.pci),
        Text(pf.rdma or "-"),
        (rate if pf.mbps else "unknown") + _SHORT_LINKS[pf.link],
        Text("yes", style="green") if pf.up else Text("no", style="red"),
        "-" if pf.numa is None else str(pf.numa),
        pf.network,
        str(pf.vfs),
        str(len(pf.usable)),
    )


def _notes(pf: Pf) -> Iterator[str]:
    yield f"{pf.name} supports {', '.join(sorted(map(partial(_setting, pf), pf.can))) or 'no settings'}"
    if pf.port is not None:
        yield f"{pf.name} shares the cable {pf.port} with other PFs"
    if pf.access.namespaces:
        yield f"{pf.name} is for namespaces {', '.join(pf.access.namespaces)}"
    if pf.access.max_share is not None:
        yield f"each namespace may hold {pf.access.max_share} % of the VFs of {pf.name} and the PFs of the same entry"
    for entry in pf.out:
        held = f" ({entry.min_tx_rate} Mb/s each)" if entry.min_tx_rate else ""
        yield f"{pf.name} VF {entry.vfs} is out: {entry.why}{held}"


def _setting(pf: Pf, setting: str) -> str:
    """Return a setting, and of a rate whether a hardware test has shown it on this host."""
    return f"{setting} ({pf.rate_state(setting)})" if setting in TESTED_RATES else setting


def _ignored(devices: tuple[IgnoredNic, ...]) -> Table:
    table = Table(title="not on offer")
    for column in ("PCI", "name", "why"):
        table.add_column(column, overflow="fold")
    for device in devices:
        table.add_row(Text(device.pci), Text(device.name or "-"), Text(device.why))
    return table

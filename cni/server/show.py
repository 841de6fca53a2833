"""Format the ledger entry of every attached VF together with the kernel's state, for ``mooring-cni show``."""

import json
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass

from cni.kernel import netlink
from cni.plan.drift import LiveState, pending_rates
from cni.vf.node import Node, is_temporary, temporary_name
from cni.vf.observe import differences_of, observe
from mooring.errors import RecordError
from mooring.folders import foreign_entries
from mooring.nic.settings import VfSettings
from mooring.records import ledger
from mooring.records.ledger import LedgerEntry
from mooring.records.rates_record import rates_by_pci

_NAMELESS = "still has its temporary name: another link had its original name when the vf was released"
_COLUMNS = ("VF", "PCI", "POD", "PHASE", "INTERFACE", "NETNS", "SETTINGS")


@dataclass(frozen=True, slots=True)
class LedgerRow:
    """One entry of the ledger, the kernel's state of its VF, and their differences.

    ``generation`` is the generation of the pod's changed rates, None if they are those of the assignment. ``pending``
    describes how the entry differs from the changed rates.
    """

    entry: LedgerEntry
    live: LiveState
    drift: tuple[str, ...]
    generation: int | None = None
    pending: tuple[str, ...] = ()


def show(node: Node, *, as_json: bool) -> str:
    """Return the ledger as a table or as one JSON object; unreadable entries are listed by file name."""
    content = node.ledger.content()
    foreign = foreign_entries(node.ledger.state / ledger.FOLDER, ledger.IS_NAME)
    unreadable = {**foreign, **{name: str(error) for name, error in content.unreadable.items()}}
    rows = [_ledger_row(node, entry) for entry in content.entries]
    nameless = _nameless(content.entries)
    if as_json:
        return json.dumps(_document(rows, unreadable) | {"nameless": nameless})
    return "\n".join((*_table(rows, unreadable), *(f"  ! {name} {_NAMELESS}" for name in nameless)))


def _nameless(entries: Sequence[LedgerEntry]) -> list[str]:
    """Return the netdevs that kept their temporary names after release, because their own names were taken."""
    names_in_use = {temporary_name(entry.pci) for entry in entries}
    return sorted(link.name for link in netlink.links() if is_temporary(link.name) and link.name not in names_in_use)


def _ledger_row(node: Node, entry: LedgerEntry) -> LedgerRow:
    live = observe(node, entry)
    return LedgerRow(entry, live, differences_of(entry, live), *_rates(node, entry))


def _rates(node: Node, entry: LedgerEntry) -> tuple[int | None, tuple[str, ...]]:
    """Return the generation of a pod's changed rates, and descriptions of earlier rates that the VF still has."""
    try:
        record = node.ledger.rates(entry.uid)
        rates = {} if record is None else rates_by_pci(node.ledger.pod(entry.uid), record)
    except (RecordError, OSError) as unreadable:
        return None, (f"rates cannot be read: {unreadable}",)
    if record is None or entry.pci not in rates:
        return None, ()
    generation = record.rates.generation
    return generation, tuple(pending_rates(entry, rates[entry.pci], generation))


def _document(rows: Sequence[LedgerRow], unreadable: Mapping[str, str]) -> dict[str, object]:
    return {"vfs": [_fields(row) for row in rows], "unreadable": dict(unreadable)}


def _fields(row: LedgerRow) -> dict[str, object]:
    entry, live = row.entry, row.live
    names = ("pci", "pf", "vf", "phase", "pod", "uid", "container", "ifname", "addresses", "rdma", "rdma_only")
    return {name: getattr(entry, name) for name in names} | {
        "netns": {"path": entry.netns.path, "alive": live.reachable},
        "wished": entry.set.to_fields(),
        "found": live.settings.to_fields() if live.settings is not None else None,
        "interface": asdict(live.interface) if live.interface is not None else None,
        "attachment": asdict(entry.attachment) if entry.attachment is not None else None,
        "drift": (*row.drift, *row.pending),
        "rates": _fields_of_rates(row),
    }


def _fields_of_rates(row: LedgerRow) -> dict[str, object] | None:
    return None if row.generation is None else {"generation": row.generation, "in_force": not row.pending}


def _table(rows: Sequence[LedgerRow], unreadable: Mapping[str, str]) -> Iterator[str]:
    if not rows and not unreadable:
        yield "no pod holds a VF"
        return
    lines = [_COLUMNS, *(_cells(row) for row in rows)]
    widths = [max(len(line[column]) for line in lines) for column in range(len(_COLUMNS))]
    for line, row in zip(lines, [None, *rows], strict=True):
        yield "  ".join(cell.ljust(width) for cell, width in zip(line, widths, strict=True)).rstrip()
        yield from (f"  ! {text}" for text in ((*row.drift, *row.pending) if row is not None else ()))
    for name, error in unreadable.items():
        yield f"  ! {name} cannot be read: {error}"


def _cells(row: LedgerRow) -> tuple[str, ...]:
    entry = row.entry
    settings = [_setting(name, value, row.live.settings) for name, value in entry.set.to_fields().items()]
    return (
        f"{entry.pf}/{entry.vf}",
        entry.pci,
        entry.pod,
        entry.phase,
        entry.ifname if entry.has_interface else "-",
        "alive" if row.live.reachable else "gone",
        ",".join(settings) or "-",
    )


def _setting(name: str, value: object, live: VfSettings | None) -> str:
    """Format a setting as requested, with the actual value if it differs."""
    live_value = getattr(live, name) if live is not None else None
    return f"{name}={_plain(value)}" + ("" if live_value == value else f" (is {_plain(live_value)})")


def _plain(value: object) -> str:
    if value is None:
        return "unknown"
    return ("on" if value else "off") if isinstance(value, bool) else str(value)

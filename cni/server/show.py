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
    found: LiveState
    drift: tuple[str, ...]
    generation: int | None = None
    pending: tuple[str, ...] = ()


def show(node: Node, *, as_json: bool) -> str:
    """Return the ledger as a table or as one JSON object; unreadable entries are listed by file name."""
    content = node.ledger.content()
    foreign = foreign_entries(node.ledger.state / ledger.FOLDER, ledger.IS_NAME)
    unreadable = {**foreign, **{name: str(why) for name, why in content.unreadable.items()}}
    shown = [_shown(node, entry) for entry in content.entries]
    nameless = _nameless(content.entries)
    if as_json:
        return json.dumps(_document(shown, unreadable) | {"nameless": nameless})
    return "\n".join((*_table(shown, unreadable), *(f"  ! {name} {_NAMELESS}" for name in nameless)))


def _nameless(entries: Sequence[LedgerEntry]) -> list[str]:
    """Return the netdevs that kept their temporary names after release, because their own names were taken."""
    taken = {temporary_name(entry.pci) for entry in entries}
    return sorted(link.name for link in netlink.links() if is_temporary(link.name) and link.name not in taken)


def _shown(node: Node, entry: LedgerEntry) -> LedgerRow:
    found = observe(node, entry)
    return LedgerRow(entry, found, differences_of(entry, found), *_rates(node, entry))


def _rates(node: Node, entry: LedgerEntry) -> tuple[int | None, tuple[str, ...]]:
    """Return the generation of a pod's changed rates, and descriptions of earlier rates that the VF still has."""
    try:
        changed = node.ledger.rates(entry.uid)
        rates = {} if changed is None else rates_by_pci(node.ledger.pod(entry.uid), changed)
    except (RecordError, OSError) as unreadable:
        return None, (f"rates cannot be read: {unreadable}",)
    if changed is None or entry.pci not in rates:
        return None, ()
    generation = changed.rates.generation
    return generation, tuple(pending_rates(entry, rates[entry.pci], generation))


def _document(shown: Sequence[LedgerRow], unreadable: Mapping[str, str]) -> dict[str, object]:
    return {"vfs": [_fields(each) for each in shown], "unreadable": dict(unreadable)}


def _fields(shown: LedgerRow) -> dict[str, object]:
    entry, found = shown.entry, shown.found
    names = ("pci", "pf", "vf", "phase", "pod", "uid", "container", "ifname", "addresses", "rdma", "rdma_only")
    return {name: getattr(entry, name) for name in names} | {
        "netns": {"path": entry.netns.path, "alive": found.reachable},
        "wished": entry.set.to_fields(),
        "found": found.settings.to_fields() if found.settings is not None else None,
        "interface": asdict(found.interface) if found.interface is not None else None,
        "attachment": asdict(entry.attachment) if entry.attachment is not None else None,
        "drift": (*shown.drift, *shown.pending),
        "rates": _fields_of_rates(shown),
    }


def _fields_of_rates(shown: LedgerRow) -> dict[str, object] | None:
    return None if shown.generation is None else {"generation": shown.generation, "in_force": not shown.pending}


def _table(shown: Sequence[LedgerRow], unreadable: Mapping[str, str]) -> Iterator[str]:
    if not shown and not unreadable:
        yield "no pod holds a VF"
        return
    rows = [_COLUMNS, *(_row(each) for each in shown)]
    widths = [max(len(row[column]) for row in rows) for column in range(len(_COLUMNS))]
    for row, each in zip(rows, [None, *shown], strict=True):
        yield "  ".join(cell.ljust(width) for cell, width in zip(row, widths, strict=True)).rstrip()
        yield from (f"  ! {text}" for text in ((*each.drift, *each.pending) if each is not None else ()))
    for name, why in unreadable.items():
        yield f"  ! {name} cannot be read: {why}"


def _row(shown: LedgerRow) -> tuple[str, ...]:
    entry = shown.entry
    settings = [_setting(name, value, shown.found.settings) for name, value in entry.set.to_fields().items()]
    return (
        f"{entry.pf}/{entry.vf}",
        entry.pci,
        entry.pod,
        entry.phase,
        entry.ifname if entry.has_interface else "-",
        "alive" if shown.found.reachable else "gone",
        ",".join(settings) or "-",
    )


def _setting(name: str, wished: object, found: VfSettings | None) -> str:
    """Format a setting as requested, with the actual value if it differs."""
    there = getattr(found, name) if found is not None else None
    return f"{name}={_plain(wished)}" + ("" if there == wished else f" (is {_plain(there)})")


def _plain(value: object) -> str:
    if value is None:
        return "unknown"
    return ("on" if value else "off") if isinstance(value, bool) else str(value)

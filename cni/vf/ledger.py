"""The ledger on disk: which sandbox has which VF, written before the first change to the VF and removed last.

`mooring.records.ledger` explains the meaning of an entry, why it suffices after a crash, and its cost.
"""

import json
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

import structlog

from mooring.errors import RecordError
from mooring.files import (
    ForeignFileError,
    read_own_file,
    read_record,
    remove_file,
    write_file,
    write_files,
    write_shared,
)
from mooring.folders import entry_names, is_record
from mooring.names import is_uid
from mooring.program.large_work import LargeWork
from mooring.records import extract, ledger, node_offer
from mooring.records.ledger import LedgerEntry
from mooring.records.node_offer import PfOffer
from mooring.records.pod_record import PodRecord, pod_record_name, read_pod_record, unprivileged_name
from mooring.records.rates_record import RatesRecord, dump_rates_record, rates_record_name, read_rates_record

_log = structlog.get_logger()
# Shared by all calls of a process: the texts that a tenant may write for each of his pods, networks and assignments.
LARGE = LargeWork()


@dataclass(frozen=True, slots=True)
class LedgerContent:
    """The entries by address, and by file name why others cannot be read; "" is the folder itself."""

    entries: Sequence[LedgerEntry]
    unreadable: Mapping[str, RecordError | OSError]


@dataclass(frozen=True, slots=True)
class Ledger:
    """The node's records below the state folder; the caller holds the VF's lock for everything that writes.

    Where the run folder has a place for extracts (`cni.server.extracts` makes it), each entry has one there.
    """

    state: Path
    run: Path | None = None

    def read(self, pci: str) -> LedgerEntry | None:
        """Return a VF's entry; raise RecordError for one that cannot be read."""
        name = ledger.ledger_name(pci)
        text = read_record(self.state / name)
        return None if text is None else ledger.read_ledger_entry(text, name)

    def write(self, *entries: LedgerEntry) -> None:
        """Put entries in place; raise RecordError for one that could not be read again: it would keep its VF."""
        texts: dict[str, str] = {}
        for entry in entries:
            name, text = ledger.ledger_name(entry.pci), ledger.dump_ledger_entry(entry)
            ledger.read_ledger_entry(text, name)
            texts[Path(name).name] = text
        write_files(self.state / ledger.FOLDER, texts)
        for entry in entries:
            self.show(entry.pci, extract.vf_extract(entry))

    def put_in_doubt(self, pci: str) -> None:
        """Enter that a PF has refused a setting of a VF: what it reports of the VF may not be in force."""
        entry = self.read(pci)
        if entry is not None and not entry.in_doubt:
            self.write(replace(entry, in_doubt=True))

    def is_in_doubt(self, pci: str) -> bool:
        """Return whether that is so; True for an entry that cannot be read."""
        try:
            entry = self.read(pci)
        except (RecordError, OSError):
            return True
        return entry is not None and entry.in_doubt

    def remove(self, pci: str) -> None:
        remove_file(self.state / ledger.ledger_name(pci))
        self.show(pci, None)

    def show(self, pci: str, text: str | None) -> None:
        """Put a VF's extract in place, or remove it; a failure is logged, and the reconciler tries again."""
        folder = None if self.run is None else self.run / extract.VFS
        if folder is None or not folder.is_dir():
            return
        path = folder / f"{pci}.json"
        try:
            if text is None:
                path.unlink(missing_ok=True)
            else:
                write_shared(path, text)
        except OSError as refused:
            _log.warning("cannot write the extract of a ledger entry", pci=pci, reason=str(refused))

    def entries(self, container: str | None = None) -> Iterator[LedgerEntry]:
        """Yield every entry, or a container's, by address; log an invalid one, since it names no sandbox.

        Raise OSError in the end if one could not be read: it may belong to any container.
        """
        content = self.content(container)
        _log_unreadable(content.unreadable)
        yield from content.entries
        for why in content.unreadable.values():
            if isinstance(why, OSError):
                raise why

    def entries_of(self, container: str, pcis: Collection[str]) -> Iterator[LedgerEntry]:
        """Yield a container's entries by address; ``pcis`` are the VFs that its pod's record names.

        Raise OSError in the end if the entry of one of these could not be read. What lies beside them says nothing of
        this container: if such an entry is its own after all, the reconciler repairs that once it can be read.
        """
        content = self.content(container)
        _log_unreadable(content.unreadable)
        yield from content.entries
        for name in ("", *(f"{pci}.json" for pci in pcis)):
            if pcis and isinstance(why := content.unreadable.get(name), OSError):
                raise why

    def content(self, container: str | None = None) -> LedgerContent:
        """Return what is in the ledger, or is a container's there, without what none of our programs has written."""
        entries: list[LedgerEntry] = []
        unreadable: dict[str, RecordError | OSError] = {}
        try:
            names = entry_names(self.state / ledger.FOLDER, ledger.IS_NAME)
        except OSError as why:
            return LedgerContent((), {"": why})
        for name in names:
            try:
                anothers = container is not None and _is_anothers(self.state / ledger.FOLDER / name, container)
                entry = None if anothers else self.read(name.removesuffix(".json"))
            except ForeignFileError:
                continue
            except (RecordError, OSError) as why:
                unreadable[name] = why
                continue
            if entry is not None:
                entries.append(entry)
        return LedgerContent(entries, unreadable)

    def pf_offer(self, pci: str) -> PfOffer | None:
        """Return what the operator decided about a PF's VFs, as `init` left it; None for a PF that is not on offer.

        Raise RecordError, or OSError if others than root may have written it.
        """
        text = read_own_file(self.state / node_offer.NAME)
        return PfOffer() if text is None else node_offer.read_node_offer(text).get(pci)

    def is_unprivileged(self, uid: str) -> bool:
        """Return whether the CRI shim notes that no container of a pod can have changed its VFs."""
        return is_record(self.state / unprivileged_name(uid))

    def pod(self, uid: str) -> PodRecord | None:
        """Return the record that the CRI shim wrote for a pod; raise RecordError for one that cannot be read.

        A uid that cannot name one has none. So has one with something in its place that the shim has not written: the
        shim forwards no pod with VFs without its record.
        """
        if not is_uid(uid):
            return None
        name = pod_record_name(uid)
        text = _text(self.state / name)
        if text is None:
            return None
        with LARGE.slot(len(text)):
            return read_pod_record(text, name)

    def rates(self, uid: str) -> RatesRecord | None:
        """Return a pod's changed rates; raise RecordError for a record that cannot be read."""
        name = rates_record_name(uid)
        text = _text(self.state / name)
        return None if text is None else read_rates_record(text, name)

    def write_rates(self, record: RatesRecord) -> None:
        """Put a pod's changed rates in place; the caller holds the locks of all the pod's VFs."""
        write_file(self.state / rates_record_name(record.rates.uid), dump_rates_record(record))


def _text(path: Path) -> str | None:
    """Return a record's text, None where none of our programs has written one."""
    try:
        return read_record(path)
    except ForeignFileError:
        return None


def _log_unreadable(unreadable: Mapping[str, RecordError | OSError]) -> None:
    for why in unreadable.values():
        _log.error("ledger entry is ignored", reason=str(why))


def _is_anothers(path: Path, container: str) -> bool:
    """Return whether a file certainly holds another container's entry; parsing each of hundreds takes longer."""
    try:
        return bool(json.loads(read_record(path) or "")["container"] != container)
    except (ValueError, TypeError, KeyError, RecursionError):
        return False

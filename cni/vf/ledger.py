"""Read and write the ledger on disk: which sandbox has which VF.

An entry is written before the first change to its VF, and removed after the last. `mooring.records.ledger` explains the
meaning of an entry, why it is sufficient after a crash, and its cost.
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
# Limits the large texts that the calls of this process parse at once; a tenant can write one for each of their pods.
LARGE = LargeWork()


@dataclass(frozen=True, slots=True)
class LedgerContent:
    """The entries by address, and the errors of unreadable ones by file name ("" for the folder itself)."""

    entries: Sequence[LedgerEntry]
    unreadable: Mapping[str, RecordError | OSError]


@dataclass(frozen=True, slots=True)
class Ledger:
    """The node's records below the state folder; callers of methods that write hold the VF's lock.

    If the run folder has a folder for extracts (`cni.server.extracts` creates it), each entry has an extract there.
    """

    state: Path
    run: Path | None = None

    def read(self, pci: str) -> LedgerEntry | None:
        """Return a VF's entry; raise RecordError for one that cannot be read."""
        name = ledger.ledger_name(pci)
        text = read_record(self.state / name)
        if text is None:
            return None
        return replace(ledger.read_ledger_entry(text, name), in_doubt=is_record(self._doubt(pci)))

    def write(self, *entries: LedgerEntry) -> None:
        """Write entries; raise RecordError for an entry that could not be read again, because it would block its VF."""
        texts: dict[str, str] = {}
        for entry in entries:
            name, text = ledger.ledger_name(entry.pci), ledger.dump_ledger_entry(entry)
            ledger.read_ledger_entry(text, name)
            texts[Path(name).name] = text
        for entry in entries:
            if entry.in_doubt and not is_record(self._doubt(entry.pci)):
                write_file(self._doubt(entry.pci), "")
        write_files(self.state / ledger.FOLDER, texts)
        for entry in entries:
            if not entry.in_doubt:
                self._end_doubt(entry.pci)
            self.show(entry.pci, extract.vf_extract(entry))

    def put_in_doubt(self, pci: str) -> None:
        """Record that the PF refused a setting of a VF, so that the settings it reports may not be in force."""
        entry = self.read(pci)
        if entry is not None and not entry.in_doubt:
            self.write(replace(entry, in_doubt=True))

    def is_in_doubt(self, pci: str) -> bool:
        """Return whether a VF is in doubt (`put_in_doubt`); True if its entry cannot be read."""
        try:
            entry = self.read(pci)
        except (RecordError, OSError):
            return True
        return entry is not None and entry.in_doubt

    def remove(self, pci: str) -> None:
        remove_file(self.state / ledger.ledger_name(pci))
        self._end_doubt(pci)
        self.show(pci, None)

    def show(self, pci: str, text: str | None) -> None:
        """Write the extract of a VF, or remove it if ``text`` is None; log failures, which the reconciler repairs."""
        folder = None if self.run is None else self.run / extract.VFS
        if folder is None or not folder.is_dir():
            return
        path = folder / f"{pci}.json"
        try:
            if text is None:
                path.unlink(missing_ok=True)
            else:
                write_shared(path, text)
        except OSError as error:
            _log.warning("cannot write the extract of a ledger entry", pci=pci, reason=str(error))

    def entries(self, container: str | None = None) -> Iterator[LedgerEntry]:
        """Yield all entries, or those of a container, by address; log invalid ones, whose sandbox is unknown.

        Raise OSError at the end if an entry could not be read, because it may belong to any container.
        """
        content = self.content(container)
        _log_unreadable(content.unreadable)
        yield from content.entries
        for error in content.unreadable.values():
            if isinstance(error, OSError):
                raise error

    def entries_of(self, container: str, pcis: Collection[str]) -> Iterator[LedgerEntry]:
        """Yield a container's entries by address; ``pcis`` are the VFs in the record of its pod.

        Raise OSError at the end if the entry of one of these VFs could not be read. Other unreadable entries do not
        matter: should one belong to this container, the reconciler repairs it once it can be read.
        """
        content = self.content(container)
        _log_unreadable(content.unreadable)
        yield from content.entries
        for name in ("", *(f"{pci}.json" for pci in pcis)):
            if pcis and isinstance(error := content.unreadable.get(name), OSError):
                raise error

    def content(self, container: str | None = None) -> LedgerContent:
        """Return the contents of the ledger, or those of a container; files that Mooring did not write are skipped."""
        entries: list[LedgerEntry] = []
        unreadable: dict[str, RecordError | OSError] = {}
        try:
            names = entry_names(self.state / ledger.FOLDER, ledger.IS_NAME)
        except OSError as error:
            return LedgerContent((), {"": error})
        for name in names:
            try:
                is_skipped = container is not None and _has_other_container(
                    self.state / ledger.FOLDER / name, container
                )
                entry = None if is_skipped else self.read(name.removesuffix(".json"))
            except ForeignFileError:
                continue
            except (RecordError, OSError) as error:
                unreadable[name] = error
                continue
            if entry is not None:
                entries.append(entry)
        return LedgerContent(entries, unreadable)

    def pf_offer(self, pci: str) -> PfOffer | None:
        """Return the operator's offer for the VFs of a PF, as `init` stored it; None for a PF that is not on offer.

        Raise RecordError, or OSError if users other than root may have written it.
        """
        text = read_own_file(self.state / node_offer.NAME)
        return PfOffer() if text is None else node_offer.read_node_offer(text).get(pci)

    def is_unprivileged(self, uid: str) -> bool:
        """Return whether the CRI shim recorded that no container of a pod could change its VFs."""
        return is_record(self.state / unprivileged_name(uid))

    def pod(self, uid: str) -> PodRecord | None:
        """Return the record that the CRI shim wrote for a pod, None without one; raise RecordError if it is unreadable.

        An invalid uid has no record. Neither has a pod with a file at that path that the shim did not write: the shim
        forwards no pod with VFs without writing its record.
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
        """Write the changed rates of a pod; the caller holds the locks of all VFs of the pod."""
        write_file(self.state / rates_record_name(record.rates.uid), dump_rates_record(record))

    def _doubt(self, pci: str) -> Path:
        return self.state / ledger.doubt_name(pci)

    def _end_doubt(self, pci: str) -> None:
        if is_record(self._doubt(pci)):
            remove_file(self._doubt(pci))


def _text(path: Path) -> str | None:
    """Return the text of a record, None if Mooring did not write it."""
    try:
        return read_record(path)
    except ForeignFileError:
        return None


def _log_unreadable(unreadable: Mapping[str, RecordError | OSError]) -> None:
    for error in unreadable.values():
        _log.error("ledger entry is ignored", reason=str(error))


def _has_other_container(path: Path, container: str) -> bool:
    """Return whether a file surely has another container's entry; this is faster than parsing hundreds of entries."""
    try:
        return bool(json.loads(read_record(path) or "")["container"] != container)
    except (ValueError, TypeError, KeyError, RecursionError):
        return False

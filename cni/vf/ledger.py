"""The ledger on disk: which sandbox has which VF, written before the first change to the VF and removed last.

`mooring.records.ledger` explains the meaning of an entry, why it suffices after a crash, and its cost.
"""

import json
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

import structlog

from cni.vf.large_texts import LARGE
from mooring.errors import RecordError
from mooring.files import read_file, read_own_file, record_paths, remove_file, write_file, write_files, write_shared
from mooring.records import extract, ledger, node_offer
from mooring.records.ledger import LedgerEntry
from mooring.records.node_offer import PfOffer
from mooring.records.pod_record import PodRecord, pod_record_name, read_pod_record, unprivileged_name
from mooring.records.rates_record import RatesRecord, dump_rates_record, rates_record_name, read_rates_record

_log = structlog.get_logger()


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
        text = read_file(self.state / name)
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
            _log.warning("extract of a ledger entry is not written", pci=pci, reason=str(refused))

    def entries(self, container: str | None = None) -> Iterator[LedgerEntry]:
        """Yield every entry, or a container's, by address; log an invalid one, since it names no sandbox.

        Raise OSError in the end if one could not be read: it may belong to any container.
        """
        readable, unreadable = self.whole(container)
        for why in unreadable.values():
            _log.error("ledger entry is passed over", reason=str(why))
        yield from readable
        for why in unreadable.values():
            if isinstance(why, OSError):
                raise why

    def whole(self, container: str | None = None) -> tuple[Sequence[LedgerEntry], Mapping[str, RecordError | OSError]]:
        """Return every entry, or a container's, by address, and by file name why others cannot be read."""
        readable: list[LedgerEntry] = []
        unreadable: dict[str, RecordError | OSError] = {}
        for path in record_paths(self.state / ledger.FOLDER):
            try:
                entry = None if _is_anothers(path, container) else self.read(path.stem)
            except (RecordError, OSError) as why:
                unreadable[path.name] = why
                continue
            if entry is not None:
                readable.append(entry)
        return readable, unreadable

    def pf_offer(self, pci: str) -> PfOffer | None:
        """Return what the operator decided about a PF's VFs, as `init` left it; None for a PF that is not on offer.

        Raise RecordError, or OSError if others than root may have written it.
        """
        text = read_own_file(self.state / node_offer.NAME)
        return PfOffer() if text is None else node_offer.read_node_offer(text).get(pci)

    def is_unprivileged(self, uid: str) -> bool:
        """Return whether the CRI shim notes that no container of a pod can have changed its VFs."""
        return (self.state / unprivileged_name(uid)).exists()

    def pod(self, uid: str) -> PodRecord | None:
        """Return the record that the CRI shim wrote for a pod; raise RecordError for one that cannot be read."""
        name = pod_record_name(uid)
        text = read_file(self.state / name)
        if text is None:
            return None
        with LARGE.turn(len(text)):
            return read_pod_record(text, name)

    def rates(self, uid: str) -> RatesRecord | None:
        """Return a pod's changed rates; raise RecordError for a record that cannot be read."""
        name = rates_record_name(uid)
        text = read_file(self.state / name)
        return None if text is None else read_rates_record(text, name)

    def write_rates(self, record: RatesRecord) -> None:
        """Put a pod's changed rates in place; the caller holds the locks of all the pod's VFs."""
        write_file(self.state / rates_record_name(record.rates.uid), dump_rates_record(record))


def _is_anothers(path: Path, container: str | None) -> bool:
    """Return whether a file certainly holds another container's entry; parsing each of hundreds takes longer."""
    try:
        return container is not None and json.loads(read_file(path) or "")["container"] != container
    except (ValueError, TypeError, KeyError, RecursionError):
        return False

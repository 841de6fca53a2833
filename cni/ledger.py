"""The ledger on disk: who has which VF, written before the first change to the VF and removed last."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

import structlog

from mooring import ledger
from mooring.errors import RecordError
from mooring.files import read_file, record_paths, remove_file, write_file
from mooring.ledger import LedgerEntry
from mooring.podrecord import PodRecord, pod_record_name, read_pod_record

_log = structlog.get_logger()


@dataclass(frozen=True, slots=True)
class Ledger:
    """The node's records below the state folder; the caller holds the VF's lock for everything that writes."""

    state: Path

    def read(self, pci: str) -> LedgerEntry | None:
        """Return a VF's entry; raise RecordError for one that cannot be read."""
        name = ledger.ledger_name(pci)
        text = read_file(self.state / name)
        return None if text is None else ledger.read_ledger_entry(text, name)

    def write(self, entry: LedgerEntry) -> None:
        write_file(self.state / ledger.ledger_name(entry.pci), ledger.dump_ledger_entry(entry))

    def remove(self, pci: str) -> None:
        remove_file(self.state / ledger.ledger_name(pci))

    def entries(self) -> Iterator[LedgerEntry]:
        """Yield every entry by address; one that cannot be read is logged and passed over, since it names nobody."""
        readable, unreadable = self.whole()
        for reason in unreadable.values():
            _log.error("ledger entry is passed over", reason=reason)
        yield from readable

    def whole(self) -> tuple[Sequence[LedgerEntry], Mapping[str, str]]:
        """Return every entry by address, and why each of the others cannot be read, by its file's name."""
        readable: list[LedgerEntry] = []
        unreadable: dict[str, str] = {}
        for path in record_paths(self.state / ledger.FOLDER):
            try:
                entry = self.read(path.stem)
            except (RecordError, OSError) as why:
                unreadable[path.name] = str(why)
                continue
            if entry is not None:
                readable.append(entry)
        return readable, unreadable

    def pod(self, uid: str) -> PodRecord | None:
        """Return the record that the CRI shim wrote for a pod; raise RecordError for one that cannot be read."""
        name = pod_record_name(uid)
        text = read_file(self.state / name)
        return None if text is None else read_pod_record(text, name)

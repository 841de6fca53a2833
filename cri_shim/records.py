"""Read and write pod records and sandbox marks, which the shim owns, and read the ledger.

The shim also writes an extract of each pod record for the advertiser, if the run folder has a folder for extracts. The
extract is removed before the record, when the kubelet stops the pod's sandbox: a pod that still holds a VF after that
should be gone.
"""

import os
import zlib
from collections.abc import Collection
from contextlib import AbstractContextManager, suppress
from dataclasses import dataclass
from importlib.metadata import version
from pathlib import Path

import structlog

from mooring.files import ForeignFileError, is_text_of, read_record, remove_file, write_file, write_shared
from mooring.folders import is_record, record_names
from mooring.locks import hold
from mooring.names import is_uid
from mooring.records import sandbox_marks
from mooring.records.extract import PODS as FOLDER_OF_EXTRACTS
from mooring.records.extract import pod_extract
from mooring.records.ledger import LedgerEntry, ledger_name, read_ledger_entry
from mooring.records.pod_record import (
    FOLDER,
    IS_NAME,
    IS_NOTE,
    PodRecord,
    dump_pod_record,
    pod_record_name,
    read_pod_record,
    unprivileged_name,
)
from mooring.records.runtime_handlers import NAME as HANDLERS
from mooring.records.runtime_handlers import dump_runtime_handlers

# Number of lock files. They are never removed, so pods share a fixed number of them.
_LOCKS = 64
_LOCK_S = 30.0
_log = structlog.get_logger()


@dataclass(frozen=True, slots=True)
class Records:
    """The records below ``state``, and marks and extracts below ``run``; every method raises RecordError or OSError."""

    state: Path
    run: Path

    def begin(self) -> None:
        """Record this program's version, and that it marks its calls."""
        sandbox_marks.promise_marks(self.state, self.run, version("mooring"))

    def show_handlers(self, handlers: Collection[str]) -> None:
        """Write which runtime handlers' pods get VFs, where there is a place for it."""
        path, text = self.run / HANDLERS, dump_runtime_handlers(handlers)
        if path.parent.is_dir() and not is_text_of(path, text):
            write_shared(path, text)

    def mark_call(self, uid: str) -> AbstractContextManager[None]:
        """Mark that a RunPodSandbox call of a pod is in progress while the block runs."""
        return sandbox_marks.mark_call(self.run, uid)

    def pod(self, uid: str) -> PodRecord | None:
        """Return the record of a pod; None without one, for an invalid uid, or if Mooring did not write the file."""
        if not is_uid(uid):
            return None
        name = pod_record_name(uid)
        try:
            text = read_record(self.state / name)
        except ForeignFileError:
            return None
        return None if text is None else read_pod_record(text, name)

    def size(self, uid: str) -> int:
        """Return the size of a pod's record in bytes; 0 without one."""
        try:
            return (self.state / pod_record_name(uid)).lstat().st_size if is_uid(uid) else 0
        except FileNotFoundError:
            return 0

    def write_pod(self, record: PodRecord) -> bool:
        """Write a pod's record; return False if another shim has already written it.

        The note that no container of the pod could change its VFs is written first, because there is no container yet.
        """
        uid = record.assignment.uid
        with self._record_lock(uid):
            if is_record(self.state / pod_record_name(uid)):
                return False
            write_file(self.state / unprivileged_name(uid), "")
            write_file(self.state / pod_record_name(uid), dump_pod_record(record))
        self.show_pod(record)
        return True

    def _record_lock(self, uid: str) -> AbstractContextManager[int]:
        """Hold the lock for writing and removing a pod's record: during a handover two shims have calls."""
        return hold(self.run, f"pods-{zlib.crc32(uid.encode()) % _LOCKS:02}", _LOCK_S)

    def remove_unprivileged_note(self, uid: str) -> None:
        """Remove a pod's note durably, before a container that can change its VFs is created."""
        if os.path.lexists(note := self.state / unprivileged_name(uid)):
            remove_file(note)

    def show_pod(self, record: PodRecord) -> None:
        """Write the extract of a record if it is missing, because its pod runs here; log failures."""
        path = self._extract(record.assignment.uid)
        try:
            if path.parent.is_dir() and not is_record(path):
                write_shared(path, pod_extract(record))
        except OSError as error:
            _log.warning("cannot write the extract of a pod record", pod=record.pod, reason=str(error))

    def hide_pod(self, uid: str) -> None:
        """Remove the extract of a pod that ends; its record stays until its sandbox is gone."""
        # A folder at its path is not an extract.
        with suppress(IsADirectoryError):
            self._extract(uid).unlink(missing_ok=True)

    def _extract(self, uid: str) -> Path:
        return self.run / FOLDER_OF_EXTRACTS / f"{uid}.json"

    def remove_pod(self, uid: str) -> bool:
        """Remove a pod's record; return False if a shim is creating a sandbox of that pod."""
        with self._record_lock(uid):
            if sandbox_marks.is_marked(self.run, uid):
                return False
            self.hide_pod(uid)
            remove_file(self.state / pod_record_name(uid))
            remove_file(self.state / unprivileged_name(uid))
            return True

    def pods(self) -> frozenset[str]:
        """Return the uids of pods with a record or a note, readable or not."""
        names = record_names(self.state / FOLDER, lambda name: IS_NAME(name) or IS_NOTE(name))
        return frozenset(name.partition(".")[0] for name in names)

    def vf(self, pci: str) -> LedgerEntry | None:
        name = ledger_name(pci)
        text = read_record(self.state / name)
        return None if text is None else read_ledger_entry(text, name)

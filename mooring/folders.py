"""Folders of records, in which anything may lie: what another program, a restore or a person has left there.

A record is a file that one of these programs has written: a regular one with a name of its folder, of root or this
process' user, no larger than a document may be. Everything else is foreign. It is passed over, never opened, and
reported (`mooring.records.foreign_entries`). Names that begin with a dot are those of interrupted writes.
"""

import errno
import os
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from itertools import islice
from pathlib import Path

from mooring.files import is_nowhere, read_record, why_foreign

IsName = Callable[[str], bool]
# The names in a folder that are looked at, and the files of them: no node has as many VFs or pods.
_MOST_ENTRIES, _MOST_RECORDS = 1 << 20, 1 << 14


@dataclass(frozen=True, slots=True)
class Listing:
    """The names of a folder's records, and why each other entry is none, by name; "" is the folder itself."""

    records: tuple[str, ...] = ()
    foreign: Mapping[str, str] = field(default_factory=dict)


def list_folder(folder: Path, is_name: IsName) -> Listing:
    """Look at a folder's entries without opening any; an absent folder is empty. Raise OSError."""
    records: list[str] = []
    foreign: dict[str, str] = {}
    names, excess = _names(folder, lambda name: name[0] != ".")
    for name in names:
        why: OSError | None
        try:
            why = why_foreign(folder / name)
        except FileNotFoundError:
            continue
        except OSError as unknown:
            why = unknown
        if why is None and is_name(name):
            records.append(name)
        else:
            foreign[printable(name)] = "not a name of this folder" if why is None else str(why.strerror)
    if excess is not None:
        foreign[""] = str(excess.strerror)
    return Listing(tuple(records), foreign)


def entry_names(folder: Path, is_name: IsName) -> tuple[str, ...]:
    """Return the names of a folder's entries, records or not; raise OSError."""
    return tuple(_names(folder, is_name)[0])


def record_names(folder: Path, is_name: IsName) -> tuple[str, ...]:
    """Return the names of a folder's records; raise OSError."""
    return tuple(name for name in _names(folder, is_name)[0] if is_record(folder / name))


def is_record(path: Path) -> bool:
    """Return whether a record is at a path, readable or not."""
    try:
        return why_foreign(path) is None
    except OSError:
        return False


def read_folder(folder: Path, is_name: IsName) -> Iterator[tuple[str, str | OSError]]:
    """Yield each entry that has a name of this folder, with its text or why it cannot be read; raise OSError.

    A file that vanishes meanwhile is not yielded. In the end come, as one without a name, those that are too many.
    """
    names, excess = _names(folder, is_name)
    for name in names:
        try:
            text = read_record(folder / name)
        except OSError as unreadable:
            yield name, unreadable
            continue
        if text is not None:
            yield name, text
    if excess is not None:
        yield "", excess


def _names(folder: Path, is_name: IsName) -> tuple[list[str], OSError | None]:
    """Return names in a folder, sorted, and an error if it has too many."""
    try:
        with os.scandir(folder) as entries:
            named = (entry.name for entry in islice(entries, _MOST_ENTRIES) if is_name(entry.name))
            names = list(islice(named, _MOST_RECORDS + 1))
            is_whole = len(names) <= _MOST_RECORDS and next(entries, None) is None
    except OSError as refused:
        if is_nowhere(refused):
            return [], None
        raise
    excess = OSError(errno.EFBIG, "too many entries", str(folder))
    return sorted(names[:_MOST_RECORDS]), None if is_whole else excess


def printable(name: str) -> str:
    """Return a file's name as it can be written into a log or an annotation: bytes other than UTF-8 are escaped."""
    return name.encode(errors="backslashreplace").decode()

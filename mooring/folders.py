"""Read folders of records, which may also contain files of other programs, restores or people.

A record is a file that one of these programs has written: a regular file with a valid name, owned by root or this
process's user, within the size limit. Everything else is foreign: it is skipped, never opened, and reported. Names that
begin with a dot belong to interrupted writes.
"""

import errno
import os
from collections.abc import Callable, Iterator, Mapping
from itertools import islice
from pathlib import Path

from mooring.files import is_nowhere, read_record, why_foreign

IsName = Callable[[str], bool]
# The most names, and the most records of a folder that are read: far more than a node has VFs or pods.
_MOST_ENTRIES, _MOST_RECORDS = 1 << 20, 1 << 14


def foreign_entries(folder: Path, is_name: IsName) -> Mapping[str, str]:
    """Return why entries of a folder are foreign, by printable name; the name "" is the folder itself."""
    reasons: dict[str, str] = {}
    try:
        names, excess = _names(folder, lambda name: name[0] != ".")
    except OSError as error:
        return {"": str(error.strerror)}
    for name in names:
        why: OSError | None
        try:
            why = why_foreign(folder / name)
        except FileNotFoundError:
            continue
        except OSError as error:
            why = error
        if why is not None:
            reasons[printable(name)] = str(why.strerror)
        elif not is_name(name):
            reasons[printable(name)] = "not a name of this folder"
    return reasons | ({} if excess is None else {"": str(excess.strerror)})


def entry_names(folder: Path, is_name: IsName) -> tuple[str, ...]:
    """Return the valid names in a folder, of records or not; raise OSError, also if there are too many."""
    names, excess = _names(folder, is_name)
    if excess is not None:
        raise excess
    return tuple(names)


def record_names(folder: Path, is_name: IsName) -> tuple[str, ...]:
    """Return the names of a folder's records; raise OSError."""
    return tuple(name for name in _names(folder, is_name)[0] if is_record(folder / name))


def is_record(path: Path) -> bool:
    """Return whether the entry at a path is a record, valid or not."""
    try:
        return why_foreign(path) is None
    except OSError:
        return False


def read_folder(folder: Path, is_name: IsName) -> Iterator[tuple[str, str | OSError]]:
    """Yield each entry with a valid name, and its text or the error why it cannot be read; raise OSError.

    Files that disappear meanwhile are skipped. If there are too many entries, the last item has an empty name and the
    error.
    """
    names, excess = _names(folder, is_name)
    for name in names:
        try:
            text = read_record(folder / name)
        except OSError as error:
            yield name, error
            continue
        if text is not None:
            yield name, text
    if excess is not None:
        yield "", excess


def _names(folder: Path, is_name: IsName) -> tuple[list[str], OSError | None]:
    """Return the sorted names in a folder, and an error if there are too many."""
    try:
        with os.scandir(folder) as entries:
            valid_names = (entry.name for entry in islice(entries, _MOST_ENTRIES) if is_name(entry.name))
            names = list(islice(valid_names, _MOST_RECORDS + 1))
            is_whole = len(names) <= _MOST_RECORDS and next(entries, None) is None
    except OSError as error:
        if is_nowhere(error):
            return [], None
        raise
    excess = OSError(errno.EFBIG, "too many entries", str(folder))
    return sorted(names[:_MOST_RECORDS]), None if is_whole else excess


def printable(name: str) -> str:
    """Return a file name for a log or an annotation: bytes that are not UTF-8 are escaped."""
    return name.encode(errors="backslashreplace").decode()

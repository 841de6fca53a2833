"""Keep a journal of changes on a host, written before each change, so that a killed run can be continued or undone.

The journal is one JSON file that only root can read. ``settled`` are the changes of completed runs, which `remove`
undoes. ``open`` are the changes of a run that has not completed, null without one. Both are lists of
``[step, change]``.
"""

import json
from collections.abc import Iterable
from dataclasses import dataclass, replace
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

from cli.node.apply import put
from cli.node.errors import NodeError
from cli.node.look import below
from cli.node.plan.states import Change, File, from_json, merge, to_json
from mooring.files import read_file
from mooring.parsing import decode

FILE = "/var/lib/mooring/install/journal.json"
_ROOT_ONLY = 0o600
Entries = tuple[tuple[str, Change], ...]


@dataclass(frozen=True, slots=True)
class Journal:
    """The changes of a host by step; ``open`` is None if no run is in progress or was killed."""

    settled: Entries = ()
    open: Entries | None = None

    def begun(self, step: str, changes: Iterable[Change]) -> "Journal":
        """Return the journal with changes of a step that are about to be made."""
        return replace(self, open=_joined(self.open or (), ((step, change) for change in changes)))

    def ended(self) -> "Journal":
        """Return the journal of a completed run."""
        return Journal(_joined(self.settled, self.open or ()))

    def whole(self) -> Entries:
        return _joined(self.settled, self.open or ())


def read(root: Path) -> Journal | None:
    """Return a host's journal, None without one; raise NodeError if it cannot be read."""
    path = _path(root)
    try:
        if (text := read_file(path)) is None:
            return None
        document = decode(text)
        if document["v"] != 1:
            raise ValueError(f"version {document['v']!r} is not 1")
        opened = document["open"]
        return Journal(_entries(document["settled"]), None if opened is None else _entries(opened))
    except (OSError, ValueError, KeyError, TypeError, AttributeError) as wrong:
        raise NodeError(f"journal {str(path)!r} cannot be read: {wrong!r}") from wrong


def open_since(root: Path, now: datetime) -> timedelta:
    """Return how long ago an open run last wrote the journal; `timedelta.max` without an open run."""
    journal = read(root)
    if journal is None or journal.open is None:
        return timedelta.max
    return now - datetime.fromtimestamp(_path(root).stat().st_mtime, UTC)


def write(root: Path, journal: Journal) -> None:
    opened = None if journal.open is None else _lists(journal.open)
    document = {"v": 1, "settled": _lists(journal.settled), "open": opened}
    put(_path(root), File(json.dumps(document, indent=1), _ROOT_ONLY))


def remove(root: Path) -> None:
    put(_path(root), None)


def _path(root: Path) -> Path:
    return below(root, FILE)


def _joined(entries: Entries, later: Iterable[tuple[str, Change]]) -> Entries:
    """Return the entries with later ones merged into those of the same step."""
    for step, change in later:
        own = tuple(known for name, known in entries if name == step)
        merged = merge(own, change)
        if len(merged) > len(own):
            entries = (*entries, (step, change))
        else:
            rest = iter(merged)
            entries = tuple((name, next(rest) if name == step else known) for name, known in entries)
    return entries


def _entries(listed: list[list[Any]]) -> Entries:
    return tuple((str(step), from_json(change)) for step, change in listed)


def _lists(entries: Entries) -> list[list[object]]:
    return [[step, to_json(change)] for step, change in entries]

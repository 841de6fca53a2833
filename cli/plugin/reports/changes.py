"""What has changed between two answers of a command: rows of its table, or items of its document. Pure.

The events have the names that `kubectl get -w --output-watch-events` shows.
"""

from collections import Counter
from collections.abc import Hashable, Iterable, Mapping, Sequence
from typing import Generic, Literal, NamedTuple, TypeVar

from cli.plugin.reports.tables import Answer, Cell, Layout, Table, Tone, draw_head, draw_row, layout_of

Event = Literal["ADDED", "MODIFIED", "DELETED"]
T = TypeVar("T")
_TONES: Mapping[Event, Tone] = {"ADDED": "good", "MODIFIED": "", "DELETED": "faint"}


class Change(NamedTuple, Generic[T]):
    """A row or item as it is now, or as it was last if it is ``DELETED``."""

    event: Event
    value: T


class Changes(Generic[T]):
    """What differs from one state to the next, where each state is a list of values with their identities."""

    def __init__(self) -> None:
        self._last: dict[Hashable, T] = {}

    def until(self, values: Iterable[tuple[Hashable, T]]) -> list[Change[T]]:
        """Return the changes from the last state to this one; equal identities are distinguished by their order."""
        last, self._last = self._last, _numbered(values)
        gone = [Change[T]("DELETED", value) for identity, value in last.items() if identity not in self._last]
        return gone + [
            Change("MODIFIED" if identity in last else "ADDED", value)
            for identity, value in self._last.items()
            if identity not in last or last[identity] != value
        ]


def _numbered(values: Iterable[tuple[Hashable, T]]) -> dict[Hashable, T]:
    seen = Counter[Hashable]()
    numbered: dict[Hashable, T] = {}
    for identity, value in values:
        numbered[identity, seen[identity]] = value
        seen[identity] += 1
    return numbered


class RowChanges:
    """The rows of an answer's one table that change, as lines below one head. A column never becomes narrower."""

    def __init__(self, *, coloured: bool, headers: bool = True) -> None:
        self._headers = headers
        self._changes = Changes[Sequence[Cell]]()
        self._coloured = coloured
        self._layout: Layout | None = None

    def lines(self, answer: Answer) -> list[str]:
        """Return a line for each row that differs from the last answer's; all rows of the first one."""
        (table,) = answer.tables
        where = [table.columns.index(name) for name in table.identity]
        changes = self._changes.until((tuple(row[at].text for at in where), row) for row in table.rows)
        rows = [(Cell(event, _TONES[event]), *row) for event, row in changes]
        columns = ("EVENT", *table.columns)
        if not rows:
            return []
        head = [] if self._layout or not self._headers else [columns]
        self._layout = _wider(self._layout, layout_of(Table(columns, rows)))
        lines = [draw_head(names, self._layout, coloured=self._coloured) for names in head]
        return lines + [draw_row(row, self._layout, coloured=self._coloured) for row in rows]


def _wider(known: Layout | None, layout: Layout) -> Layout:
    if known is None:
        return layout
    return Layout(
        tuple(map(max, known.widths, layout.widths)),
        tuple(one and other for one, other in zip(known.right, layout.right, strict=True)),
    )


class ItemChanges:
    """The items of an answer's document that change, as the objects of a watch: ``type`` and ``object``."""

    def __init__(self) -> None:
        self._changes = Changes[Mapping[str, object]]()

    def objects(self, answer: Answer) -> list[dict[str, object]]:
        """Return an object for each item that differs from the last answer's."""
        items = answer.document["items"]
        assert isinstance(items, list), "a command that is watched has items"
        identified = ((tuple(item[name] for name in answer.identity), item) for item in items)
        return [{"type": event, "object": item} for event, item in self._changes.until(identified)]

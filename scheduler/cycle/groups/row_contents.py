"""What nodes had left at one moment, to tell later which of them have as much again. Pure.

Two groups that are decided about at the same time take turns, and each takes its members off the cache when the other
goes on. So each finds the rows changed on which the other has tried its members, though they are as they were. Where a
member has rules about other pods, or volumes, more than this is read, and each change of a row counts.
"""

from collections.abc import Iterable
from typing import Any

from scheduler.cache.column import Column
from scheduler.cache.node_columns import NodeColumns


class RowContents:
    """What pods use of each row, its free VFs and units of other kinds, and what may be given of its PFs."""

    def __init__(self, nodes: NodeColumns) -> None:
        self._nodes = nodes
        self._renewed = nodes.renewals.end
        self._used = [nodes.used_of(row) for row in range(nodes.size)]
        self._free_vfs = nodes.free_vfs_of_row.copy()
        columns: list[Column[Any]] = [nodes.ports, nodes.offers, *nodes.unit_pools.values()]
        self._columns = [_Values(column) for column in columns]

    def differing(self, rows: Iterable[int]) -> list[int]:
        """Return the rows that are not as they were: what a node is counts as another, whatever it was before."""
        renewed = set(self._nodes.renewals.since(self._renewed))
        return [row for row in rows if row in renewed or not self._is_same(row)]

    def _is_same(self, row: int) -> bool:
        nodes = self._nodes
        return (
            nodes.used_of(row) == self._used[row]
            and nodes.free_vfs_of_row[row] == self._free_vfs[row]
            and all(column.is_same(row) for column in self._columns)
        )


class _Values:
    """A column's values as they were; a number may mean another value by now."""

    def __init__(self, column: Column[Any]) -> None:
        self._column = column
        self._ids = column.ids.copy()
        self._values = column.values.copy()

    def is_same(self, row: int) -> bool:
        return bool(self._column[row] == self._values[self._ids[row]])

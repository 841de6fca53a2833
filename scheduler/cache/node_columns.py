"""The nodes as columns: a struct of arrays, one row a node, so that a plugin judges thousands of nodes at once.

What it is: a fact that many nodes share (a label's value, a set of taints, a list of PFs) is dictionary-encoded. A
`Column` holds an integer for each row and each distinct value once; a plugin judges each distinct value once, in plain
Python, and the judgements are spread over the rows by index. Amounts are two integer matrices with a line for each
resource and a row for each node: what the node can give, and what its pods leave of it.

Why it is right:

- A row belongs to one node until that node is deleted. Then `valid` is false, and the next new node takes the row. Rows
  never move, so a row number that somebody keeps means the same node until `renewals` names that row.
- Every change notes its row in a `Journal`, which numbers the changes. Whoever derives something from rows keeps the
  number `end` and asks later which rows have changed `since`. The journal holds the last change of each row only: it
  never outgrows the rows, and a reader misses nothing however late it asks.
- A judgement depends on the value alone, so that rows with equal values can share it.
- Line 0 is never written: a resource that no node has and no pod uses reads as 0 on every row.
- Only `Cache` writes (and `UnitPools`, a part of it). Its `check` derives every row again from the node and its pods.

What it costs: a change of a pod or a node is written to one row, and `since` takes time for the changed rows only. A
plugin over all nodes is a few numpy calls, each of which costs as much for one row as for a hundred; for a single row
plain integers are cheaper (`RowView`). A label or an image gets a column when a pod first names it, in one pass over
the nodes. The memory is 4 bytes a row and column, and 16 bytes a row and resource. A column that has over twice as many
values as rows drops those that no row has, so that its size stays bounded.
"""

from collections.abc import Callable, Hashable, Iterable, Mapping
from typing import Any, Generic

import numpy as np
from numpy.typing import NDArray

from mooring.inventory import Pf
from scheduler.cache.node_info import NodeInfo
from scheduler.cache.node_view import BatchView, Fact, RowView
from scheduler.cache.node_view import Rows as Rows
from scheduler.kube.objects import Taint
from scheduler.kube.pod_info import HostPort
from scheduler.kube.pod_resources import SCORED
from scheduler.placement.vf_accounting import EMPTY, FreeVfs

Flags = NDArray[np.bool_]
Amounts = NDArray[np.int64]
_SMALLEST = 64
_FIRST_LINES = 16
# The lines that every node has. Line 0 stays empty: it stands for any resource that no node has and no pod uses. VFs
# and the Mb/s that no VF reserves come from the PFs, not from what a node publishes.
SCORED_CPU, SCORED_MEMORY, CPU, MEMORY, PODS, VFS, MBPS = range(1, 8)
_RESOURCE_LINES = {
    SCORED["cpu"]: SCORED_CPU,
    SCORED["memory"]: SCORED_MEMORY,
    "cpu": CPU,
    "memory": MEMORY,
    "pods": PODS,
}
_FIRST_OWN_LINE = 8
# At most so many labels and images that pods name are kept as columns; beyond that all are dropped and built on demand.
_MOST_COLUMNS = 1024


class Column(Generic[Fact]):
    """A fact of each row, each distinct value kept once."""

    def __init__(self, capacity: int, empty: Fact) -> None:
        self.ids: NDArray[np.int32] = np.zeros(capacity, np.int32)
        self.values: list[Fact] = [empty]
        self._ids_of: dict[Fact, int] = {empty: 0}

    def __getitem__(self, row: int) -> Fact:
        value: Fact = self.values[self.ids[row]]
        return value

    def __setitem__(self, row: int, value: Fact) -> None:
        number = self._ids_of.get(value)
        if number is None:
            if len(self.values) > 2 * len(self.ids) + _SMALLEST:
                self._compact()
            number = self._ids_of[value] = len(self.values)
            self.values.append(value)
        self.ids[row] = number

    def grow(self, capacity: int) -> None:
        self.ids = _grown(self.ids, (capacity,))

    def spread(self, judge: Callable[[Fact], int], rows: Rows) -> Amounts:
        """Judge each distinct value of these rows once; return a judgement for each row."""
        ids = self.ids[rows]
        if len(ids) == 1:
            return np.array((judge(self.values[ids[0]]),), np.int64)
        present = np.zeros(len(self.values), np.bool_)
        present[ids] = True
        judged = np.zeros(len(self.values), np.int64)
        for number in np.flatnonzero(present):
            judged[number] = judge(self.values[number])
        return judged[ids]

    def _compact(self) -> None:
        """Drop the values that no row has any more."""
        # The empty value keeps the number 0.
        used, ids = np.unique(np.append(self.ids, 0), return_inverse=True)
        self.values = [self.values[number] for number in used]
        self.ids = ids[:-1].astype(np.int32)
        self._ids_of = {value: number for number, value in enumerate(self.values)}


class Journal:
    """Which rows changed, each with the number of its last change, in that order."""

    __slots__ = ("_last", "end")

    def __init__(self) -> None:
        # The number of the next change.
        self.end = 0
        self._last: dict[int, int] = {}

    def note(self, row: int) -> None:
        self._last.pop(row, None)
        self._last[row] = self.end
        self.end += 1

    def since(self, number: int) -> list[int]:
        """Return the distinct rows changed since then, the last one first."""
        found = list[int]()
        for row, last in reversed(self._last.items()):
            if last < number:
                break
            found.append(row)
        return found


class NodeColumns:
    """All nodes; only `Cache` writes, plugins read."""

    def __init__(self) -> None:
        self.size = 0
        self.row_of: dict[str, int] = {}
        self.names: list[str] = []
        self.facts: list[NodeInfo | None] = []
        self.free_vfs_of_row: list[FreeVfs] = []
        self._capacity = _SMALLEST
        self.valid: Flags = np.zeros(_SMALLEST, np.bool_)
        self.cordoned: Flags = np.zeros(_SMALLEST, np.bool_)
        self.taints: Column[tuple[tuple[str, str, str], ...]] = Column(_SMALLEST, ())
        self.ports: Column[frozenset[HostPort]] = Column(_SMALLEST, frozenset())
        # The resources that a node publishes at all, even with amount 0: all others are 0 in `allocatable`.
        self.published: Column[frozenset[str]] = Column(_SMALLEST, frozenset())
        # Why nothing may be given from a node's inventory (empty if it may), and the PFs that it lists.
        self.offers: Column[tuple[str, tuple[Pf, ...]]] = Column(_SMALLEST, ("", ()))
        # What is left of other kinds of resource, by kind.
        self.unit_pools: dict[str, Column[Any]] = {}
        self._labels: dict[str, Column[str | None]] = {}
        self._images: dict[str, Amounts] = {}
        self._lines = dict(_RESOURCE_LINES)
        self.width = _FIRST_OWN_LINE
        self._allocatable: Amounts = np.zeros((_FIRST_LINES, _SMALLEST), np.int64)
        self._left: Amounts = np.zeros((_FIRST_LINES, _SMALLEST), np.int64)
        self._empty_rows: list[int] = []
        # Changes of what a node is (labels, taints, capacity); and of anything at all.
        self.renewals = Journal()
        self.changes = Journal()

    def all_rows(self) -> Rows:
        """Return the rows that have a node."""
        return np.flatnonzero(self.valid[: self.size])

    def add_unit_pool(self, kind: str, empty: Hashable) -> None:
        """Add a column for what is left of another kind of resource."""
        self.unit_pools[kind] = Column(self._capacity, empty)

    def label(self, key: str) -> Column[str | None]:
        """Return the column of a label; None where a node lacks it."""
        column = self._labels.get(key)
        if column is None:
            _make_room(self._labels)
            column = self._labels[key] = Column(self._capacity, None)
            for row, node_info in enumerate(self.facts):
                if node_info is not None and key in node_info.labels:
                    column[row] = node_info.labels[key]
        return column

    def image(self, name: str) -> Amounts:
        """Return an image's size in bytes on each row, 0 where a node does not have it."""
        sizes = self._images.get(name)
        if sizes is None:
            _make_room(self._images)
            sizes = self._images[name] = np.zeros(self._capacity, np.int64)
            for row, node_info in enumerate(self.facts):
                if node_info is not None and name in node_info.images:
                    sizes[row] = node_info.images[name]
        return sizes

    def view(self, rows: Rows) -> BatchView:
        """Return what these rows have and have left; cpu in thousandths, everything else in units."""
        if len(rows) == self.size and np.array_equal(rows, np.arange(self.size)):
            # All rows in order: a view of the arrays, not the copy that would dominate the cost for thousands of rows.
            return BatchView(rows, self._allocatable[:, : self.size], self._left[:, : self.size])
        return BatchView(rows, self._allocatable.take(rows, 1), self._left.take(rows, 1))

    def row_view(self, row: int) -> RowView:
        """Return what one row has and has left."""
        # Without the unused lines: the numbers of one row each lie in another cache line of the CPU.
        return RowView(row, self._allocatable[: self.width, row].tolist(), self._left[: self.width, row].tolist())

    def line(self, resource: str) -> int:
        """Return the line of a resource; it stays the same once assigned, and is 0 until then."""
        return self._lines.get(resource, 0)

    def use(self, row: int, amounts: Iterable[tuple[str, int]], sign: int) -> None:
        """Add what a pod requests to a row's use (``sign`` 1), or subtract it (-1)."""
        for resource, amount in amounts:
            line = self._lines.get(resource) or self._new_line(resource)
            self._left[line, row] -= sign * amount

    def show_free_vfs(self, row: int, free_vfs: FreeVfs) -> None:
        """Record what the row's PFs have left now."""
        self.free_vfs_of_row[row] = free_vfs
        self._left[VFS, row], self._left[MBPS, row] = free_vfs.vf_count, free_vfs.free_mbps

    def used_of(self, row: int) -> dict[str, int]:
        """Return all amounts used on one row."""
        used = (self._allocatable[:, row] - self._left[:, row]).tolist()
        return {name: used[line] for name, line in self._lines.items() if used[line]}

    def vfs_of(self, row: int) -> tuple[int, int, int]:
        """Return how many VFs one row offers, how many are free, and the Mb/s that no VF reserves."""
        return int(self._allocatable[VFS, row]), int(self._left[VFS, row]), int(self._left[MBPS, row])

    def put(self, node_info: NodeInfo) -> int:
        """Write a node into its row; return the row."""
        row = self.row_of.get(node_info.name)
        if row is None:
            row = self._new_row(node_info.name)
        self._write(row, node_info)
        return row

    def remove(self, name: str) -> None:
        row = self.row_of.pop(name)
        self._clear(row)
        self._empty_rows.append(row)

    def touch(self, row: int, *, renewed: bool = False) -> None:
        """Note that the use of this row has changed, or with ``renewed`` what the node is."""
        self.changes.note(row)
        if renewed:
            self.renewals.note(row)

    def _new_line(self, resource: str) -> int:
        line = self._lines[resource] = self.width
        self.width += 1
        if line == len(self._left):
            self._left = _grown(self._left, (2 * line, self._capacity))
            self._allocatable = _grown(self._allocatable, (2 * line, self._capacity))
        return line

    def _new_row(self, name: str) -> int:
        if self._empty_rows:
            row = self._empty_rows.pop()
        else:
            row = self.size
            if row == self._capacity:
                self._grow(2 * self._capacity)
            self.size += 1
            self.names.append(name)
            self.facts.append(None)
            self.free_vfs_of_row.append(EMPTY)
        self.row_of[name], self.names[row] = row, name
        return row

    def _write(self, row: int, node_info: NodeInfo) -> None:
        self._allocate(row, node_info.allocatable)
        self.facts[row] = node_info
        self.valid[row] = True
        self.cordoned[row] = node_info.unschedulable
        self.taints[row] = tuple(_plain(taint) for taint in node_info.taints)
        for key, column in self._labels.items():
            column[row] = node_info.labels.get(key)
        for name, sizes in self._images.items():
            sizes[row] = node_info.images.get(name, 0)
        self.published[row] = frozenset(node_info.allocatable)
        self.renewals.note(row)
        self.changes.note(row)

    def _clear(self, row: int) -> None:
        self._allocate(row, {})
        self.facts[row], self.free_vfs_of_row[row], self.valid[row] = None, EMPTY, False
        self.renewals.note(row)
        self.changes.note(row)

    def offer(self, row: int, vfs: int) -> None:
        """Record how many VFs a row's PFs offer."""
        self._allocatable[VFS, row] = vfs

    def _allocate(self, row: int, amounts: Mapping[str, int]) -> None:
        """Replace what a node has; what its pods use stays."""
        lines = {self._lines.get(name) or self._new_line(name): amount for name, amount in amounts.items()}
        lines |= {self._lines[scored]: amounts.get(name, 0) for name, scored in SCORED.items()}
        allocatable: Amounts = np.zeros(len(self._allocatable), np.int64)
        allocatable[VFS] = self._allocatable[VFS, row]
        allocatable[list(lines)] = list(lines.values())
        self._left[:, row] += allocatable - self._allocatable[:, row]
        self._allocatable[:, row] = allocatable

    def _grow(self, capacity: int) -> None:
        self._capacity = capacity
        columns: list[Column[Any]] = [
            self.taints,
            self.ports,
            self.published,
            self.offers,
            *self._labels.values(),
            *self.unit_pools.values(),
        ]
        for column in columns:
            column.grow(capacity)
        self.valid = _grown(self.valid, (capacity,))
        self.cordoned = _grown(self.cordoned, (capacity,))
        self._allocatable = _grown(self._allocatable, (len(self._allocatable), capacity))
        self._left = _grown(self._left, (len(self._left), capacity))
        for name, sizes in self._images.items():
            self._images[name] = _grown(sizes, (capacity,))


def _make_room(columns: dict[str, Any]) -> None:
    if len(columns) >= _MOST_COLUMNS:
        columns.clear()


def _plain(taint: Taint) -> tuple[str, str, str]:
    return taint.key, taint.value or "", taint.effect


def _grown(array: NDArray[Any], shape: tuple[int, ...]) -> NDArray[Any]:
    larger: NDArray[Any] = np.zeros(shape, array.dtype)
    larger[tuple(slice(length) for length in array.shape)] = array
    return larger

"""The nodes as columns, one row per node, so that a plugin evaluates thousands of nodes at once.

A fact that many nodes share (a label's value, a set of taints, a list of PFs) is dictionary-encoded. A `Column` holds
an integer for each row and each distinct value once. A plugin evaluates each distinct value once, in plain Python, and
the results are spread over the rows by index. Amounts are two integer matrices with a line for each resource that every
node has: what the nodes have, and what their pods leave, at least `_MIN_FREE`, so nothing overflows. Any other resource
gets a pair of arrays when a pod requests it, and a label a column when a pod names it.

A row belongs to one node until that node is deleted. Then `valid` is false, and the next new node takes the row. Rows
never move, so a row number means the same node until `renewals` contains that row. Every change records its row in a
`Journal`: a reader that derives something from rows stores the number `end`, and later reads which rows have changed
`since`. Only `Cache` writes (and `UnitPools`, a part of it). Its `check` computes every row again.

A snapshot shares the nodes' properties (`scheduler.cache.node_facts`) and, until they change, columns. It copies what
pods leave.

Cost: a change of a pod or a node is written to one row. A plugin over all nodes is a few numpy calls, each of which
costs as much for one row as for a hundred; for a single row plain integers are cheaper (`RowView`). Memory is 4 bytes
per row and column, and 16 bytes per row and requested resource, of which there are at most `_MOST_SCALARS`.
"""

from collections.abc import Hashable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from scheduler.cache.column import Amounts, BatchView, Column, Journal, RowView, grown
from scheduler.cache.column import Rows as Rows
from scheduler.cache.node_facts import SMALLEST, NodeFacts, make_room
from scheduler.cache.node_facts import Flags as Flags
from scheduler.cache.node_info import NodeInfo
from scheduler.kube.host_ports import HostPorts
from scheduler.kube.resources import SCORE_NAMES
from scheduler.placement.steps import Steps
from scheduler.placement.vf_accounting import EMPTY, FreeVfs

# The lines of the resources that every node has. VFs and free Mb/s come from the PFs, not from what a node publishes.
SCORED_CPU, SCORED_MEMORY, CPU, MEMORY, PODS, VFS, MBPS = range(7)
LINE_COUNT = 7
_NAMES = SCORE_NAMES["cpu"], SCORE_NAMES["memory"], "cpu", "memory", "pods"
LINES: Mapping[str, int] = dict(zip(_NAMES, (SCORED_CPU, SCORED_MEMORY, CPU, MEMORY, PODS), strict=True))
# Maximum number of other resources that are kept as arrays. Beyond that all are dropped and built when needed.
_MOST_SCALARS = 256
# The name under which a node publishes what is scored.
_PUBLISHED_AS: Mapping[str, str] = {score_name: name for name, score_name in SCORE_NAMES.items()}
# The amount that is written if pods leave less, far from the limits of 64 bits.
_MIN_FREE = -(2**62)
# Number of single-row views that are kept, about 6 MiB: a search for victims reads every row, again for each pod.
_MOST_ROW_VIEWS = 8192


@dataclass(slots=True)
class ScalarResource:
    """An amount for each row: what the node has of a resource, and what its pods leave."""

    allocatable: Amounts
    free: Amounts

    def copy(self) -> "ScalarResource":
        return ScalarResource(self.allocatable.copy(), self.free.copy())

    def show(self, row: int, amount: int, usage: int) -> None:
        self.allocatable[row] = amount
        self.free[row] = max(amount - usage, _MIN_FREE)

    def grow(self, capacity: int) -> None:
        self.allocatable, self.free = grown(self.allocatable, (capacity,)), grown(self.free, (capacity,))


class NodeColumns(NodeFacts):
    """All nodes, and what their pods leave; only `Cache` writes, plugins read."""

    def __init__(self) -> None:
        super().__init__()
        self.free_vfs_of_row: list[FreeVfs] = []
        # The host ports of each pod that uses any: a pod may use thousands, and its ports are hashed once.
        self.ports: Column[frozenset[HostPorts]] = Column(SMALLEST, frozenset())
        # What is left of other kinds of resource, by kind.
        self.unit_pools: dict[str, Column[Any]] = {}
        # What the pods of each row use, without zeros; the dicts are never modified.
        self._usage: list[dict[str, int]] = []
        self._scalars: dict[str, ScalarResource] = {}
        self._allocatable: Amounts = np.zeros((LINE_COUNT, SMALLEST), np.int64)
        self._free: Amounts = np.zeros((LINE_COUNT, SMALLEST), np.int64)
        # What these two compute for a row, until it changes: each shape of pods evaluates each changed row once.
        self._row_views: dict[int, RowView] = {}
        # Changes of any kind.
        self.changes = Journal()

    def snapshot(self) -> "NodeColumns":
        snapshot = super().snapshot()
        snapshot.free_vfs_of_row, snapshot._usage = self.free_vfs_of_row.copy(), self._usage.copy()
        snapshot._free = self._free.copy()
        snapshot.ports, snapshot.changes = self.ports.snapshot(), self.changes.successor()
        snapshot.unit_pools = {kind: column.snapshot() for kind, column in self.unit_pools.items()}
        snapshot._scalars = {name: scalar.copy() for name, scalar in self._scalars.items()}
        snapshot._row_views = {}
        return snapshot

    def _own_facts(self) -> None:
        if self._is_shared:
            self._allocatable = self._allocatable.copy()
        super()._own_facts()

    def all_rows(self) -> Rows:
        return self.valid[: self.size].nonzero()[0]

    def flags(self, rows: Rows | Sequence[int]) -> Flags:
        flags: Flags = np.zeros(self.size, np.bool_)
        flags[rows] = True
        return flags

    def add_unit_pool(self, kind: str, empty: Hashable) -> None:
        self.unit_pools[kind] = Column(self._capacity, empty)

    def view(self, rows: Rows, steps: Steps | None = None) -> BatchView:
        """Return what these rows have and have left; cpu in thousandths, everything else in units."""
        if len(rows) == self.size and np.array_equal(rows, np.arange(self.size)):
            # All rows in order: a view of the arrays. A copy would dominate the cost for thousands of rows.
            return BatchView(rows, self._allocatable[:, : self.size], self._free[:, : self.size], steps)
        return BatchView(rows, self._allocatable.take(rows, 1), self._free.take(rows, 1), steps)

    def free(self, line: int, rows: Rows) -> Amounts:
        free: Amounts = self._free[line].take(rows)
        return free

    def row_view(self, row: int) -> RowView:
        """Return what one row has and has left; read-only, and current until the node changes."""
        view = self._row_views.get(row)
        if view is None:
            if len(self._row_views) >= _MOST_ROW_VIEWS:
                self._row_views.clear()
            view = RowView(row, self._allocatable[:, row].tolist(), self._free[:, row].tolist())
            self._row_views[row] = view
        return view

    def scalar(self, resource: str) -> ScalarResource | None:
        """Return what each row has and has left of a resource without a line; None if no node publishes it."""
        scalar = self._scalars.get(resource)
        if scalar is None and resource in self._publishers:
            make_room(self._scalars, _MOST_SCALARS)
            scalar = self._scalars[resource] = ScalarResource(*np.zeros((2, self._capacity), np.int64))
            for row, node_info in enumerate(self.facts):
                if node_info is not None:
                    amount = node_info.allocatable.get(resource, 0)
                    scalar.show(row, amount, self._usage[row].get(resource, 0))
        return scalar

    def use(self, row: int, amounts: Iterable[tuple[str, int]], sign: int) -> None:
        usage, free, (_, allocatable, free_of_row) = self._usage[row].copy(), self._free, self.row_view(row)
        self._usage[row] = usage
        for resource, amount in amounts:
            total = usage[resource] = usage.get(resource, 0) + sign * amount
            if not total:
                del usage[resource]
            line = LINES.get(resource)
            if line is not None:
                rest = allocatable[line] - total
                free[line, row] = free_of_row[line] = rest if rest > _MIN_FREE else _MIN_FREE
            elif resource in self._scalars:
                scalar = self._scalars[resource]
                scalar.show(row, scalar.allocatable.item(row), total)

    def show_free_vfs(self, row: int, free_vfs: FreeVfs) -> None:
        """Record what the row's PFs have left now."""
        free, view = self._free, self.row_view(row)
        self.free_vfs_of_row[row] = free_vfs
        free[VFS, row] = view.free[VFS] = free_vfs.vf_count
        free[MBPS, row] = view.free[MBPS] = free_vfs.free_mbps

    def adopt(self, snapshot: "NodeColumns", rows: Sequence[int]) -> None:
        """Take over what a snapshot has free on rows that have not changed here since; it gets what was here."""
        self._free[:, rows] = snapshot._free[:, rows]
        self.ports.adopt(snapshot.ports, rows)
        for kind, column in self.unit_pools.items():
            column.adopt(snapshot.unit_pools[kind], rows)
        usage, free_vfs, views = snapshot._usage, snapshot.free_vfs_of_row, snapshot._row_views
        for row in rows:
            self._usage[row], usage[row] = usage[row], self._usage[row]
            self.free_vfs_of_row[row], free_vfs[row] = free_vfs[row], self.free_vfs_of_row[row]
            if (view := self._row_views.pop(row, None)) is not None and row in views:
                self._row_views[row], views[row] = views[row], view
            for name, scalar in self._scalars.items():
                scalar.show(row, scalar.allocatable.item(row), self._usage[row].get(name, 0))
            self.changes.note(row)

    def used_of(self, row: int) -> dict[str, int]:
        return dict(self._usage[row])

    def vfs_of(self, row: int) -> tuple[int, int, int]:
        """Return how many VFs one row offers, how many are free, and the Mb/s that no VF reserves."""
        return int(self._allocatable[VFS, row]), int(self._free[VFS, row]), int(self._free[MBPS, row])

    def touch(self, row: int, *, is_renewal: bool = False) -> None:
        """Record that the use of this row has changed; with ``is_renewal``, that the node's properties have changed."""
        self.changes.note(row)
        if is_renewal:
            self.renewals.note(row)

    def _new_row(self, name: str) -> int:
        row = super()._new_row(name)
        if row == len(self._usage):
            self.free_vfs_of_row.append(EMPTY)
            self._usage.append({})
        return row

    def _write(self, row: int, node_info: NodeInfo | None) -> None:
        self._allocate(row, node_info.allocatable if node_info is not None else {})
        super()._write(row, node_info)
        if node_info is None:
            self.free_vfs_of_row[row] = EMPTY
        self.changes.note(row)

    def offer(self, row: int, vfs: int) -> None:
        self._own_facts()
        self._row_views.pop(row, None)
        self._allocatable[VFS, row] = vfs

    def _allocate(self, row: int, amounts: Mapping[str, int]) -> None:
        self._row_views.pop(row, None)
        usage = self._usage[row]
        for name, line in LINES.items():
            amount = amounts.get(_PUBLISHED_AS.get(name, name), 0)
            self._allocatable[line, row] = amount
            self._free[line, row] = max(amount - usage.get(name, 0), _MIN_FREE)
        for name, scalar in self._scalars.items():
            scalar.show(row, amounts.get(name, 0), usage.get(name, 0))

    def _publish(self, row: int, resources: frozenset[str]) -> None:
        super()._publish(row, resources)
        for name in self._scalars.keys() - self._publishers.keys():
            del self._scalars[name]

    def _grow(self, capacity: int) -> None:
        super()._grow(capacity)
        for column in (self.ports, *self.unit_pools.values()):
            column.grow(capacity)
        self._allocatable = grown(self._allocatable, (LINE_COUNT, capacity))
        self._free = grown(self._free, (LINE_COUNT, capacity))
        for scalar in self._scalars.values():
            scalar.grow(capacity)


@dataclass(frozen=True, slots=True)
class Domains:
    """The topology domains of a label, which are the nodes with one value: each row's domain, 0 without the label."""

    ids: NDArray[np.int32]
    # One more than the highest number of a domain.
    end: int

    def have(self, rows: Rows) -> Flags:
        return self.ids[rows] > 0

    def sums(self, counts: Amounts, among: Flags | None = None) -> Amounts:
        """Return the sum of counts, one for each row, in each domain; only of the rows marked ``among`` if given."""
        weights = counts if among is None else counts * among
        return _integers(np.bincount(self.ids, weights, self.end))

    def row_sums(self, rows: Rows, counts: Amounts) -> Amounts:
        return _integers(np.bincount(self.ids[rows], counts, self.end))

    def domain_flags(self, among: Flags) -> Flags:
        flags = np.zeros(self.end, np.bool_)
        flags[self.ids[among]] = True
        flags[0] = False
        return flags


def domains(nodes: NodeColumns, key: str) -> Domains:
    """Return the domains of a node label; rows without a node hold no pods and are never candidates."""
    column = nodes.label(key)
    return Domains(column.ids[: nodes.size], len(column.values))


def _integers(sums: NDArray[Any]) -> Amounts:
    # Counts of pods are far below 2**53, so floating point sums of them are exact.
    totals: Amounts = sums.astype(np.int64)
    totals[0] = 0
    return totals

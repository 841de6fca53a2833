"""The nodes as columns: a struct of arrays, one row a node, so that a plugin judges thousands of nodes at once.

What it is: a fact that many nodes share (a label's value, a set of taints, a list of PFs) is dictionary-encoded. A
`Column` holds an integer for each row and each distinct value once; a plugin judges each distinct value once, in plain
Python, and the judgements are spread over the rows by index. Amounts are two integer matrices with a line for each
resource that every node has and a row for each node: what the node can give, and what its pods leave of it. What the
pods of a row use is kept by name beside them. Any other resource gets a pair of arrays when a pod asks for it.

Why it is right:

- A row belongs to one node until that node is deleted. Then `valid` is false, and the next new node takes the row. Rows
  never move, so a row number that somebody keeps means the same node until `renewals` names that row.
- Every change notes its row in a `Journal`, which numbers the changes. Whoever derives something from rows keeps the
  number `end` and asks later which rows have changed `since`. The journal holds the last change of each row only: it
  never outgrows the rows, and a reader misses nothing however late it asks.
- A judgement depends on the value alone, so that rows with equal values can share it.
- What a row's pods use is summed without a limit, and what they leave is at least `_MIN_FREE`: nothing wraps.
- Only `Cache` writes (and `UnitPools`, a part of it). Its `check` derives every row again from the node and its pods.
- A snapshot shares what is replaced when it changes (columns, the use of a row, an image's sizes) and copies the rest.

What it costs: a change of a pod or a node is written to one row, and `since` takes time for the changed rows only. A
plugin over all nodes is a few numpy calls, each of which costs as much for one row as for a hundred; for a single row
plain integers are cheaper (`RowView`). A label or an image gets a column when a pod first names it, in one pass over
the nodes, and so does a resource that some node publishes. The memory is 4 bytes a row and column, and 16 bytes a row
and resource that pods ask for, of which there are at most `_MOST_SCALARS`: resources that bound pods name or that nodes
publish take no more than their objects. A column drops a value with the last row that has it.
"""

import copy
from collections import Counter
from collections.abc import Hashable, Iterable, Mapping, Sequence, Set
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from mooring.annotations.inventory import Pf
from scheduler.cache.column import Amounts, Column, Journal, grown
from scheduler.cache.node_info import InventoryFault, NodeInfo
from scheduler.cache.node_view import BatchView, RowView
from scheduler.cache.node_view import Rows as Rows
from scheduler.kube.host_ports import HostPorts
from scheduler.kube.objects import Taint
from scheduler.kube.pod_resources import SCORED
from scheduler.placement.steps import Steps
from scheduler.placement.vf_accounting import EMPTY, FreeVfs

Flags = NDArray[np.bool_]
# A node's PFs, and why nothing new may be given of them.
Offer = tuple[InventoryFault | None, tuple[Pf, ...]]
NO_OFFER: Offer = (None, ())
_SMALLEST = 64
# The lines of the resources that every node has. VFs and the Mb/s that no VF reserves come from the PFs, not from what
# a node publishes.
SCORED_CPU, SCORED_MEMORY, CPU, MEMORY, PODS, VFS, MBPS = range(7)
LINE_COUNT = 7
LINES: Mapping[str, int] = {
    SCORED["cpu"]: SCORED_CPU,
    SCORED["memory"]: SCORED_MEMORY,
    "cpu": CPU,
    "memory": MEMORY,
    "pods": PODS,
}
# At most so many other resources are kept as arrays; beyond that all are dropped and built on demand.
_MOST_SCALARS = 256
# The name under which a node publishes what is scored.
_PUBLISHED_AS: Mapping[str, str] = {score_name: name for name, score_name in SCORED.items()}
# What is written where pods leave less, far from where 64 bits end.
_MIN_FREE = -(2**62)
# Views of single rows that are kept, some 6 MiB: a search for victims looks at every row, again for each pod.
_MOST_ROW_VIEWS = 8192
# At most so many labels and images that pods name are kept as columns; beyond that all are dropped and built on demand.
_MOST_COLUMNS = 1024
# Images' sizes on all rows together, 8 MiB, but at least of so many images: any node may name some, and any pod.
_MOST_SIZES, _FEWEST_IMAGES = 1 << 20, 64


# The fields of `NodeColumns` that a snapshot copies, and the columns that it shares until one of both is written.
_FIELDS = (
    *("row_of", "names", "facts", "free_vfs_of_row", "valid", "cordoned", "renewals", "changes"),
    *("_label_keys", "_image_names", "_images", "_publishers", "_usage", "_allocatable", "_free", "_empty_rows"),
)
_COLUMNS = ("taints", "ports", "published", "offers", "models", "_no_label")


@dataclass(slots=True)
class ScalarResource:
    """An amount of each row: what the node has of a resource, and what its pods leave."""

    allocatable: Amounts
    free: Amounts

    @classmethod
    def of(cls, capacity: int) -> "ScalarResource":
        return cls(np.zeros(capacity, np.int64), np.zeros(capacity, np.int64))

    def copy(self) -> "ScalarResource":
        return ScalarResource(self.allocatable.copy(), self.free.copy())

    def show(self, row: int, amount: int, usage: int) -> None:
        self.allocatable[row] = amount
        self.free[row] = max(amount - usage, _MIN_FREE)

    def grow(self, capacity: int) -> None:
        self.allocatable, self.free = grown(self.allocatable, (capacity,)), grown(self.free, (capacity,))


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
        # The host ports of each pod that takes any: a pod may take thousands, and its own are hashed once.
        self.ports: Column[frozenset[HostPorts]] = Column(_SMALLEST, frozenset())
        # The resources that a node publishes at all, even with amount 0: all others are 0 in `allocatable`.
        self.published: Column[frozenset[str]] = Column(_SMALLEST, frozenset())
        # Why nothing may be given from a node's inventory (empty if it may), and the PFs that it lists.
        self.offers: Column[Offer] = Column(_SMALLEST, NO_OFFER)
        # The same, as requests see the PFs that select none by its PCIe root: judged once for all nodes of one model.
        self.models: Column[Offer] = Column(_SMALLEST, NO_OFFER)
        # What is left of other kinds of resource, by kind.
        self.unit_pools: dict[str, Column[Any]] = {}
        self._labels: dict[str, Column[str | None]] = {}
        # How many nodes have each label, and the column of one that none has.
        self._label_keys: Counter[str] = Counter()
        self._no_label: Column[str | None] = Column(_SMALLEST, None)
        # How many nodes have each image, and the column of one that none has.
        self._image_names: Counter[str] = Counter()
        self._no_image: Amounts = np.zeros(_SMALLEST, np.int64)
        self._images: dict[str, Amounts] = {}
        # How many nodes publish each resource, and what the pods of each row use, without zeros: no dict is changed.
        self._publishers: Counter[str] = Counter()
        self._usage: list[dict[str, int]] = []
        self._scalars: dict[str, ScalarResource] = {}
        self._allocatable: Amounts = np.zeros((LINE_COUNT, _SMALLEST), np.int64)
        self._free: Amounts = np.zeros((LINE_COUNT, _SMALLEST), np.int64)
        # What these two have of a row, until it changes: each shape of pods judges each changed row once.
        self._row_views: dict[int, RowView] = {}
        self._empty_rows: list[int] = []
        # Changes of what a node is (labels, taints, capacity); and of anything at all.
        self.renewals = Journal()
        self.changes = Journal()

    def snapshot(self) -> "NodeColumns":
        """Return all nodes as they are now; what is written later to one of both is not in the other."""
        snapshot = copy.copy(self)
        for name in _FIELDS:
            setattr(snapshot, name, getattr(self, name).copy())
        for name in _COLUMNS:
            setattr(snapshot, name, getattr(self, name).snapshot())
        snapshot.unit_pools = {kind: column.snapshot() for kind, column in self.unit_pools.items()}
        snapshot._labels = {key: column.snapshot() for key, column in self._labels.items()}
        snapshot._scalars = {name: scalar.copy() for name, scalar in self._scalars.items()}
        snapshot._row_views = {}
        return snapshot

    @property
    def published_names(self) -> Set[str]:
        """The resources that any node publishes."""
        return self._publishers.keys()

    def all_rows(self) -> Rows:
        """Return the rows that have a node."""
        return self.valid[: self.size].nonzero()[0]

    def add_unit_pool(self, kind: str, empty: Hashable) -> None:
        """Add a column for what is left of another kind of resource."""
        self.unit_pools[kind] = Column(self._capacity, empty)

    def label(self, key: str) -> Column[str | None]:
        """Return the column of a label; None where a node lacks it."""
        if key not in self._label_keys:
            return self._no_label
        column = self._labels.get(key)
        if column is None:
            _make_room(self._labels)
            column = self._labels[key] = Column(self._capacity, None)
            for row, node_info in enumerate(self.facts):
                if node_info is not None and key in node_info.labels:
                    column[row] = node_info.labels[key]
        return column

    def has_label_column(self, key: str) -> bool:
        """Return whether `label` has nothing to make: a column of a label is made when it is first asked for."""
        return key in self._labels or key not in self._label_keys

    def image(self, name: str) -> Amounts:
        """Return an image's size in bytes on each row, 0 where a node does not have it; read-only."""
        if name not in self._image_names:
            return self._no_image
        sizes = self._images.get(name)
        if sizes is None:
            _make_room(self._images, max(_MOST_SIZES // self._capacity, _FEWEST_IMAGES))
            sizes = self._images[name] = np.zeros(self._capacity, np.int64)
            for row, node_info in enumerate(self.facts):
                if node_info is not None and name in node_info.images:
                    sizes[row] = node_info.images[name]
        return sizes

    def view(self, rows: Rows, steps: Steps | None = None) -> BatchView:
        """Return what these rows have and have left; cpu in thousandths, everything else in units."""
        if len(rows) == self.size and np.array_equal(rows, np.arange(self.size)):
            # All rows in order: a view of the arrays, not the copy that would dominate the cost for thousands of rows.
            return BatchView(rows, self._allocatable[:, : self.size], self._free[:, : self.size], steps)
        return BatchView(rows, self._allocatable.take(rows, 1), self._free.take(rows, 1), steps)

    def row_view(self, row: int) -> RowView:
        """Return what one row has and has left; read-only, and up to date until the node changes."""
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
            _make_room(self._scalars, _MOST_SCALARS)
            scalar = self._scalars[resource] = ScalarResource.of(self._capacity)
            for row, node_info in enumerate(self.facts):
                if node_info is not None:
                    amount = node_info.allocatable.get(resource, 0)
                    scalar.show(row, amount, self._usage[row].get(resource, 0))
        return scalar

    def use(self, row: int, amounts: Iterable[tuple[str, int]], sign: int) -> None:
        """Add what a pod requests to a row's use (``sign`` 1), or subtract it (-1)."""
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

    def show_pfs(self, row: int, fault: InventoryFault | None, pfs: tuple[Pf, ...], model: tuple[Pf, ...] = ()) -> None:
        """Note which PFs a node lists, and why nothing may be given of them; None if it may."""
        self.offers[row], self.models[row] = (fault, pfs), (fault, model)

    def show_free_vfs(self, row: int, free_vfs: FreeVfs) -> None:
        """Record what the row's PFs have left now."""
        free, view = self._free, self.row_view(row)
        self.free_vfs_of_row[row] = free_vfs
        free[VFS, row] = view.free[VFS] = free_vfs.vf_count
        free[MBPS, row] = view.free[MBPS] = free_vfs.free_mbps

    def adopt(self, snapshot: "NodeColumns", rows: Sequence[int]) -> None:
        """Take over what a snapshot has free on rows that have not changed here since."""
        self._free[:, rows] = snapshot._free[:, rows]
        for row in rows:
            self._row_views.pop(row, None)
            self._usage[row], self.free_vfs_of_row[row] = snapshot._usage[row], snapshot.free_vfs_of_row[row]
            if self.ports[row] != snapshot.ports[row]:
                self.ports[row] = snapshot.ports[row]
            for kind, column in self.unit_pools.items():
                column[row] = snapshot.unit_pools[kind][row]
            for name, scalar in self._scalars.items():
                scalar.show(row, scalar.allocatable.item(row), self._usage[row].get(name, 0))
            self.touch(row)

    def used_of(self, row: int) -> dict[str, int]:
        """Return all amounts used on one row."""
        return dict(self._usage[row])

    def vfs_of(self, row: int) -> tuple[int, int, int]:
        """Return how many VFs one row offers, how many are free, and the Mb/s that no VF reserves."""
        return int(self._allocatable[VFS, row]), int(self._free[VFS, row]), int(self._free[MBPS, row])

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

    def touch(self, row: int, *, is_renewal: bool = False) -> None:
        """Note that the use of this row has changed, or with ``is_renewal`` what the node is."""
        self.changes.note(row)
        if is_renewal:
            self.renewals.note(row)

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
            self._usage.append({})
        self.row_of[name], self.names[row] = row, name
        return row

    def _write(self, row: int, node_info: NodeInfo) -> None:
        self._allocate(row, node_info.allocatable)
        self._replace_labels(row, node_info.labels)
        self._replace_images(row, node_info.images)
        self.facts[row] = node_info
        self.valid[row] = True
        self.cordoned[row] = node_info.unschedulable
        self.taints[row] = tuple(_plain(taint) for taint in node_info.taints)
        self._publish(row, frozenset(node_info.allocatable))
        self.renewals.note(row)
        self.changes.note(row)

    def _clear(self, row: int) -> None:
        self._allocate(row, {})
        self._replace_labels(row, {})
        self._replace_images(row, {})
        self._publish(row, frozenset())
        # What nobody has any more must not be kept.
        self.taints[row] = ()
        self.show_pfs(row, *NO_OFFER)
        self.facts[row], self.free_vfs_of_row[row], self.valid[row] = None, EMPTY, False
        self.renewals.note(row)
        self.changes.note(row)

    def offer(self, row: int, vfs: int) -> None:
        """Record how many VFs a row's PFs offer."""
        self._row_views.pop(row, None)
        self._allocatable[VFS, row] = vfs

    def _allocate(self, row: int, amounts: Mapping[str, int]) -> None:
        """Replace what a node has; what its pods use stays."""
        self._row_views.pop(row, None)
        usage = self._usage[row]
        for name, line in LINES.items():
            amount = amounts.get(_PUBLISHED_AS.get(name, name), 0)
            self._allocatable[line, row] = amount
            self._free[line, row] = max(amount - usage.get(name, 0), _MIN_FREE)
        for name, scalar in self._scalars.items():
            scalar.show(row, amounts.get(name, 0), usage.get(name, 0))

    def _replace_labels(self, row: int, labels: Mapping[str, str]) -> None:
        """Replace a row's labels; a label that no node has any more needs no column."""
        old_facts = self.facts[row]
        old_labels = old_facts.labels if old_facts is not None else {}
        if labels == old_labels:
            return
        self._label_keys.update(labels.keys() - old_labels.keys())
        for key in old_labels.keys() - labels.keys():
            self._label_keys[key] -= 1
            if not self._label_keys[key]:
                del self._label_keys[key]
                self._labels.pop(key, None)
        for key, column in self._labels.items():
            column[row] = labels.get(key)

    def _replace_images(self, row: int, images: Mapping[str, int]) -> None:
        """Replace a row's images; one that no node has any more needs no column."""
        old_facts = self.facts[row]
        old_images = old_facts.images if old_facts is not None else {}
        if images == old_images:
            return
        self._image_names.update(images.keys() - old_images.keys())
        for name in old_images.keys() - images.keys():
            self._image_names[name] -= 1
            if not self._image_names[name]:
                del self._image_names[name]
                self._images.pop(name, None)
        for name, sizes in self._images.items():
            if sizes[row] != images.get(name, 0):
                self._images[name] = sizes.copy()
                self._images[name][row] = images.get(name, 0)

    def _publish(self, row: int, resources: frozenset[str]) -> None:
        """Replace which resources a node publishes; nobody can get one that no node publishes any more."""
        old_resources = self.published[row]
        if resources == old_resources:
            return
        self.published[row] = resources
        self._publishers.update(resources - old_resources)
        for name in old_resources - resources:
            self._publishers[name] -= 1
            if not self._publishers[name]:
                del self._publishers[name]
                self._scalars.pop(name, None)

    def _grow(self, capacity: int) -> None:
        self._capacity = capacity
        columns: list[Column[Any]] = [
            self.taints,
            self.ports,
            self.published,
            self.offers,
            self.models,
            self._no_label,
            *self._labels.values(),
            *self.unit_pools.values(),
        ]
        for column in columns:
            column.grow(capacity)
        self.valid = grown(self.valid, (capacity,))
        self.cordoned = grown(self.cordoned, (capacity,))
        self._allocatable = grown(self._allocatable, (LINE_COUNT, capacity))
        self._free = grown(self._free, (LINE_COUNT, capacity))
        for scalar in self._scalars.values():
            scalar.grow(capacity)
        self._no_image = np.zeros(capacity, np.int64)
        for name, sizes in self._images.items():
            self._images[name] = grown(sizes, (capacity,))


def _make_room(columns: dict[str, Any], max_count: int = _MOST_COLUMNS) -> None:
    if len(columns) >= max_count:
        columns.clear()


def _plain(taint: Taint) -> tuple[str, str, str]:
    return taint.key, taint.value or "", taint.effect

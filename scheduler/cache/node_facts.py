"""The properties of all nodes, one row each: names, labels, taints, images, published resources, and listed PFs.

`scheduler.cache.node_columns` defines rows and columns, and keeps what pods leave of the nodes.

Nodes change rarely. Snapshots therefore share all of this until the next node changes: `_own_facts` then gives the live
nodes copies of their own. A label's column that is created in between serves both.
"""

from collections import Counter
from collections.abc import Mapping, Set
from types import MappingProxyType
from typing import Any, TypeVar

import numpy as np
from numpy.typing import NDArray

from mooring.annotations.inventory import Pf
from scheduler.cache.column import Amounts, Column, Journal, grown, shallow_copy
from scheduler.cache.node_info import InventoryFault, NodeInfo

Flags = NDArray[np.bool_]
# A node's PFs, and why nothing new may be assigned from them.
Offer = tuple[InventoryFault | None, tuple[Pf, ...]]
NO_OFFER: Offer = (None, ())
SMALLEST = 64
# Maximum number of labels named by pods that are kept as columns. Beyond that all are dropped and built when needed.
MAX_COLUMNS = 1024
# What `_own_facts` copies, and the columns, whose arrays are copied when they are written.
_FIELDS = (
    *("row_of", "names", "facts", "valid", "cordoned"),
    *("_label_keys", "_image_names", "_publishers", "_empty_rows"),
)
_COLUMNS = ("taints", "published", "models", "handlers", "programs")
Self = TypeVar("Self", bound="NodeFacts")
# The facts of a row without a node.
_EMPTY: Mapping[str, Any] = MappingProxyType({})
_NO_NODE = NodeInfo("", _EMPTY, (), False, _EMPTY, None, None, None, None, images=_EMPTY, others=_EMPTY)


class _RowCounts(Counter[str]):
    """How many rows have each name; a name that no row has needs no column."""

    def replace(self, old: Set[str], new: Set[str]) -> list[str]:
        """Count the names of a row in place of its previous ones; return those that no row has any more."""
        if new == old:
            return []
        self.update(new - old)
        self.subtract(old - new)
        unused_names = [name for name in old - new if not self[name]]
        for name in unused_names:
            del self[name]
        return unused_names


class NodeFacts:
    """All nodes, without what their pods use."""

    def __init__(self) -> None:
        self.size = 0
        self.row_of: dict[str, int] = {}
        self.names: list[str] = []
        self.facts: list[NodeInfo | None] = []
        self._capacity = SMALLEST
        self.valid: Flags = np.zeros(SMALLEST, np.bool_)
        self.cordoned: Flags = np.zeros(SMALLEST, np.bool_)
        self.taints: Column[tuple[tuple[str, str, str], ...]] = Column(SMALLEST, ())
        # The resources that a node publishes, including those with amount 0; all others are 0 in `allocatable`.
        self.published: Column[frozenset[str]] = Column(SMALLEST, frozenset())
        # Why nothing may be assigned from a node's inventory (None if it may), and its PFs without their PCIe root:
        # evaluated once for all nodes of one model.
        self.models: Column[Offer] = Column(SMALLEST, NO_OFFER)
        # The runtime handlers whose pods get VFs on a node, None if that is not known.
        self.handlers: Column[frozenset[str] | None] = Column(SMALLEST, None)
        # The versions of the programs that read a node's assignments, by program; empty if they are not reported.
        self.programs: Column[tuple[tuple[str, str], ...]] = Column(SMALLEST, ())
        # The handler of each RuntimeClass; replaced and never changed, because snapshots share it.
        self.runtime_classes: Mapping[str, str] = {}
        self._labels: dict[str, Column[str | None]] = {}
        # How many nodes have each label, and the column for a label that no node has.
        self._label_keys = _RowCounts()
        self._no_label: Column[str | None] = Column(SMALLEST, None)
        # How many nodes have each image.
        self._image_names = _RowCounts()
        # How many nodes publish each resource.
        self._publishers = _RowCounts()
        self._empty_rows: list[int] = []
        # Changes of a node's properties: labels, taints, capacity.
        self.renewals = Journal()
        # Whether a snapshot shares the facts.
        self._is_shared = False

    def snapshot(self: Self) -> Self:
        """Return the current state of all nodes; later writes to either side do not affect the other."""
        self._is_shared = True
        snapshot = shallow_copy(self)
        snapshot.renewals = self.renewals.successor()
        return snapshot

    def _own_facts(self) -> None:
        if not self._is_shared:
            return
        for name in _FIELDS:
            setattr(self, name, getattr(self, name).copy())
        for name in _COLUMNS:
            setattr(self, name, getattr(self, name).snapshot())
        self._labels = {key: column.snapshot() for key, column in self._labels.items()}
        self._is_shared = False

    @property
    def published_names(self) -> Set[str]:
        return self._publishers.keys()

    def label(self, key: str) -> Column[str | None]:
        """Return the column of a label; None for nodes that lack it."""
        if key not in self._label_keys:
            return self._no_label
        column = self._labels.get(key)
        if column is None:
            make_room(self._labels)
            column = self._labels[key] = Column(self._capacity, None)
            for row, node_info in enumerate(self.facts):
                if node_info is not None and key in node_info.labels:
                    column[row] = node_info.labels[key]
        return column

    def has_label_column(self, key: str) -> bool:
        """Return whether the column of a label exists already; it is created when first needed."""
        return key in self._labels or key not in self._label_keys

    def image(self, name: str) -> Amounts:
        """Return an image's size in bytes on each row; 0 if a node does not have it."""
        sizes: Amounts = np.zeros(self.size, np.int64)
        for row, node_info in enumerate(self.facts if name in self._image_names else ()):
            if node_info is not None and name in node_info.images:
                sizes[row] = node_info.images[name]
        return sizes

    def show_pfs(self, row: int, fault: InventoryFault | None, model: tuple[Pf, ...]) -> None:
        """Record which PFs a node lists, and why nothing may be assigned from them; None if it may."""
        self._own_facts()
        self.models[row] = fault, model

    def put_runtime_class(self, name: str, handler: str | None) -> bool:
        """Record a RuntimeClass's handler, None once the class is deleted; if it differs, evaluate all nodes again."""
        if self.runtime_classes.get(name) == handler:
            return False
        self._own_facts()
        classes = {key: value for key, value in self.runtime_classes.items() if key != name}
        self.runtime_classes = classes if handler is None else {**classes, name: handler}
        for row in self.row_of.values():
            self.renewals.note(row)
        return True

    def put(self, node_info: NodeInfo) -> int:
        self._own_facts()
        row = self.row_of.get(node_info.name)
        if row is None:
            row = self._new_row(node_info.name)
        self._write(row, node_info)
        self.renewals.note(row)
        return row

    def remove(self, name: str) -> None:
        self._own_facts()
        row = self.row_of.pop(name)
        self._write(row, None)
        self._empty_rows.append(row)
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
        self.row_of[name], self.names[row] = row, name
        return row

    def _write(self, row: int, node_info: NodeInfo | None) -> None:
        """Replace the facts of a row, by those of no node for None: a value that no node has any more is dropped."""
        old_facts, facts = self.facts[row] or _NO_NODE, node_info or _NO_NODE
        self.facts[row], self.valid[row] = node_info, node_info is not None
        self._replace_labels(row, old_facts.labels, facts.labels)
        self._image_names.replace(old_facts.images.keys(), facts.images.keys())
        self.cordoned[row] = facts.unschedulable
        self.taints[row] = tuple((taint.key, taint.value or "", taint.effect) for taint in facts.taints)
        self._publish(row, frozenset(facts.allocatable))
        self.handlers[row], self.programs[row] = facts.handlers, facts.programs

    def _replace_labels(self, row: int, old_labels: Mapping[str, str], labels: Mapping[str, str]) -> None:
        if labels == old_labels:
            return
        for key in self._label_keys.replace(old_labels.keys(), labels.keys()):
            self._labels.pop(key, None)
        for key, column in self._labels.items():
            column[row] = labels.get(key)

    def _publish(self, row: int, resources: frozenset[str]) -> None:
        """Replace which resources a node publishes; a pod cannot get a resource that no node publishes."""
        self._publishers.replace(self.published[row], resources)
        self.published[row] = resources

    def _grow(self, capacity: int) -> None:
        self._capacity = capacity
        columns: list[Column[Any]] = [getattr(self, name) for name in _COLUMNS]
        for column in (*columns, self._no_label, *self._labels.values()):
            column.grow(capacity)
        self.valid = grown(self.valid, (capacity,))
        self.cordoned = grown(self.cordoned, (capacity,))


def make_room(columns: dict[str, Any], max_count: int = MAX_COLUMNS) -> None:
    """Drop all columns if there are too many; each is built again when needed."""
    if len(columns) >= max_count:
        columns.clear()

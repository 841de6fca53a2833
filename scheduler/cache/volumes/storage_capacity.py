"""The storage capacity that drivers publish as CSIStorageCapacity. Pure.

Source: hasEnoughCapacity of kube-scheduler's volumebinding.
"""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass

from scheduler.cache.volumes.label_index import Label, LabelIndex
from scheduler.kube.objects import Quantity
from scheduler.kube.resources import parse_quantity
from scheduler.kube.selection.selectors import NOTHING, Selector, read_selector
from scheduler.kube.storage_objects import CSIDriver, CSIStorageCapacity, StorageClass


@dataclass(frozen=True, slots=True)
class _Capacity:
    """The largest volume of a class, in bytes, for the nodes that the selector matches."""

    storage_class: str
    nodes: Selector
    largest: int

    @property
    def labels(self) -> list[Label | None]:
        """Return a label that all its nodes have; None without such a label."""
        return [next(iter(self.nodes.equal), None)]


class Capacities:
    """The drivers that publish capacity, and what they publish, by namespace/name."""

    def __init__(self, capacities: Mapping[str, _Capacity] | None = None) -> None:
        self._publishers: set[str] = set()
        self._capacities: dict[str, _Capacity] = {}
        self.by_class: LabelIndex[_Capacity] = LabelIndex()
        for key, capacity in (capacities or {}).items():
            self._put(key, capacity)

    def put_driver(self, driver: CSIDriver) -> bool:
        name = driver.metadata.name
        if not driver.spec.storage_capacity:
            return self.remove_driver(name)
        self._publishers.add(name)
        return False

    def remove_driver(self, name: str) -> bool:
        was_publishing = name in self._publishers
        self._publishers.discard(name)
        return was_publishing

    def put(self, capacity: CSIStorageCapacity) -> bool:
        previous, new = self._capacities.get(capacity.key), _read(capacity)
        if previous != new:
            self.remove(capacity.key)
            self._put(capacity.key, new)
        return previous is None or (previous != new and new.largest >= previous.largest)

    def remove(self, key: str) -> None:
        capacity = self._capacities.pop(key, None)
        if capacity is None:
            return
        self.by_class.remove(capacity.storage_class, key, capacity.labels, capacity.nodes.keys())

    def drivers(self) -> Iterable[str]:
        return self._publishers

    def keys(self) -> Iterable[str]:
        return self._capacities.keys()

    def has_room(self, storage_class: StorageClass, size: int, labels: Mapping[str, str | None]) -> bool:
        """Return whether the published capacity admits a volume of this many bytes for a node with these labels."""
        if storage_class.provisioner not in self._publishers:
            return True
        node_labels = {key: value for key, value in labels.items() if value is not None}
        name = storage_class.metadata.name
        return any(
            capacity.largest >= size and capacity.nodes.matches(node_labels)
            for label in self.by_class.near(name, node_labels)
            for capacity in self.by_class.items(name, label)
        )

    def check(self) -> None:
        assert Capacities(self._capacities).by_class == self.by_class, "the capacities by class are not those there"

    def _put(self, key: str, capacity: _Capacity) -> None:
        self._capacities[key] = capacity
        self.by_class.put(capacity.storage_class, key, capacity, capacity.labels, capacity.nodes.keys())


def _read(capacity: CSIStorageCapacity) -> _Capacity:
    """Return the capacity of an object: none if it is unreadable, and on no node if it has no topology."""
    quantity = capacity.capacity if capacity.maximum_volume_size is None else capacity.maximum_volume_size
    try:
        nodes = read_selector(capacity.node_topology)
    except ValueError:
        nodes = NOTHING
    return _Capacity(capacity.storage_class_name, nodes, _bytes(quantity))


def _bytes(quantity: Quantity | None) -> int:
    try:
        return -1 if quantity is None else parse_quantity(quantity)
    except ValueError:
        return -1

"""Volumes and published capacities by storage class, found by a node label that they require. Pure.

A class may have thousands of local volumes or capacities, each for one node only. A lookup for a node then reads only
its own ones.
"""

from collections import Counter
from collections.abc import Callable, Collection, Iterable, Mapping
from dataclasses import dataclass, field
from typing import Generic, Protocol, TypeVar

from scheduler.cache.counters import shift
from scheduler.cache.volumes.plan import VolumePlan, VolumePlans
from scheduler.kube.objects import NodeSelector, Quantity
from scheduler.kube.resources import parse_quantity
from scheduler.kube.selection.selectors import NOTHING, Selector, read_selector
from scheduler.kube.storage_objects import CSIDriver, CSIStorageCapacity, PersistentVolume, StorageClass


class _Item(Protocol):
    @property
    def storage_class(self) -> str: ...


Item = TypeVar("Item", bound=_Item)
# A node label: its key and value.
Label = tuple[str, str]


@dataclass(slots=True)
class LabelIndex(Generic[Item]):
    """Items by class; each node that may use an item has one of its labels, if these do not contain None.

    ``keys_of`` returns the keys of all labels that an item mentions.
    """

    labels_of: Callable[[Item], Collection[Label | None]] = field(compare=False)
    keys_of: Callable[[Item], Collection[str]] = field(compare=False)
    # By class and label, and then by name.
    _items: dict[tuple[str, Label | None], dict[str, Item]] = field(default_factory=dict)
    # By class: how many items mention each label key. Nodes with equal values of all these keys can use the same items.
    _keys: dict[str, Counter[str]] = field(default_factory=dict)

    def copy(self) -> "LabelIndex[Item]":
        items = {place: items.copy() for place, items in self._items.items()}
        return LabelIndex(self.labels_of, self.keys_of, items, {name: keys.copy() for name, keys in self._keys.items()})

    def put(self, name: str, item: Item) -> None:
        if keys := self.keys_of(item):
            self._keys.setdefault(item.storage_class, Counter()).update(keys)
        for label in self.labels_of(item):
            self._items.setdefault((item.storage_class, label), {})[name] = item

    def remove(self, name: str, item: Item) -> None:
        for key in self.keys_of(item):
            shift(self._keys[item.storage_class], key, -1)
        if not self._keys.get(item.storage_class, True):
            del self._keys[item.storage_class]
        for label in self.labels_of(item):
            items = self._items[item.storage_class, label]
            del items[name]
            if not items:
                del self._items[item.storage_class, label]

    def label_keys(self, storage_class: str) -> Collection[str]:
        """Return the node labels that decide which items of a class a node can use."""
        return self._keys.get(storage_class, ())

    def near(self, storage_class: str, labels: Mapping[str, str | None]) -> list[Label | None]:
        """Return the labels that find all items that a node with these labels can use, and possibly others.

        None finds those that require no label.
        """
        near = [(key, value) for key in self.label_keys(storage_class) if (value := labels.get(key)) is not None]
        return [label for label in (None, *near) if (storage_class, label) in self._items]

    def items(self, storage_class: str, label: Label | None) -> Iterable[Item]:
        """Return the items of a class that require a label; for None those that require none."""
        return self._items.get((storage_class, label), {}).values()


class PvIndex:
    """Volumes by name; `put` replaces an entry. A volume for which ``plans`` assume a claim is not free."""

    def __init__(self, plans: VolumePlans, volumes: Iterable[PersistentVolume] = ()) -> None:
        self.by_class = LabelIndex[PersistentVolume](_volume_labels, lambda volume: affinity_keys(volume.affinity))
        self._volumes: dict[str, PersistentVolume] = {}
        self._by_claim: dict[str, dict[str, PersistentVolume]] = {}
        self._plans = plans
        # How many volumes of a class that no claim has are found by a label.
        self._free: Counter[tuple[str, Label | None]] = Counter()
        for volume in volumes:
            self.put(volume)

    def copy(self, plans: VolumePlans) -> "PvIndex":
        copy = PvIndex(plans)
        copy._volumes, copy.by_class = self._volumes.copy(), self.by_class.copy()
        copy._by_claim = {claim: volumes.copy() for claim, volumes in self._by_claim.items()}
        copy._free = self._free.copy()
        return copy

    def get(self, name: str) -> PersistentVolume | None:
        return self._volumes.get(name)

    def put(self, volume: PersistentVolume) -> None:
        name = volume.metadata.name
        self.remove(name)
        self._volumes[name] = volume
        self.by_class.put(name, volume)
        self._count_free(volume, 1)
        if volume.spec.claim_ref is not None:
            self._by_claim.setdefault(volume.spec.claim_ref.key, {})[name] = volume

    def remove(self, name: str) -> PersistentVolume | None:
        volume = self._volumes.pop(name, None)
        if volume is None:
            return None
        self._count_free(volume, -1)
        self.by_class.remove(name, volume)
        if volume.spec.claim_ref is not None:
            claim = volume.spec.claim_ref.key
            del self._by_claim[claim][name]
            if not self._by_claim[claim]:
                del self._by_claim[claim]
        return volume

    def names(self) -> Iterable[str]:
        return self._volumes.keys()

    def of_claim(self, claim: str) -> Iterable[PersistentVolume]:
        return self._by_claim.get(claim, {}).values()

    def count_plan(self, plan: VolumePlan, change: int) -> None:
        """Stop counting the volumes of a plan that is about to be added or dropped (-1), and count them again (1)."""
        for match in plan.matches:
            if (volume := self._volumes.get(match.volume.metadata.name)) is not None:
                self._count_free(volume, change)

    def has_free(self, storage_class: str, label: Label | None) -> bool:
        """Return whether a label finds a volume of a class that no claim has; for None, whether one requires none."""
        return (storage_class, label) in self._free

    def _count_free(self, volume: PersistentVolume, change: int) -> None:
        if volume.spec.claim_ref is None and not self._plans.claim_of(volume.metadata.name):
            for label in _volume_labels(volume):
                shift(self._free, (volume.storage_class, label), change)

    def check(self) -> None:
        fresh = PvIndex(self._plans, self._volumes.values())
        assert fresh._free == self._free, "free volumes are miscounted"
        assert fresh.by_class == self.by_class, "the volumes by class differ"
        assert fresh._by_claim == self._by_claim, "the volumes by claim differ"


def affinity_keys(affinity: NodeSelector | None) -> set[str]:
    """Return the node labels that an affinity mentions."""
    terms = affinity.node_selector_terms or () if affinity is not None else ()
    return {requirement.key for term in terms for requirement in term.match_expressions or ()}


def _volume_labels(volume: PersistentVolume) -> set[Label | None]:
    """Return labels so that each node that the affinity admits has one of them; only None without such labels."""
    labels: set[Label | None] = set()
    for term in volume.affinity.node_selector_terms or () if volume.affinity is not None else ():
        requirements = (requirement for requirement in term.match_expressions or () if requirement.operator == "In")
        requirement = next(requirements, None)
        if requirement is None:
            return {None}
        labels.update((requirement.key, value) for value in requirement.values or ())
    return labels or {None}


@dataclass(frozen=True, slots=True)
class _Capacity:
    """The largest volume of a class, in bytes, for the nodes that the selector matches."""

    storage_class: str
    nodes: Selector
    largest: int


class Capacities:
    """The drivers that publish capacity, and what they publish as CSIStorageCapacity, by namespace/name.

    Source: hasEnoughCapacity of kube-scheduler's volumebinding.
    """

    def __init__(self, capacities: Mapping[str, _Capacity] | None = None) -> None:
        self._publishers: set[str] = set()
        self._capacities: dict[str, _Capacity] = {}
        # All nodes of a capacity have the first label that its selector requires.
        self.by_class = LabelIndex[_Capacity](
            lambda capacity: capacity.nodes.equal[:1] or (None,), lambda capacity: capacity.nodes.keys()
        )
        for key, capacity in (capacities or {}).items():
            self._put(key, capacity)

    def put_driver(self, driver: CSIDriver) -> bool:
        """Return whether the driver's volumes have fewer conditions now."""
        if not driver.spec.storage_capacity:
            return self.remove_driver(driver.metadata.name)
        self._publishers.add(driver.metadata.name)
        return False

    def remove_driver(self, name: str) -> bool:
        was_publishing = name in self._publishers
        self._publishers.discard(name)
        return was_publishing

    def put(self, capacity: CSIStorageCapacity) -> bool:
        """Return whether there may be more capacity now."""
        previous, new = self._capacities.get(capacity.key), _read(capacity)
        if previous != new:
            self.remove(capacity.key)
            self._put(capacity.key, new)
        return previous is None or (previous != new and new.largest >= previous.largest)

    def remove(self, key: str) -> None:
        if (capacity := self._capacities.pop(key, None)) is not None:
            self.by_class.remove(key, capacity)

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
        assert Capacities(self._capacities).by_class == self.by_class, "capacities by class differ"

    def _put(self, key: str, capacity: _Capacity) -> None:
        self._capacities[key] = capacity
        self.by_class.put(key, capacity)


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

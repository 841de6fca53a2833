"""What belongs to a storage class, found by a node label that it requires. Pure.

A class may have thousands of local volumes or capacities, each for one node only. A lookup for a node then reads only
its own ones.
"""

from collections import Counter
from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass, field
from typing import Generic, TypeVar

Item = TypeVar("Item")
# A node label: its key and value.
Label = tuple[str, str]


@dataclass(slots=True)
class _Class(Generic[Item]):
    """Items of one class: those that require a node label, by that label and their name, and under None the others."""

    by_label: dict[Label | None, dict[str, Item]] = field(default_factory=dict)
    # How many items mention each label key: nodes with equal values of all these keys can use the same items.
    keys: Counter[str] = field(default_factory=Counter)

    def copy(self) -> "_Class[Item]":
        return _Class({label: items.copy() for label, items in self.by_label.items()}, self.keys.copy())


@dataclass(slots=True)
class LabelIndex(Generic[Item]):
    """Items by class; each node that may use an item has one of its ``labels``."""

    _classes: dict[str, _Class[Item]] = field(default_factory=dict)

    def copy(self) -> "LabelIndex[Item]":
        return LabelIndex({name: entry.copy() for name, entry in self._classes.items()})

    def put(
        self, storage_class: str, name: str, item: Item, labels: Iterable[Label | None], keys: Iterable[str]
    ) -> None:
        entry = self._classes.setdefault(storage_class, _Class())
        entry.keys.update(keys)
        for label in labels:
            entry.by_label.setdefault(label, {})[name] = item

    def remove(self, storage_class: str, name: str, labels: Iterable[Label | None], keys: Iterable[str]) -> None:
        """Remove an item; labels and keys are those with which it was put."""
        entry = self._classes[storage_class]
        entry.keys -= Counter(keys)
        for label in labels:
            del entry.by_label[label][name]
            if not entry.by_label[label]:
                del entry.by_label[label]
        if not entry.by_label:
            del self._classes[storage_class]

    def label_keys(self, storage_class: str) -> Collection[str]:
        """Return the node labels that decide which items of a class a node can use."""
        entry = self._classes.get(storage_class)
        return () if entry is None else entry.keys.keys()

    def near(self, storage_class: str, labels: Mapping[str, str | None]) -> list[Label | None]:
        """Return the labels that find all items that a node with these labels can use, and possibly others.

        None finds those that require no label.
        """
        entry = self._classes.get(storage_class)
        if entry is None:
            return []
        near: list[Label | None] = [None] if None in entry.by_label else []
        for key in entry.keys:
            value = labels.get(key)
            if value is not None and (key, value) in entry.by_label:
                near.append((key, value))
        return near

    def items(self, storage_class: str, label: Label | None) -> Iterable[Item]:
        """Return the items of a class that require a label; for None those that require none."""
        entry = self._classes.get(storage_class)
        return () if entry is None else entry.by_label.get(label, {}).values()

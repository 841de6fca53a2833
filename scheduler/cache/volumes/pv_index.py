"""The persistent volumes, indexed by class, by node labels and by claim. Pure.

A class may have thousands of local volumes, each usable on one node only. They are indexed by one of the labels that
their affinity requires, so that a lookup for a node reads only its own volumes.
"""

from collections import Counter
from collections.abc import Hashable, Iterable, Mapping
from dataclasses import dataclass, field
from typing import TypeVar

from scheduler.kube.objects import NodeSelector
from scheduler.kube.storage_objects import PersistentVolume

Key = TypeVar("Key", bound=Hashable)
# A node label that a volume requires: its key and value.
Label = tuple[str, str]
_ByName = dict[str, PersistentVolume]


@dataclass(slots=True)
class _Class:
    """Volumes of one class: those that require a node label, by that label, and under None the others."""

    by_label: dict[Label | None, _ByName] = field(default_factory=dict)
    # How many volumes mention each label key: nodes with equal values of all these keys can use the same volumes.
    keys: Counter[str] = field(default_factory=Counter)

    def copy(self) -> "_Class":
        by_label = {label: volumes.copy() for label, volumes in self.by_label.items()}
        return _Class(by_label, self.keys.copy())


class PvIndex:
    """Volumes by name; `put` replaces an entry."""

    def __init__(self, volumes: Iterable[PersistentVolume] = ()) -> None:
        self._volumes: _ByName = {}
        self._classes: dict[str, _Class] = {}
        self._by_claim: dict[str, _ByName] = {}
        for volume in volumes:
            self.put(volume)

    def copy(self) -> "PvIndex":
        copy = PvIndex()
        copy._volumes = self._volumes.copy()
        copy._by_claim = {claim: volumes.copy() for claim, volumes in self._by_claim.items()}
        copy._classes = {name: entry.copy() for name, entry in self._classes.items()}
        return copy

    def get(self, name: str) -> PersistentVolume | None:
        return self._volumes.get(name)

    def put(self, volume: PersistentVolume) -> None:
        name = volume.metadata.name
        self.remove(name)
        self._volumes[name] = volume
        entry = self._classes.setdefault(volume.storage_class, _Class())
        entry.keys.update(affinity_keys(volume.affinity))
        for label in _index_labels(volume.affinity):
            entry.by_label.setdefault(label, {})[name] = volume
        if volume.spec.claim_ref is not None:
            self._by_claim.setdefault(volume.spec.claim_ref.key, {})[name] = volume

    def remove(self, name: str) -> PersistentVolume | None:
        volume = self._volumes.pop(name, None)
        if volume is None:
            return None
        entry = self._classes[volume.storage_class]
        entry.keys -= Counter(affinity_keys(volume.affinity))
        for label in _index_labels(volume.affinity):
            _discard(entry.by_label, label, name)
        if not entry.by_label:
            del self._classes[volume.storage_class]
        if volume.spec.claim_ref is not None:
            _discard(self._by_claim, volume.spec.claim_ref.key, name)
        return volume

    def names(self) -> Iterable[str]:
        return self._volumes.keys()

    def of_claim(self, claim: str) -> Iterable[PersistentVolume]:
        return self._by_claim.get(claim, {}).values()

    def label_keys(self, storage_class: str) -> Iterable[str]:
        entry = self._classes.get(storage_class)
        return () if entry is None else entry.keys.keys()

    def near(self, storage_class: str, labels: Mapping[str, str | None]) -> list[Label | None]:
        """Return the labels that find all volumes of a class that a node with these labels can use, and possibly
        others.

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

    def found_by(self, storage_class: str, label: Label | None) -> Iterable[PersistentVolume]:
        """Return the volumes of a class that require a label; for None those that require none."""
        entry = self._classes.get(storage_class)
        return () if entry is None else entry.by_label.get(label, {}).values()

    def check(self) -> None:
        fresh = PvIndex(self._volumes.values())
        assert fresh._classes == self._classes, "the volumes by class are not those that are there"
        assert fresh._by_claim == self._by_claim, "the volumes by claim are not those that are there"


def _discard(index: dict[Key, _ByName], key: Key, name: str) -> None:
    del index[key][name]
    if not index[key]:
        del index[key]


def affinity_keys(affinity: NodeSelector | None) -> set[str]:
    """Return the node labels that an affinity mentions."""
    terms = affinity.node_selector_terms or () if affinity is not None else ()
    return {requirement.key for term in terms for requirement in term.match_expressions or ()}


def _index_labels(affinity: NodeSelector | None) -> set[Label | None]:
    """Return labels so that each node that the affinity admits has one of them; only None without such labels."""
    labels: set[Label | None] = set()
    for term in affinity.node_selector_terms or () if affinity is not None else ():
        requirements = (requirement for requirement in term.match_expressions or () if requirement.operator == "In")
        requirement = next(requirements, None)
        if requirement is None:
            return {None}
        labels.update((requirement.key, value) for value in requirement.values or ())
    return labels or {None}

"""The persistent volumes, found by class, by node labels and by claim. Pure.

A class may have thousands of local volumes, each usable on one node only. They are indexed by one of the labels that
their affinity requires, so that a lookup for a node reads its own volumes only.
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
_NOTHING_HELD: Mapping[str, int] = {}
_NOWHERE: Mapping[Label | None, int] = {}


@dataclass(slots=True)
class _Class:
    """Volumes of one class: those that require a node label, by that label, and under None the others."""

    by_label: dict[Label | None, _ByName] = field(default_factory=dict)
    # How many volumes mention each label key: nodes with equal values of all these keys can use the same volumes.
    keys: Counter[str] = field(default_factory=Counter)
    # How many of those in ``by_label`` a claim could get.
    free: Counter[Label | None] = field(default_factory=Counter)

    def copy(self) -> "_Class":
        by_label = {label: there.copy() for label, there in self.by_label.items()}
        return _Class(by_label, self.keys.copy(), self.free.copy())


class PvIndex:
    """Volumes by name; `put` replaces an entry."""

    def __init__(self, volumes: Iterable[PersistentVolume] = (), held: Mapping[str, int] = _NOTHING_HELD) -> None:
        self._volumes: _ByName = {}
        # For how many pods each volume is assumed, whether it still exists or not.
        self._held = Counter(held)
        self._classes: dict[str, _Class] = {}
        self._claimed: dict[str, _ByName] = {}
        for volume in volumes:
            self.put(volume)

    def copy(self) -> "PvIndex":
        """Return an index of the same volumes."""
        copied = PvIndex()
        copied._volumes, copied._held = self._volumes.copy(), self._held.copy()
        copied._claimed = {claim: there.copy() for claim, there in self._claimed.items()}
        copied._classes = {name: one.copy() for name, one in self._classes.items()}
        return copied

    def get(self, name: str) -> PersistentVolume | None:
        return self._volumes.get(name)

    def put(self, volume: PersistentVolume) -> None:
        name = volume.metadata.name
        self.remove(name)
        self._volumes[name] = volume
        found = self._classes.setdefault(volume.storage_class, _Class())
        found.keys.update(affinity_keys(volume.affinity))
        for label in _demanded(volume.affinity):
            found.by_label.setdefault(label, {})[name] = volume
        self._count_free(volume, 1)
        if volume.spec.claim_ref is not None:
            self._claimed.setdefault(volume.spec.claim_ref.key, {})[name] = volume

    def remove(self, name: str) -> PersistentVolume | None:
        volume = self._volumes.pop(name, None)
        if volume is None:
            return None
        self._count_free(volume, -1)
        found = self._classes[volume.storage_class]
        found.keys -= Counter(affinity_keys(volume.affinity))
        for label in _demanded(volume.affinity):
            _discard(found.by_label, label, name)
        if not found.by_label:
            del self._classes[volume.storage_class]
        if volume.spec.claim_ref is not None:
            _discard(self._claimed, volume.spec.claim_ref.key, name)
        return volume

    def hold(self, name: str, by: int = 1) -> None:
        """Count a volume as assumed for one more pod, or for one less (``by`` -1)."""
        volume = self._volumes.get(name)
        if volume is not None:
            self._count_free(volume, -1)
        self._held[name] += by
        if not self._held[name]:
            del self._held[name]
        if volume is not None:
            self._count_free(volume, 1)

    def names(self) -> Iterable[str]:
        return self._volumes.keys()

    def of_claim(self, claim: str) -> Iterable[PersistentVolume]:
        """Return the volumes whose claimRef names this claim."""
        return self._claimed.get(claim, {}).values()

    def label_keys(self, storage_class: str) -> Iterable[str]:
        """Return the node labels that decide where a class's volumes can be used."""
        found = self._classes.get(storage_class)
        return () if found is None else found.keys.keys()

    def near(self, storage_class: str, labels: Mapping[str, str | None]) -> list[Label | None]:
        """Return the labels that find all volumes of a class that a node with these labels can use, and maybe others.

        None finds those that require no label.
        """
        found = self._classes.get(storage_class)
        if found is None:
            return []
        near: list[Label | None] = [None] if None in found.by_label else []
        for key in found.keys:
            value = labels.get(key)
            if value is not None and (key, value) in found.by_label:
                near.append((key, value))
        return near

    def found_by(self, storage_class: str, label: Label | None) -> Iterable[PersistentVolume]:
        """Return the volumes of a class that require a label, with None those that require none that finds them."""
        found = self._classes.get(storage_class)
        return () if found is None else found.by_label.get(label, {}).values()

    def free(self, storage_class: str) -> Mapping[Label | None, int]:
        """Return the node labels (None: any) under which free volumes of a class are found, with their number."""
        found = self._classes.get(storage_class)
        return _NOWHERE if found is None else found.free

    def _count_free(self, volume: PersistentVolume, by: int) -> None:
        if volume.spec.claim_ref is not None or self._held[volume.metadata.name]:
            return
        free = self._classes[volume.storage_class].free
        for label in _demanded(volume.affinity):
            free[label] += by
            if not free[label]:
                del free[label]

    def check(self, held: Mapping[str, int]) -> None:
        """Assert that the index equals a new one of the same volumes and assumptions."""
        fresh = PvIndex(self._volumes.values(), held)
        assert fresh._classes == self._classes, "the volumes by class are not those that are there"
        assert fresh._held == self._held, "the volumes held are not those that are assumed"
        assert fresh._claimed == self._claimed, "the volumes by claim are not those that are there"


def _discard(index: dict[Key, _ByName], key: Key, name: str) -> None:
    del index[key][name]
    if not index[key]:
        del index[key]


def affinity_keys(affinity: NodeSelector | None) -> set[str]:
    """Return the node labels that an affinity mentions."""
    terms = affinity.node_selector_terms or () if affinity is not None else ()
    return {requirement.key for term in terms for requirement in term.match_expressions or ()}


def _demanded(affinity: NodeSelector | None) -> set[Label | None]:
    """Return labels of which each node that the affinity admits has one; only None without such labels."""
    labels: set[Label | None] = set()
    for term in affinity.node_selector_terms or () if affinity is not None else ():
        named = next(
            (requirement for requirement in term.match_expressions or () if requirement.operator == "In"), None
        )
        if named is None:
            return {None}
        labels.update((named.key, value) for value in named.values or ())
    return labels or {None}

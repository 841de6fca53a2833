"""The persistent volumes, indexed by class and node labels, and by claim. Pure."""

from collections import Counter
from collections.abc import Iterable, Mapping

from scheduler.cache.row_counts import shift
from scheduler.cache.volumes.label_index import Label, LabelIndex
from scheduler.kube.objects import NodeSelector
from scheduler.kube.storage_objects import PersistentVolume

_ByName = dict[str, PersistentVolume]


class PvIndex:
    """Volumes by name; `put` replaces an entry."""

    def __init__(self, volumes: Iterable[PersistentVolume] = (), assumed: Mapping[str, int] | None = None) -> None:
        self.by_class: LabelIndex[PersistentVolume] = LabelIndex()
        self._volumes: _ByName = {}
        self._by_claim: dict[str, _ByName] = {}
        # For how many pods each volume is assumed, whether it exists or not.
        self._assumed = Counter(assumed)
        # How many volumes of a class that no claim has are found by a label.
        self._free: Counter[tuple[str, Label | None]] = Counter()
        for volume in volumes:
            self.put(volume)

    def copy(self) -> "PvIndex":
        copy = PvIndex()
        copy._volumes, copy.by_class = self._volumes.copy(), self.by_class.copy()
        copy._by_claim = {claim: volumes.copy() for claim, volumes in self._by_claim.items()}
        copy._assumed, copy._free = self._assumed.copy(), self._free.copy()
        return copy

    def get(self, name: str) -> PersistentVolume | None:
        return self._volumes.get(name)

    def put(self, volume: PersistentVolume) -> None:
        name, affinity = volume.metadata.name, volume.affinity
        self.remove(name)
        self._volumes[name] = volume
        self.by_class.put(volume.storage_class, name, volume, _index_labels(affinity), affinity_keys(affinity))
        self._count_free(volume, 1)
        if volume.spec.claim_ref is not None:
            self._by_claim.setdefault(volume.spec.claim_ref.key, {})[name] = volume

    def remove(self, name: str) -> PersistentVolume | None:
        volume = self._volumes.pop(name, None)
        if volume is None:
            return None
        self._count_free(volume, -1)
        affinity = volume.affinity
        self.by_class.remove(volume.storage_class, name, _index_labels(affinity), affinity_keys(affinity))
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

    def count_assumed(self, name: str, change: int) -> None:
        """Count a volume as assumed for one more pod (1), or for one less (-1)."""
        volume = self._volumes.get(name)
        if volume is not None:
            self._count_free(volume, -1)
        shift(self._assumed, name, change)
        if volume is not None:
            self._count_free(volume, 1)

    def has_free(self, storage_class: str, label: Label | None) -> bool:
        """Return whether a label finds a volume of a class that no claim has; for None, whether one requires none."""
        return (storage_class, label) in self._free

    def _count_free(self, volume: PersistentVolume, change: int) -> None:
        if volume.spec.claim_ref is None and volume.metadata.name not in self._assumed:
            for label in _index_labels(volume.affinity):
                shift(self._free, (volume.storage_class, label), change)

    def check(self, assumed: Mapping[str, int]) -> None:
        fresh = PvIndex(self._volumes.values(), assumed)
        assert (fresh._assumed, fresh._free) == (self._assumed, self._free), "the free volumes are not those counted"
        assert fresh.by_class == self.by_class, "the volumes by class are not those that are there"
        assert fresh._by_claim == self._by_claim, "the volumes by claim are not those that are there"


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

"""VolumeBinding's search: find the volume that a claim gets on a node with given labels. Pure.

Source: FindMatchingVolume of the volume controller, as the scheduler calls it: a volume that is reserved for the claim,
otherwise the smallest one that is large enough, free, and usable on the node.
"""

from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass
from heapq import merge
from itertools import repeat
from typing import NamedTuple

from scheduler.cache.volumes.plan import Match, Provision, VolumePlan
from scheduler.cache.volumes.storage_index import Label
from scheduler.cache.volumes.volume_cache import VolumeCache
from scheduler.kube.objects import NodeSelector, NodeSelectorTerm, Quantities
from scheduler.kube.outcomes import Refused
from scheduler.kube.resources import parse_quantity
from scheduler.kube.selection.selectors import EVERYTHING, Selector, matches, read_selector
from scheduler.kube.storage_objects import (
    NO_PROVISIONER,
    PersistentVolume,
    PersistentVolumeClaim,
    StorageClass,
    TopologyTerm,
)

Labels = Mapping[str, str | None]
# Why a claim gets no volume on a node.
NONE_FREE = "node(s) didn't find available persistent volumes to bind"
NO_ROOM = "node(s) did not have enough free storage"


def affinity_holds(affinity: NodeSelector | None, labels: Labels) -> bool:
    if affinity is None:
        return True
    return any(map(_term_holds, affinity.node_selector_terms or (), repeat(labels)))


def _term_holds(term: NodeSelectorTerm, labels: Labels) -> bool:
    # kube-scheduler and kubelet match a volume against the node's labels only; fields are ignored.
    if not term.match_fields and not term.match_expressions:
        return False
    return all(matches(requirement, labels.get(requirement.key)) for requirement in term.match_expressions or ())


def allows_topology(storage_class: StorageClass, labels: Labels) -> bool:
    terms = storage_class.allowed_topologies
    return not terms or any(map(_topology_holds, terms, repeat(labels)))


def _topology_holds(term: TopologyTerm, labels: Labels) -> bool:
    required_labels = term.match_label_expressions or ()
    return bool(required_labels) and all(labels.get(label.key) in (label.values or ()) for label in required_labels)


class _Request(NamedTuple):
    """A claim's requirements on a volume, ``size`` in bytes; ``selector`` is None if no volume can match it."""

    storage_class: str
    size: int
    access_modes: tuple[str, ...]
    volume_mode: str
    attributes_class: str
    selector: Selector | None

    @classmethod
    def of(cls, claim: PersistentVolumeClaim) -> "_Request":
        spec = claim.spec
        return cls(
            claim.storage_class,
            _size(claim.spec.resources.requests if claim.spec.resources else None),
            tuple(spec.access_modes or ()),
            spec.volume_mode or "Filesystem",
            spec.volume_attributes_class_name or "",
            _selector(claim),
        )

    def can_be(self, volume: PersistentVolume) -> bool:
        spec = volume.spec
        if volume.metadata.deletion_timestamp is not None or _size(spec.capacity) < self.size:
            return False
        volume_kind = spec.volume_mode or "Filesystem", spec.volume_attributes_class_name or ""
        return volume_kind == (self.volume_mode, self.attributes_class)

    def suits(self, volume: PersistentVolume) -> bool:
        if volume.status.phase != "Available" or not self.can_be(volume):
            return False
        if self.selector is None or not set(self.access_modes).issubset(volume.spec.access_modes or ()):
            return False
        return self.selector == EVERYTHING or self.selector.matches(volume.metadata.labels or {})


class _Candidates:
    """The free volumes that claims with one request could get, the smallest first; for one decision."""

    def __init__(self, request: _Request, volume_cache: VolumeCache) -> None:
        self.request, self._volume_cache = request, volume_cache
        # Each volume is evaluated once, however many nodes have the label that finds it.
        self._volumes_by_label: dict[Label | None, list[PersistentVolume]] = {}

    def near(self, labels: Labels) -> Iterable[PersistentVolume]:
        """Return those that a node with these labels can use, and possibly others."""
        candidates = [
            self._of(label) for label in self._volume_cache.pv_index.by_class.near(self.request.storage_class, labels)
        ]
        return candidates[0] if len(candidates) == 1 else merge(*candidates, key=_order)

    def _of(self, label: Label | None) -> list[PersistentVolume]:
        candidates = self._volumes_by_label.get(label)
        if candidates is None:
            volumes = self._volume_cache.pv_index.by_class.items(self.request.storage_class, label)
            candidates = [
                volume for volume in volumes if self._volume_cache.is_free(volume) and self.request.suits(volume)
            ]
            if len(candidates) > 1:
                candidates.sort(key=_order)
            self._volumes_by_label[label] = candidates
        return candidates


def _order(volume: PersistentVolume) -> tuple[int, str]:
    return _size(volume.spec.capacity), volume.metadata.name


@dataclass(frozen=True, slots=True)
class UnboundClaim:
    """An unbound claim, with what is the same on every node.

    ``own_volumes`` are reserved for the claim, and ``maker`` is its class if that provisions volumes. Claims with equal
    requests share their ``candidates``.
    """

    claim: PersistentVolumeClaim
    candidates: _Candidates
    is_being_made: bool
    own_volumes: tuple[PersistentVolume, ...]
    maker: StorageClass | None

    @property
    def size(self) -> int:
        return self.candidates.request.size

    @property
    def needs_free(self) -> bool:
        """Return whether the claim gets a volume only if one is free."""
        return self.maker is None and not self.own_volumes and not self.is_being_made


def unbound_claims(claims: Iterable[PersistentVolumeClaim], volume_cache: VolumeCache) -> list[UnboundClaim]:
    """Return what these claims request, in allocation order: first those that have started, then the smallest."""
    candidates = dict[_Request, _Candidates]()
    unbound = list[UnboundClaim]()
    for claim in claims:
        request = _Request.of(claim)
        if request not in candidates:
            candidates[request] = _Candidates(request, volume_cache)
        is_being_made = bool(volume_cache.selected_node(claim))
        own_volumes, maker = tuple(_own_volumes(claim, volume_cache)), _find_maker(claim, volume_cache)
        unbound.append(UnboundClaim(claim, candidates[request], is_being_made, own_volumes, maker))
    return sorted(unbound, key=lambda claim: (not claim.is_being_made, claim.size, claim.claim.key))


def make_plan(
    unbound: Iterable[UnboundClaim], volume_cache: VolumeCache, node: str, labels: Labels
) -> VolumePlan | Refused:
    """Return how these claims get their volumes on a node, or why they cannot all have one there.

    The caller ensures that a claim with a selected node is considered only where its volume will be usable.
    """
    matches, provisions, volume_names = list[Match](), list[Provision](), set[str]()
    for claim in unbound:
        volume = None if claim.is_being_made else _find_volume(claim, labels, volume_names)
        if volume is not None:
            volume_names.add(volume.metadata.name)
            matches.append(Match(claim.claim, volume))
        elif claim.maker is None or not allows_topology(claim.maker, labels):
            return Refused(NONE_FREE)
        elif not volume_cache.capacities.has_room(claim.maker, claim.size, labels):
            return Refused(NO_ROOM)
        else:
            provisions.append(Provision(claim.claim, volume_cache.selected_node(claim.claim) or node))
    return VolumePlan(node, tuple(matches), tuple(provisions))


def _find_maker(claim: PersistentVolumeClaim, volume_cache: VolumeCache) -> StorageClass | None:
    """Return the class that can provision a claim's volume; None if its volumes are created by hand."""
    storage_class = volume_cache.storage_class(claim.storage_class)
    return None if storage_class is None or storage_class.provisioner in ("", NO_PROVISIONER) else storage_class


def _find_volume(unbound: UnboundClaim, labels: Labels, excluded_names: Collection[str]) -> PersistentVolume | None:
    for volume in unbound.own_volumes:
        if volume.metadata.name not in excluded_names and unbound.candidates.request.can_be(volume):
            return volume if affinity_holds(volume.affinity, labels) else None
    for volume in unbound.candidates.near(labels):
        if volume.metadata.name not in excluded_names and affinity_holds(volume.affinity, labels):
            return volume
    return None


def _own_volumes(claim: PersistentVolumeClaim, volume_cache: VolumeCache) -> list[PersistentVolume]:
    """Return the volumes of the claim's class that are reserved for it, by their claimRef or by an assumed plan."""
    assumed_volume = volume_cache.pv_index.get(volume_cache.plans.volume_of(claim.key))
    candidates = [] if assumed_volume is None else [assumed_volume]
    candidates += sorted(volume_cache.pv_index.of_claim(claim.key), key=lambda volume: volume.metadata.name)
    owners = ((claim.key, ""), (claim.key, claim.metadata.uid))
    return [
        volume
        for volume in candidates
        if volume.storage_class == claim.storage_class and volume_cache.owner(volume) in owners
    ]


def _selector(claim: PersistentVolumeClaim) -> Selector | None:
    if claim.spec.selector is None:
        return EVERYTHING
    try:
        return read_selector(claim.spec.selector)
    except ValueError:
        return None


def _size(quantities: Quantities | None) -> int:
    """Return the bytes of storage that are named; 0 if they cannot be read."""
    try:
        return parse_quantity((quantities or {}).get("storage", 0))
    except ValueError:
        return 0

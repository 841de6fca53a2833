"""VolumeBinding's search: find the volume that a claim gets on a node with given labels. Pure.

Source: FindMatchingVolume of the volume controller, as the scheduler calls it: a volume that is reserved for the claim,
else the smallest one that is large enough, free, and usable on the node.
"""

from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass

from scheduler.cache.volumes.plan import Match, VolumePlan
from scheduler.cache.volumes.volume_cache import VolumeCache
from scheduler.kube.objects import NodeSelector, NodeSelectorTerm, Quantities
from scheduler.kube.quantity import parse_quantity
from scheduler.kube.selection.node_selectors import matches
from scheduler.kube.selection.selectors import EVERYTHING, read_selector
from scheduler.kube.storage_objects import (
    NO_PROVISIONER,
    ONCE_PER_POD,
    PersistentVolume,
    PersistentVolumeClaim,
    StorageClass,
)

Labels = Mapping[str, str | None]
# Why a claim gets no volume on a node.
NONE_FREE = "node(s) didn't find available persistent volumes to bind"
NO_ROOM = "node(s) did not have enough free storage"


def affinity_holds(affinity: NodeSelector | None, labels: Labels) -> bool:
    """Return whether a node with these labels may use a volume."""
    if affinity is None:
        return True
    return any(_term_holds(term, labels) for term in affinity.node_selector_terms or ())


def _term_holds(term: NodeSelectorTerm, labels: Labels) -> bool:
    # kube-scheduler and kubelet match a volume against the node's labels only: fields are ignored.
    if not term.match_fields and not term.match_expressions:
        return False
    return all(matches(one, labels.get(one.key)) for one in term.match_expressions or ())


def topology_allowed(storage_class: StorageClass, labels: Labels) -> bool:
    """Return whether a class provisions volumes for a node with these labels."""
    terms = storage_class.allowed_topologies
    if not terms:
        return True
    return any(
        bool(term.match_label_expressions)
        and all(labels.get(one.key) in (one.values or ()) for one in term.match_label_expressions or ())
        for term in terms
    )


@dataclass(frozen=True, slots=True)
class UnboundClaim:
    """An unbound claim, with what is the same on every node.

    ``wanted`` is in bytes, ``own`` are the volumes reserved for the claim, ``maker`` is its class if that provisions
    them.
    """

    claim: PersistentVolumeClaim
    wanted: int
    is_being_made: bool
    own: tuple[PersistentVolume, ...]
    maker: StorageClass | None

    @property
    def needs_free(self) -> bool:
        """Return whether the claim gets a volume only where one is free."""
        return self.maker is None and not self.own and not self.is_being_made


def unbound_claims(claims: Iterable[PersistentVolumeClaim], volume_cache: VolumeCache) -> list[UnboundClaim]:
    """Return what these claims request, in allocation order: those that have begun, then the smallest, first."""
    found = [
        UnboundClaim(
            claim=claim,
            wanted=requested(claim),
            is_being_made=bool(volume_cache.selected_node(claim)),
            own=tuple(_own(claim, volume_cache)),
            maker=_maker(claim, volume_cache),
        )
        for claim in claims
    ]
    return sorted(found, key=lambda one: (not one.is_being_made, one.wanted, one.claim.key))


def make_plan(
    unbound: Iterable[UnboundClaim], volume_cache: VolumeCache, node: str, labels: Labels
) -> VolumePlan | str:
    """Return how these claims get their volumes on a node, or why they cannot all have one there.

    The caller ensures that claims with a selected node are considered for that node only.
    """
    found: list[Match] = []
    provisions: list[PersistentVolumeClaim] = []
    taken: set[str] = set()
    for one in unbound:
        volume = None if one.is_being_made else find_volume(one, volume_cache, labels, taken)
        if volume is not None:
            taken.add(volume.metadata.name)
            found.append(Match(one.claim, volume))
        elif one.maker is None or not topology_allowed(one.maker, labels):
            return NONE_FREE
        elif not volume_cache.capacities.has_room(one.maker, one.wanted, labels):
            return NO_ROOM
        else:
            provisions.append(one.claim)
    return VolumePlan(node, tuple(found), tuple(provisions))


def why_no_volume(unbound: Sequence[UnboundClaim], volume_cache: VolumeCache, labels: Labels) -> str:
    """Return why `make_plan` fails, empty if it does not.

    The common case, one claim and disks of the nodes' own, takes a short cut.
    """
    if len(unbound) == 1 and unbound[0].needs_free:
        one = unbound[0]
        near = volume_cache.pv_index.near(one.claim.storage_class, labels)
        is_there = any(
            _is_for(volume, one, volume_cache) and affinity_holds(volume.affinity, labels) for volume in near
        )
        return "" if is_there else NONE_FREE
    found = make_plan(unbound, volume_cache, "", labels)
    return found if isinstance(found, str) else ""


def _is_for(volume: PersistentVolume, unbound: UnboundClaim, volume_cache: VolumeCache) -> bool:
    """Return whether a claim could get this volume, which no claim has yet."""
    return volume_cache.is_free(volume) and _suits(volume, unbound.claim, unbound.wanted)


def _maker(claim: PersistentVolumeClaim, volume_cache: VolumeCache) -> StorageClass | None:
    """Return the class that can provision a claim's volume; None if its volumes are made by hand."""
    found = volume_cache.storage_class(claim.storage_class)
    return None if found is None or found.provisioner in ("", NO_PROVISIONER) else found


def find_volume(
    unbound: UnboundClaim, volume_cache: VolumeCache, labels: Labels, taken: Collection[str] = ()
) -> PersistentVolume | None:
    """Return the volume that a claim gets on a node with these labels; None without one."""
    claim, wanted = unbound.claim, unbound.wanted
    for own in unbound.own:
        if own.metadata.name not in taken and _can_be(own, claim, wanted):
            return own if affinity_holds(own.affinity, labels) else None
    best: tuple[int, str, PersistentVolume] | None = None
    for volume in volume_cache.pv_index.near(claim.storage_class, labels):
        name = volume.metadata.name
        if name not in taken and _is_for(volume, unbound, volume_cache) and affinity_holds(volume.affinity, labels):
            found = (_size(volume.spec.capacity), name, volume)
            best = found if best is None or found[:2] < best[:2] else best
    return best[2] if best is not None else None


def _own(claim: PersistentVolumeClaim, volume_cache: VolumeCache) -> list[PersistentVolume]:
    """Return the volumes of the claim's class that are reserved for it, by their claimRef or by an assumed plan."""
    assumed = volume_cache.pv_index.get(volume_cache.assumed.volume_of(claim.key))
    candidates = [] if assumed is None else [assumed]
    candidates += sorted(volume_cache.pv_index.of_claim(claim.key), key=lambda one: one.metadata.name)
    owners = ((claim.key, ""), (claim.key, claim.metadata.uid))
    return [one for one in candidates if one.storage_class == claim.storage_class and volume_cache.owner(one) in owners]


def _can_be(volume: PersistentVolume, claim: PersistentVolumeClaim, wanted: int) -> bool:
    """Return whether a volume can be bound to the claim at all."""
    if volume.metadata.deletion_timestamp is not None or _size(volume.spec.capacity) < wanted:
        return False
    same_mode = (volume.spec.volume_mode or "Filesystem") == (claim.spec.volume_mode or "Filesystem")
    attributes = volume.spec.volume_attributes_class_name or "", claim.spec.volume_attributes_class_name or ""
    return same_mode and attributes[0] == attributes[1]


def _suits(volume: PersistentVolume, claim: PersistentVolumeClaim, wanted: int) -> bool:
    """Return whether a free volume can be bound to the claim."""
    if volume.status.phase != "Available" or not _can_be(volume, claim, wanted):
        return False
    offered = volume.spec.access_modes or ()
    return all(mode in offered for mode in claim.spec.access_modes or ()) and _selects(claim, volume)


def _selects(claim: PersistentVolumeClaim, volume: PersistentVolume) -> bool:
    if claim.spec.selector is None:
        return True
    try:
        selector = read_selector(claim.spec.selector)
    except ValueError:
        return False
    return selector == EVERYTHING or selector.matches(volume.metadata.labels or {})


def requested(claim: PersistentVolumeClaim) -> int:
    """Return how many bytes a claim requests; 0 if that cannot be read."""
    return _size(claim.spec.resources.requests if claim.spec.resources else None)


def _size(quantities: Quantities | None) -> int:
    try:
        return parse_quantity((quantities or {}).get("storage", 0))
    except ValueError:
        return 0


def is_once_per_pod(claim: PersistentVolumeClaim) -> bool:
    return ONCE_PER_POD in (claim.spec.access_modes or ())

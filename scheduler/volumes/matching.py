"""Which volume a claim gets on a node with given labels. Pure.

Source: FindMatchingVolume of the volume controller, as the scheduler calls it: a volume that is for the claim already,
else the smallest that is large enough, is free, and can be used there.
"""

from collections.abc import Collection, Mapping, Sequence

from scheduler.objects import NodeSelector, NodeSelectorTerm, Quantities
from scheduler.plugins.node_affinity import matches
from scheduler.quantity import parse_quantity
from scheduler.selectors import EVERYTHING, read_selector
from scheduler.volumes.catalogue import Catalogue
from scheduler.volumes.objects import (
    NO_PROVISIONER,
    ONCE_PER_POD,
    PersistentVolume,
    PersistentVolumeClaim,
    StorageClass,
)
from scheduler.volumes.plan import Match, Plan

Labels = Mapping[str, str | None]


def affinity_holds(affinity: NodeSelector | None, labels: Labels) -> bool:
    """Say whether a node with these labels may use a volume."""
    if affinity is None:
        return True
    return any(_term_holds(term, labels) for term in affinity.node_selector_terms or ())


def _term_holds(term: NodeSelectorTerm, labels: Labels) -> bool:
    # The volume is held against the node's labels only: no field of the node is known here.
    if term.match_fields or not term.match_expressions:
        return False
    return all(matches(one, labels.get(one.key)) for one in term.match_expressions)


def topology_allowed(storage_class: StorageClass, labels: Labels) -> bool:
    """Say whether a class makes volumes for a node with these labels."""
    terms = storage_class.allowed_topologies
    if not terms:
        return True
    return any(
        bool(term.match_label_expressions)
        and all(labels.get(one.key) in (one.values or ()) for one in term.match_label_expressions or ())
        for term in terms
    )


def make_plan(claims: Sequence[PersistentVolumeClaim], catalogue: Catalogue, node: str, labels: Labels) -> Plan | None:
    """Return how these unbound claims get their volumes on a node; None if they cannot all have one there.

    Claims whose volume is being made for a node already are for that node only: that is the caller's to see to.
    """
    found: list[Match] = []
    provisions = [claim for claim in claims if catalogue.selected_node(claim)]
    taken: set[str] = set()
    for claim in sorted(claims, key=lambda one: (requested(one), one.key)):
        if catalogue.selected_node(claim):
            continue
        volume = find_volume(claim, catalogue, labels, taken)
        if volume is None:
            provisions.append(claim)
            continue
        taken.add(volume.metadata.name)
        found.append(Match(claim, volume))
    if not all(_can_provision(claim, catalogue, labels) for claim in provisions):
        return None
    return Plan(node, tuple(found), tuple(provisions))


def _can_provision(claim: PersistentVolumeClaim, catalogue: Catalogue, labels: Labels) -> bool:
    storage_class = catalogue.storage_class(claim.storage_class)
    if storage_class is None or storage_class.provisioner in ("", NO_PROVISIONER):
        return False
    return topology_allowed(storage_class, labels)


def find_volume(
    claim: PersistentVolumeClaim, catalogue: Catalogue, labels: Labels, taken: Collection[str] = ()
) -> PersistentVolume | None:
    """Return the volume that a claim gets on a node with these labels; None if there is none for it."""
    wanted = requested(claim)
    for own in _own(claim, catalogue):
        if own.metadata.name not in taken and _can_be(own, claim, wanted):
            return own if affinity_holds(own.affinity, labels) else None
    best: tuple[int, str, PersistentVolume] | None = None
    for volume in catalogue.shelf.near(claim.storage_class, labels):
        name = volume.metadata.name
        if name in taken or catalogue.owner(volume)[0] or not _suits(volume, claim, wanted):
            continue
        if affinity_holds(volume.affinity, labels):
            found = (_size(volume.spec.capacity), name, volume)
            best = found if best is None or found[:2] < best[:2] else best
    return best[2] if best is not None else None


def _own(claim: PersistentVolumeClaim, catalogue: Catalogue) -> list[PersistentVolume]:
    """Return the volumes of the claim's class that are for it already, by word of their own or by promise."""
    promised = catalogue.shelf.get(catalogue.promises.volume_of(claim.key))
    told = [] if promised is None else [promised]
    told += sorted(catalogue.shelf.of_claim(claim.key), key=lambda one: one.metadata.name)
    owners = ((claim.key, ""), (claim.key, claim.metadata.uid))
    return [one for one in told if one.storage_class == claim.storage_class and catalogue.owner(one) in owners]


def _can_be(volume: PersistentVolume, claim: PersistentVolumeClaim, wanted: int) -> bool:
    """Say whether a volume can be the claim's at all."""
    if volume.metadata.deletion_timestamp is not None or _size(volume.spec.capacity) < wanted:
        return False
    same_mode = (volume.spec.volume_mode or "Filesystem") == (claim.spec.volume_mode or "Filesystem")
    attributes = volume.spec.volume_attributes_class_name or "", claim.spec.volume_attributes_class_name or ""
    return same_mode and attributes[0] == attributes[1]


def _suits(volume: PersistentVolume, claim: PersistentVolumeClaim, wanted: int) -> bool:
    """Say whether a volume that is nobody's yet can be the claim's."""
    if volume.status.phase != "Available" or not _can_be(volume, claim, wanted):
        return False
    offered = set(volume.spec.access_modes or ())
    modes = set(claim.spec.access_modes or ())
    return modes <= offered and _selects(claim, volume)


def _selects(claim: PersistentVolumeClaim, volume: PersistentVolume) -> bool:
    if claim.spec.selector is None:
        return True
    try:
        selector = read_selector(claim.spec.selector)
    except ValueError:
        return False
    return selector == EVERYTHING or selector.matches(volume.metadata.labels or {})


def requested(claim: PersistentVolumeClaim) -> int:
    """Return how many bytes a claim asks for; what cannot be read is none."""
    return _size(claim.spec.resources.requests if claim.spec.resources else None)


def _size(quantities: Quantities | None) -> int:
    try:
        return parse_quantity((quantities or {}).get("storage", 0))
    except ValueError:
        return 0


def is_once_per_pod(claim: PersistentVolumeClaim) -> bool:
    return ONCE_PER_POD in (claim.spec.access_modes or ())

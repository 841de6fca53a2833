"""VolumeBinding: a node must be able to use the pod's bound volumes, and to get a volume for each other claim.

Results that are the same for all nodes with equal labels are computed once. Source: kube-scheduler's volumebinding.
"""

from collections.abc import Iterable, Mapping, Sequence
from functools import partial
from typing import NamedTuple

import numpy as np

from scheduler.cache.column import Amounts
from scheduler.cache.node_columns import Flags, NodeColumns, Rows
from scheduler.cache.volumes.plan import VolumePlan
from scheduler.cache.volumes.storage_index import PvIndex, affinity_keys
from scheduler.cache.volumes.volume_cache import VolumeCache
from scheduler.kube.cluster_event import ClusterEvent
from scheduler.kube.objects import NodeSelector
from scheduler.kube.outcomes import Refused
from scheduler.kube.pod_info import PodInfo
from scheduler.kube.storage_objects import ClaimUse, PersistentVolumeClaim
from scheduler.plugins.interface import Filter, Refusals, VolumeFilterPlugin
from scheduler.plugins.volume_rules.volume_matching import (
    NO_ROOM,
    NONE_FREE,
    UnboundClaim,
    affinity_holds,
    make_plan,
    unbound_claims,
)

_UNBOUND = "pod has unbound immediate PersistentVolumeClaims"
_CONFLICT = "node(s) didn't match PersistentVolume's node affinity"
_NO_SUCH_VOLUME = "node(s) unavailable due to one or more pvc(s) bound to non-existent pv(s)"
_WAITS = "WaitForFirstConsumer"
# Several may apply to one node; in the order in which kube-scheduler names them.
_CODES: Mapping[str, int] = {"": 0, _CONFLICT: 1, NONE_FREE: 2, NO_ROOM: 4, _NO_SUCH_VOLUME: 8}
_TEXTS = tuple(tuple(text for text, bit in _CODES.items() if code & bit) for code in range(1, 16))


class _Claims(NamedTuple):
    """A pod's claims: those that have a volume, and those that get one once the pod's node is known."""

    with_volume: list[PersistentVolumeClaim]
    without_volume: list[PersistentVolumeClaim]


def _sort_claims(pod_info: PodInfo, volume_cache: VolumeCache) -> _Claims | Refused:
    """Sort a pod's claims; return the reason why it fits no node, if one of them is invalid."""
    claims, reason = _Claims([], []), ""
    for use in pod_info.volumes:
        claim = volume_cache.claim(use.key)
        fault = _fault(use, claim, pod_info)
        if claim is None or fault:
            return Refused(fault)
        if claim.is_bound:
            claims.with_volume.append(claim)
            continue
        storage_class = volume_cache.storage_class(claim.storage_class)
        # A claim without a class gets its volume at once.
        mode = "" if storage_class is None else storage_class.volume_binding_mode
        if mode is None:
            return Refused(f'VolumeBindingMode not set for StorageClass "{claim.storage_class}"')
        if mode == _WAITS and not claim.spec.volume_name:
            claims.without_volume.append(claim)
        else:
            reason = _UNBOUND
    return Refused(reason) if reason else claims


def no_such_claim(name: str) -> str:
    return f'persistentvolumeclaim "{name}" not found'


def no_such_volume(name: str) -> str:
    return f'persistentvolume "{name}" not found'


def claim_in_deletion(name: str) -> str:
    return f'persistentvolumeclaim "{name}" is being deleted'


def _fault(use: ClaimUse, claim: PersistentVolumeClaim | None, pod_info: PodInfo) -> str:
    if claim is None and use.owner:
        return f'waiting for ephemeral volume controller to create the persistentvolumeclaim "{use.name}"'
    if claim is None:
        return no_such_claim(use.name)
    name = claim.metadata.name
    if claim.status.phase == "Lost":
        return f'persistentvolumeclaim "{name}" bound to non-existent persistentvolume "{claim.spec.volume_name}"'
    if claim.metadata.deletion_timestamp is not None:
        return claim_in_deletion(name)
    owners = claim.metadata.owner_references or ()
    if use.owner and not any(owner.controller and owner.uid == use.owner for owner in owners):
        return f"PVC {use.key} was not created for pod {pod_info.pod.key} (pod is not owner)"
    return ""


def pre_filter(pod_info: PodInfo, nodes: NodeColumns, volume_cache: VolumeCache) -> Filter | Refused | None:
    claims = _sort_claims(pod_info, volume_cache)
    if isinstance(claims, Refused):
        return claims
    unbound = unbound_claims(claims.without_volume, volume_cache)
    volumes = [volume_cache.pv_index.get(claim.spec.volume_name) for claim in claims.with_volume]
    affinities = [volume.affinity for volume in volumes if volume is not None and volume.affinity is not None]
    lacks_volume = None in volumes

    def filter_rows(rows: Rows) -> Refusals | None:
        # For each row all reasons against it: the sum of the texts' codes.
        codes = _obstacles(unbound, nodes, volume_cache, rows) + _CODES[_NO_SUCH_VOLUME] * lacks_volume
        for affinity in affinities:
            codes |= _CODES[_CONFLICT] * ~_holds(affinity, nodes, rows)
        return Refusals(codes, _TEXTS) if np.count_nonzero(codes) else None

    return filter_rows if lacks_volume or affinities or unbound else None


def plan(pod_info: PodInfo, nodes: NodeColumns, volume_cache: VolumeCache, row: int) -> VolumePlan | None:
    """Return what must be written before the pod can be bound to a node that passes; None if its volumes are bound."""
    claims = _sort_claims(pod_info, volume_cache)
    if isinstance(claims, Refused) or not claims.without_volume:
        return None
    unbound = unbound_claims(claims.without_volume, volume_cache)
    labels = {key: nodes.label(key)[row] for key in _keys(unbound, volume_cache)}
    volume_plan = make_plan(unbound, volume_cache, nodes.names[row], labels)
    return None if isinstance(volume_plan, Refused) else volume_plan


def _holds(affinity: NodeSelector, nodes: NodeColumns, rows: Rows) -> Flags:
    keys = sorted(affinity_keys(affinity))
    if len(keys) == 1:
        # The usual case: a volume is in one zone, or on one node.
        (key,) = keys
        flags: Flags = nodes.label(key).spread(lambda value: affinity_holds(affinity, {key: value}), rows) != 0
        return flags
    kinds, kind_of = _kinds(nodes, keys, rows)
    return np.array([affinity_holds(affinity, labels) for labels in kinds], np.bool_)[kind_of]


def _obstacles(unbound: Sequence[UnboundClaim], nodes: NodeColumns, volume_cache: VolumeCache, rows: Rows) -> Amounts:
    """Return for each node the code of why these claims cannot all get a volume there; 0 if they can."""
    codes: Amounts = np.zeros(len(rows), np.int64)
    if not unbound:
        return codes
    for claim in unbound:
        if node := volume_cache.selected_node(claim.claim):
            codes[~_is_near(claim, node, nodes, volume_cache, rows)] = _CODES[NONE_FREE]
    if unbound[0].needs_free:
        codes[~_may_be_free(unbound[0], nodes, volume_cache, rows)] = _CODES[NONE_FREE]
    places = np.flatnonzero(codes == 0)
    if not len(places):
        return codes
    kinds, kind_of = _kinds(nodes, _keys(unbound, volume_cache), rows[places])
    plans = [make_plan(unbound, volume_cache, "", labels) for labels in kinds]
    kind_codes = [_CODES[plan.reason] if isinstance(plan, Refused) else 0 for plan in plans]
    codes[places] = np.array(kind_codes, np.int64)[kind_of]
    return codes


def _is_near(claim: UnboundClaim, node: str, nodes: NodeColumns, volume_cache: VolumeCache, rows: Rows) -> Flags:
    """Return for each row whether a volume that is provisioned for a node can be expected to be usable there.

    Other nodes than that one count only for members of a group that are scheduled together: none is bound before the
    volume exists and its node affinity matches (`scheduler.pending.volume_waits`). Until then the driver's topology
    keys show where it will be usable; a volume of a driver without any is usable everywhere. kube-scheduler allows only
    that node. Source: FindPodVolumes in pkg/scheduler/framework/plugins/volumebinding/binder.go.
    """
    row = nodes.row_of.get(node, -1)
    near: Flags = rows == row
    if row < 0 or claim.maker is None or not volume_cache.is_only_tried(claim.claim):
        return near
    near = np.ones(len(rows), np.bool_)
    for key in volume_cache.topology_keys(node, claim.maker.provisioner):
        ids = nodes.label(key).ids
        near &= ids[rows] == ids[row]
    return near


def _may_be_free(claim: UnboundClaim, nodes: NodeColumns, volume_cache: VolumeCache, rows: Rows) -> Flags:
    """Return for each row whether it has a label that finds a free volume: far cheaper than a plan."""
    pv_index, storage_class = volume_cache.pv_index, claim.claim.storage_class
    flags: Flags = np.full(len(rows), pv_index.has_free(storage_class, None))
    for key in pv_index.by_class.label_keys(storage_class):
        flags |= nodes.label(key).spread(partial(_has_free, pv_index, storage_class, key), rows) != 0
    return flags


def _has_free(pv_index: PvIndex, storage_class: str, key: str, value: str | None) -> bool:
    return value is not None and pv_index.has_free(storage_class, (key, value))


def _keys(unbound: Iterable[UnboundClaim], volume_cache: VolumeCache) -> list[str]:
    """Return all node labels that can affect these claims."""
    keys: set[str] = set()
    for claim in (unbound_claim.claim for unbound_claim in unbound):
        keys.update(volume_cache.pv_index.by_class.label_keys(claim.storage_class))
        for volume in volume_cache.pv_index.of_claim(claim.key):
            keys.update(volume_cache.pv_index.by_class.label_keys(volume.storage_class))
        keys.update(volume_cache.capacities.by_class.label_keys(claim.storage_class))
        storage_class = volume_cache.storage_class(claim.storage_class)
        for term in (storage_class.allowed_topologies if storage_class is not None else None) or ():
            keys.update(requirement.key for requirement in term.match_label_expressions or ())
    return sorted(keys)


def _kinds(nodes: NodeColumns, keys: Sequence[str], rows: Rows) -> tuple[list[dict[str, str | None]], Rows]:
    """Return the distinct combinations of these labels, and which of them each row has."""
    kind_of = np.zeros(len(rows), np.intp)
    for key in keys:
        column = nodes.label(key)
        _, kind_of = np.unique(kind_of * len(column.values) + column.ids[rows], return_inverse=True)
    _, first_places = np.unique(kind_of, return_index=True)
    kinds = [{key: nodes.label(key)[row] for key in keys} for row in rows[first_places].tolist()]
    return kinds, kind_of


_REQUEUE_ON = ClusterEvent.CLAIM | ClusterEvent.VOLUME | ClusterEvent.STORAGE_CLASS | ClusterEvent.NODE_LABELS
FILTER = VolumeFilterPlugin("VolumeBinding", pre_filter, _REQUEUE_ON)

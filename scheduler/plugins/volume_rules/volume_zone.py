"""VolumeZone: if a bound volume's labels name its zone or region, its node must be there too.

A node that has none of these labels is in every zone; ephemeral volumes are not checked. Source: kube-scheduler's
volumezone.
"""

from collections.abc import Mapping

import numpy as np

from scheduler.cache.node_columns import Flags, NodeColumns, Rows
from scheduler.cache.volumes.volume_cache import VolumeCache
from scheduler.kube.cluster_event import ClusterEvent
from scheduler.kube.outcomes import Refused
from scheduler.kube.pod_info import PodInfo
from scheduler.plugins.interface import Filter, Refusals, VolumeFilterPlugin, refuse_where
from scheduler.plugins.volume_rules.volume_binding import volume_not_found

_REASON = "node(s) had no available volume zone"
# The deprecated labels and their replacements.
_ZONE, _REGION = "topology.kubernetes.io/zone", "topology.kubernetes.io/region"
_LABELS: Mapping[str, str] = {
    "failure-domain.beta.kubernetes.io/zone": _ZONE,
    "failure-domain.beta.kubernetes.io/region": _REGION,
    _ZONE: _ZONE,
    _REGION: _REGION,
}


def pre_filter(pod_info: PodInfo, nodes: NodeColumns, volume_cache: VolumeCache) -> Filter | Refused | None:
    demands: list[tuple[str, frozenset[str]]] = []
    for use in pod_info.volumes:
        claim = volume_cache.claim(use.key)
        if use.owner or claim is None or not claim.spec.volume_name:
            continue
        volume = volume_cache.pv_index.get(claim.spec.volume_name)
        if volume is None:
            return Refused(volume_not_found(claim.spec.volume_name))
        labels = volume.metadata.labels or {}
        demands += [(key, zones) for key in _LABELS if (zones := _zones(labels.get(key, "")))]
    return (lambda rows: _refuse(demands, nodes, rows)) if demands else None


def _refuse(demands: list[tuple[str, frozenset[str]]], nodes: NodeColumns, rows: Rows) -> Refusals | None:
    outside: Flags = np.zeros(len(rows), np.bool_)
    for key, zones in demands:
        newer = _lacks(nodes, rows, key) & nodes.label(_LABELS[key]).among(zones, rows)
        outside |= ~(nodes.label(key).among(zones, rows) | newer)
    has_zone: Flags = np.zeros(len(rows), np.bool_)
    for key in _LABELS:
        has_zone |= ~_lacks(nodes, rows, key)
    return refuse_where(outside & has_zone, _REASON)


def _lacks(nodes: NodeColumns, rows: Rows, key: str) -> Flags:
    flags: Flags = nodes.label(key).ids[rows] == 0
    return flags


def _zones(label: str) -> frozenset[str]:
    """Return the zones that a label names, which may be several; none if one of them is empty."""
    zones = frozenset(zone.strip() for zone in label.split("__"))
    return frozenset() if "" in zones else zones


_REQUEUE_ON = ClusterEvent.NODE_ADDED | ClusterEvent.NODE_LABELS | ClusterEvent.CLAIM | ClusterEvent.VOLUME
FILTER = VolumeFilterPlugin("VolumeZone", pre_filter, _REQUEUE_ON)

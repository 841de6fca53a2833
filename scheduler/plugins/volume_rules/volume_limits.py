"""Where a pod's volumes exclude nodes, apart from VolumeBinding. Source: kube-scheduler's plugins of these names.

VolumeRestrictions: a claim for one pod only is used by one pod at a time.

NodeVolumeLimits: a node's CSI drivers limit how many volumes can be attached to it. A volume counts once, however many
pods use it there, and also while it is attached to the node without a pod.

VolumeZone: if a bound volume's labels name its zone or region, its node must be there too. A node that has none of
these labels is in every zone; ephemeral volumes are not checked.
"""

from collections import Counter
from collections.abc import Iterable, Mapping

import numpy as np

from scheduler.cache.node_columns import Flags, NodeColumns, Rows
from scheduler.cache.volumes.volume_cache import VolumeCache
from scheduler.kube.cluster_event import ClusterEvent
from scheduler.kube.outcomes import Refused
from scheduler.kube.pod_info import PodInfo
from scheduler.kube.storage_objects import ONCE_PER_POD, PersistentVolume
from scheduler.plugins.interface import Filter, Refusals, VolumeFilterPlugin, refuse_where
from scheduler.plugins.volume_rules.volume_binding import no_such_claim, no_such_volume

# A driver's name, and what identifies the volume to it.
Handle = tuple[str, str]
_IN_USE = (
    "node(s) unavailable due to PersistentVolumeClaim with ReadWriteOncePod access mode already in-use by another pod"
)
_LIMIT = "node(s) exceed max volume count"
_OTHER_ZONE = "node(s) had no available volume zone"
# The deprecated labels and their replacements.
_ZONE_LABEL, _REGION_LABEL = "topology.kubernetes.io/zone", "topology.kubernetes.io/region"
_LABELS: Mapping[str, str] = {
    "failure-domain.beta.kubernetes.io/zone": _ZONE_LABEL,
    "failure-domain.beta.kubernetes.io/region": _REGION_LABEL,
    _ZONE_LABEL: _ZONE_LABEL,
    _REGION_LABEL: _REGION_LABEL,
}


def pre_filter_restrictions(
    pod_info: PodInfo, nodes: NodeColumns, volume_cache: VolumeCache
) -> Filter | Refused | None:
    is_in_use = False
    for use in pod_info.volumes:
        claim = volume_cache.claim(use.key)
        if claim is None and not use.owner:
            return Refused(no_such_claim(use.name))
        if claim is not None and not use.owner and ONCE_PER_POD in (claim.spec.access_modes or ()):
            is_in_use |= volume_cache.usage.is_used(use.key)
    return (lambda rows: refuse_where(np.ones(len(rows), np.bool_), _IN_USE)) if is_in_use else None


def pre_filter_limits(pod_info: PodInfo, nodes: NodeColumns, volume_cache: VolumeCache) -> Filter | Refused | None:
    handles = _handles((use.key for use in pod_info.volumes), volume_cache)
    if not handles or not volume_cache.has_limits:
        return None

    def is_full(row: int) -> bool:
        return _exceeds(handles, nodes.names[row], volume_cache)

    return lambda rows: refuse_where(np.fromiter(map(is_full, rows.tolist()), np.bool_, len(rows)), _LIMIT)


def _exceeds(handles: frozenset[Handle], node: str, volume_cache: VolumeCache) -> bool:
    limits = volume_cache.limits(node)
    lowest = min((limits[driver] for driver, _ in handles if driver in limits), default=None)
    claims, attachments = volume_cache.usage.claims_on(node), volume_cache.attached_to(node)
    if lowest is None or len(handles) + len(claims) + len(attachments) <= lowest:
        # An upper bound, however the volumes are distinguished.
        return False
    present = _handles(claims, volume_cache) | _attached_handles(node, volume_cache)
    counts: Mapping[str, int] = Counter(driver for driver, _ in present)
    counts_to_add = Counter(driver for driver, _ in handles - present)
    return any(counts[driver] + count > limits[driver] for driver, count in counts_to_add.items() if driver in limits)


def _handles(claims: Iterable[str], volume_cache: VolumeCache) -> frozenset[Handle]:
    return frozenset(filter(None, (_handle(key, volume_cache) for key in claims)))


def _handle(key: str, volume_cache: VolumeCache) -> Handle | None:
    """Return the driver's handle for a claim's volume; a volume that does not exist yet is identified by its claim."""
    claim = volume_cache.claim(key)
    if claim is None:
        return None
    volume = volume_cache.pv_index.get(claim.spec.volume_name) if claim.spec.volume_name else None
    if volume is not None:
        return _handle_of(volume)
    storage_class = volume_cache.storage_class(claim.storage_class)
    return (storage_class.provisioner, key) if storage_class is not None else None


def _attached_handles(node: str, volume_cache: VolumeCache) -> frozenset[Handle]:
    names = (attachment.spec.source.persistent_volume_name for attachment in volume_cache.attached_to(node))
    volumes = filter(None, (volume_cache.pv_index.get(name) for name in names if name))
    return frozenset(filter(None, map(_handle_of, volumes)))


def _handle_of(volume: PersistentVolume) -> Handle | None:
    csi = volume.spec.csi
    return (csi.driver, csi.volume_handle) if csi is not None else None


def pre_filter_zone(pod_info: PodInfo, nodes: NodeColumns, volume_cache: VolumeCache) -> Filter | Refused | None:
    demands: list[tuple[str, frozenset[str]]] = []
    for use in pod_info.volumes:
        claim = volume_cache.claim(use.key)
        if use.owner or claim is None or not claim.spec.volume_name:
            continue
        volume = volume_cache.pv_index.get(claim.spec.volume_name)
        if volume is None:
            return Refused(no_such_volume(claim.spec.volume_name))
        labels = volume.metadata.labels or {}
        demands += [(key, zones) for key in _LABELS if (zones := _zones(labels.get(key, "")))]
    return (lambda rows: _refuse_zones(demands, nodes, rows)) if demands else None


def _refuse_zones(demands: list[tuple[str, frozenset[str]]], nodes: NodeColumns, rows: Rows) -> Refusals | None:
    outside: Flags = np.zeros(len(rows), np.bool_)
    for key, zones in demands:
        newer = _lacks(nodes, rows, key) & nodes.label(_LABELS[key]).among(zones, rows)
        outside |= ~(nodes.label(key).among(zones, rows) | newer)
    has_zone: Flags = np.zeros(len(rows), np.bool_)
    for key in _LABELS:
        has_zone |= ~_lacks(nodes, rows, key)
    return refuse_where(outside & has_zone, _OTHER_ZONE)


def _lacks(nodes: NodeColumns, rows: Rows, key: str) -> Flags:
    flags: Flags = nodes.label(key).ids[rows] == 0
    return flags


def _zones(label: str) -> frozenset[str]:
    """Return the zones that a label names, which may be several; none if one of them is empty."""
    zones = frozenset(zone.strip() for zone in label.split("__"))
    return frozenset() if "" in zones else zones


RESTRICTIONS = VolumeFilterPlugin(
    "VolumeRestrictions",
    pre_filter_restrictions,
    ClusterEvent.CLAIM | ClusterEvent.VOLUMES_FREED,
)
NODE_LIMITS = VolumeFilterPlugin(
    "NodeVolumeLimits",
    pre_filter_limits,
    ClusterEvent.ATTACHMENTS | ClusterEvent.VOLUMES_FREED | ClusterEvent.CLAIM,
)
ZONE = VolumeFilterPlugin(
    "VolumeZone",
    pre_filter_zone,
    ClusterEvent.NODE_LABELS | ClusterEvent.CLAIM | ClusterEvent.VOLUME,
)

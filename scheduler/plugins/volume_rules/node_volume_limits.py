"""NodeVolumeLimits: a node's CSI drivers limit how many volumes can be attached to it.

A volume counts once, however many pods use it there, and also while it is attached to the node without a pod. Source:
kube-scheduler's nodevolumelimits.
"""

from collections import Counter
from collections.abc import Iterable, Mapping

import numpy as np

from scheduler.cache.node_columns import NodeColumns, Rows
from scheduler.cache.volumes.volume_cache import VolumeCache
from scheduler.kube.cluster_event import ClusterEvent
from scheduler.kube.outcomes import Refused
from scheduler.kube.pod_info import PodInfo
from scheduler.kube.storage_objects import PersistentVolume
from scheduler.plugins.interface import Filter, Refusals, VolumeFilterPlugin, refuse_where

# A driver's name, and what identifies the volume to it.
Handle = tuple[str, str]
_REASON = "node(s) exceed max volume count"


def pre_filter(pod_info: PodInfo, nodes: NodeColumns, volume_cache: VolumeCache) -> Filter | Refused | None:
    handles = _handles((use.key for use in pod_info.volumes), volume_cache)
    if not handles or not volume_cache.has_limits:
        return None

    def is_full(row: int) -> bool:
        return _exceeds(handles, nodes.names[row], volume_cache)

    def filter_rows(rows: Rows) -> Refusals | None:
        return refuse_where(np.fromiter(map(is_full, rows.tolist()), np.bool_, len(rows)), _REASON)

    return filter_rows


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
    handles = (_handle(key, volume_cache) for key in claims)
    return frozenset(handle for handle in handles if handle is not None)


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
    volumes = (volume_cache.pv_index.get(name) for name in names if name)
    handles = (_handle_of(volume) for volume in volumes if volume is not None)
    return frozenset(handle for handle in handles if handle is not None)


def _handle_of(volume: PersistentVolume) -> Handle | None:
    csi = volume.spec.csi
    return (csi.driver, csi.volume_handle) if csi is not None else None


_REQUEUE_ON = ClusterEvent.NODE_ADDED | ClusterEvent.ATTACHMENTS | ClusterEvent.VOLUMES_FREED | ClusterEvent.CLAIM
FILTER = VolumeFilterPlugin("NodeVolumeLimits", pre_filter, _REQUEUE_ON)

"""VolumeRestrictions: a claim for one pod only is used by one pod at a time. Source: kube-scheduler's
volumerestrictions.
"""

import numpy as np

from scheduler.cache.node_columns import NodeColumns
from scheduler.cache.volumes.volume_cache import VolumeCache
from scheduler.kube.cluster_event import ClusterEvent
from scheduler.kube.outcomes import Refused
from scheduler.kube.pod_info import PodInfo
from scheduler.kube.storage_objects import ONCE_PER_POD
from scheduler.plugins.interface import Filter, VolumeFilterPlugin, refuse_where
from scheduler.plugins.volume_rules.volume_binding import claim_not_found

_ONCE = (
    "node(s) unavailable due to PersistentVolumeClaim with ReadWriteOncePod access mode already in-use by another pod"
)


def pre_filter(pod_info: PodInfo, nodes: NodeColumns, volume_cache: VolumeCache) -> Filter | Refused | None:
    is_in_use = False
    for use in pod_info.volumes:
        claim = volume_cache.claim(use.key)
        if claim is None and not use.owner:
            return Refused(claim_not_found(use.name))
        if claim is not None and not use.owner and ONCE_PER_POD in (claim.spec.access_modes or ()):
            is_in_use |= volume_cache.usage.is_used(use.key)
    return (lambda rows: refuse_where(np.ones(len(rows), np.bool_), _ONCE)) if is_in_use else None


FILTER = VolumeFilterPlugin(
    "VolumeRestrictions",
    pre_filter,
    ClusterEvent.NODE_ADDED | ClusterEvent.CLAIM | ClusterEvent.VOLUMES_FREED,
)

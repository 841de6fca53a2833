"""VolumeRestrictions: a claim for one pod only is used by one pod at a time, and an exclusive disk by one node.

Source: kube-scheduler's volumerestrictions.
"""

import numpy as np

from scheduler.cache.node_columns import NodeColumns, Rows
from scheduler.cache.volumes.volume_cache import VolumeCache
from scheduler.kube.cluster_event import ClusterEvent
from scheduler.kube.pod_info import PodInfo
from scheduler.kube.refused import Refused
from scheduler.kube.storage_objects import ONCE_PER_POD
from scheduler.plugins.interface import Filter, Refusals, VolumeFilterPlugin, refuse_where, volume_moves
from scheduler.plugins.volume_rules.volume_binding import claim_not_found

_DISK = "node(s) had no available disk"
_ONCE = (
    "node(s) unavailable due to PersistentVolumeClaim with ReadWriteOncePod access mode already in-use by another pod"
)


def pre_filter(pod_info: PodInfo, nodes: NodeColumns, volume_cache: VolumeCache) -> Filter | Refused | None:
    is_in_use = False
    for use in pod_info.volumes.claims:
        claim = volume_cache.claim(use.key)
        if claim is None and not use.owner:
            return Refused(claim_not_found(use.name))
        if claim is not None and not use.owner and ONCE_PER_POD in (claim.spec.access_modes or ()):
            is_in_use |= volume_cache.usage.is_used(use.key)
    node_names = {node for disk in pod_info.volumes.disks for node in volume_cache.usage.nodes_in_conflict(disk)}
    if not is_in_use and not node_names:
        return None
    node_rows = np.array([nodes.row_of[node] for node in node_names if node in nodes.row_of], np.intp)

    def filter_rows(rows: Rows) -> Refusals | None:
        if is_in_use:
            return refuse_where(np.ones(len(rows), np.bool_), _ONCE)
        return refuse_where(np.isin(rows, node_rows), _DISK)

    return filter_rows


FILTER = VolumeFilterPlugin(
    "VolumeRestrictions",
    pre_filter,
    ClusterEvent.NODE_ADDED | ClusterEvent.CLAIM | ClusterEvent.VOLUMES_FREED,
    volume_moves,
)

"""VolumeRestrictions: a claim for one pod only is used by one pod at a time, and so is a disk by one node.

Source: kube-scheduler's volumerestrictions.
"""

import numpy as np

from scheduler.cache.node_columns import Nodes, Rows
from scheduler.cache.volumes.volume_cache import Catalogue
from scheduler.kube.pod_info import Task
from scheduler.kube.storage_objects import ONCE_PER_POD
from scheduler.plugins.interface import Filter, Refusals, VolumeRule, refuse_where
from scheduler.queue import Happening

_DISK = "node(s) had no available disk"
_ONCE = (
    "node(s) unavailable due to PersistentVolumeClaim with ReadWriteOncePod access mode already in-use by another pod"
)


def prepare(task: Task, nodes: Nodes, catalogue: Catalogue) -> Filter | str | None:
    is_in_use = False
    for use in task.volumes.claims:
        claim = catalogue.claim(use.key)
        if claim is None and not use.owner:
            return f'persistentvolumeclaim "{use.name}" not found'
        if claim is not None and not use.owner and ONCE_PER_POD in (claim.spec.access_modes or ()):
            is_in_use |= catalogue.usage.is_used(use.key)
    taken = {node for disk in task.volumes.disks for node in catalogue.usage.nodes_in_conflict(disk)}
    if not is_in_use and not taken:
        return None
    blocked = np.array([nodes.row_of[node] for node in taken if node in nodes.row_of], np.intp)

    def refuse(rows: Rows) -> Refusals | None:
        if is_in_use:
            return refuse_where(np.ones(len(rows), np.bool_), _ONCE)
        return refuse_where(np.isin(rows, blocked), _DISK)

    return refuse


RULE = VolumeRule("VolumeRestrictions", prepare, Happening.NODE_ADDED | Happening.CLAIM | Happening.VOLUMES_FREED)

"""Select the filters that read other pods and volumes, and evaluate them for one pod on the cluster's current state."""

from collections.abc import Iterable, Mapping, Sequence
from typing import NamedTuple

import numpy as np

from scheduler.cache.assigned_pod import AssignedPod
from scheduler.cache.cache import Cache
from scheduler.cache.node_columns import Rows
from scheduler.kube.cluster_event import NO_EVENT, ClusterEvent
from scheduler.kube.outcomes import Refused
from scheduler.kube.pod_info import PodInfo
from scheduler.kube.selection.affinity import AffinityInfo
from scheduler.plugins.interface import (
    ClusterFilter,
    ClusterFilterPlugin,
    Filter,
    PreFilterExtensions,
    Texts,
    VolumeFilterPlugin,
)
from scheduler.plugins.registry import CLUSTER_FILTERS, VOLUME_FILTERS

ClusterFilters = Sequence[tuple[ClusterFilterPlugin, ClusterFilter]]
VolumeFilters = Sequence[tuple[VolumeFilterPlugin, Filter]]


class NoNode(NamedTuple):
    """Report why a pod's volumes exclude every node."""

    reason: str
    requeue_on: ClusterEvent


def cluster_filters(pod_info: PodInfo, cache: Cache) -> ClusterFilters:
    filters, nodes, pod_counts = list[tuple[ClusterFilterPlugin, ClusterFilter]](), cache.nodes, cache.pod_counts
    for plugin in CLUSTER_FILTERS:
        cluster_filter = plugin.pre_filter(pod_info, nodes, pod_counts)
        if cluster_filter is not None:
            filters.append((plugin, cluster_filter))
    return filters


def volume_filters(pod_info: PodInfo, cache: Cache) -> VolumeFilters | NoNode:
    filters = list[tuple[VolumeFilterPlugin, Filter]]()
    for plugin in VOLUME_FILTERS if pod_info.volumes else ():
        volume_filter = plugin.pre_filter(pod_info, cache.nodes, cache.volumes)
        if isinstance(volume_filter, Refused):
            return NoNode(volume_filter.reason, plugin.requeue_on & ~ClusterEvent.NODE)
        if volume_filter is not None:
            filters.append((plugin, volume_filter))
    return filters


def requeue_on(pod_info: PodInfo, cache: Cache) -> ClusterEvent:
    """Return the events after which the filters of volumes and other pods may decide differently for a pod."""
    events = NO_EVENT
    for plugin in VOLUME_FILTERS if pod_info.volumes else ():
        events |= plugin.requeue_on
    for filter_plugin, _ in cluster_filters(pod_info, cache):
        events |= filter_plugin.requeue_on
    return events


class ClusterDryRun:
    """Hold the state of these filters that all dry runs of one pod share."""

    def __init__(self, pod_info: PodInfo, cache: Cache) -> None:
        self._pod_info, self._cache = pod_info, cache
        self._has_filters = bool(pod_info.volumes) or bool(cluster_filters(pod_info, cache))
        self._refusals: Mapping[int, Texts] | None = None
        # Whether a rule counts pods with this affinity info: all rules have run before the first move, so the answer
        # does not change.
        self._counted: dict[AffinityInfo, bool] = {}

    @property
    def needs_others(self) -> bool:
        return any(plugin.needs_others(self._pod_info) for plugin in CLUSTER_FILTERS)

    def move(self, row: int, assigned_pod: AssignedPod, sign: int) -> bool:
        """Move a pod onto a row (``sign`` 1) or off it (-1) in the cache's counts and usage of volumes, if they matter;
        return whether they do. Each move is undone before the dry runs of a pod end.
        """
        has_volumes = bool(self._pod_info.volumes and assigned_pod.volumes)
        if has_volumes:
            self._cache.volumes.usage.shift(self._cache.nodes.names[row], assigned_pod.volumes, sign)
        counts, info = self._cache.pod_counts, assigned_pod.affinity_info
        if info is None:
            return has_volumes
        if (is_counted := self._counted.get(info)) is None:
            is_counted = self._counted[info] = counts.is_counted(info)
        if is_counted:
            (counts.add if sign > 0 else counts.remove)(row, info)
        return has_volumes or is_counted

    def on(self, row: int, nominated: Sequence[AssignedPod]) -> "_OnRow | None":
        """Return the filters for a row on which these pods are nominated; None if no filter applies there."""
        # Removing pods cannot make such a filter reject the pod, but a nominated pod can.
        if self._has_filters or (nominated and _keep_others_off(nominated)):
            return _OnRow(self, row)
        return None

    def refusal_before(self, row: int) -> Texts:
        """Return the reasons against a row while no pod has been moved."""
        if self._refusals is None:
            self._refusals = self.refusals(self._cache.nodes.all_rows())
        return self._refusals.get(row, ())

    def refusals(self, rows: Rows) -> Mapping[int, Texts]:
        """Filter some rows with the cluster's current state; return the reasons by row."""
        volumes = volume_filters(self._pod_info, self._cache)
        judges = [item.filter for _, item in cluster_filters(self._pod_info, self._cache)]
        texts_by_row: dict[int, Texts] = {}
        # All filters run even if one rejects the row: which pods a filter counts is known only after it has run.
        for judge in (*(() if isinstance(volumes, NoNode) else [item for _, item in volumes]), *judges):
            refusals = judge(rows)
            if refusals is not None:
                indexes = np.flatnonzero(refusals.codes)
                texts_by_row = {int(rows[at]): refusals.texts[refusals.codes[at] - 1] for at in indexes} | texts_by_row
        return dict.fromkeys(rows.tolist(), (volumes.reason,)) if isinstance(volumes, NoNode) else texts_by_row


def _keep_others_off(nominated: Iterable[AssignedPod]) -> bool:
    return any(plugin.keeps_others_off(pod) for pod in nominated for plugin in CLUSTER_FILTERS)


class _OnRow(PreFilterExtensions):
    """Evaluate the filters on one node. Moves change the counts that the filters read; only a move that changes a count
    runs them again.
    """

    moves_cache = True

    def __init__(self, cluster: ClusterDryRun, row: int) -> None:
        self._cluster, self._row = cluster, row
        # Valid while only pods were moved that no filter counts.
        self._texts: Texts | None = cluster.refusal_before(row)

    def move_pods(self, assigned_pods: Sequence[AssignedPod], sign: int) -> None:
        for assigned_pod in assigned_pods:
            if self._cluster.move(self._row, assigned_pod, sign):
                self._texts = None

    def filter(self) -> Texts:
        if self._texts is None:
            self._texts = self._cluster.refusals(np.array([self._row])).get(self._row, ())
        return self._texts

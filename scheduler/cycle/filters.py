"""The filters that read other pods and volumes, on the cluster's current state; the rows that any filter rejects."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np

from scheduler.cache.cache import Cache
from scheduler.cache.node_columns import Flags, NodeColumns, Rows
from scheduler.cycle.signature_scores import SignatureScores
from scheduler.kube.cluster_event import NO_EVENT, ClusterEvent
from scheduler.kube.outcomes import Refused
from scheduler.kube.pod_info import PodInfo
from scheduler.plugins.interface import ClusterFilter, ClusterFilterPlugin, Filter, Texts, VolumeFilterPlugin
from scheduler.plugins.registry import CLUSTER_FILTERS, VOLUME_FILTERS

ClusterFilters = Sequence[tuple[ClusterFilterPlugin, ClusterFilter]]
VolumeFilters = Sequence[tuple[VolumeFilterPlugin, Filter]]
_OUTSIDE = "node(s) were outside the group's topology domain"


class NoNode(NamedTuple):
    """Why a pod's volumes exclude every node."""

    reason: str
    requeue_on: ClusterEvent


@dataclass(frozen=True, slots=True)
class RefusedRows:
    """Rows that a filter rejects, and its reasons; ``is_permanent`` if these hold whichever pods are removed."""

    requeue_on: ClusterEvent
    texts: Texts
    rows: Rows
    is_permanent: bool = False


@dataclass(frozen=True, slots=True)
class Among:
    """The rows on which a member of a group is tried, and the label whose value they must share; empty for none."""

    flags: Flags
    label: str = ""


def rows_of(refusals: Sequence[RefusedRows]) -> Rows:
    return np.concatenate([np.zeros(0, np.intp), *(refusal.rows for refusal in refusals)])


def cluster_filters(pod_info: PodInfo, cache: Cache) -> ClusterFilters:
    filters = ((plugin, plugin.pre_filter(pod_info, cache.nodes, cache.pod_counts)) for plugin in CLUSTER_FILTERS)
    return [(plugin, cluster_filter) for plugin, cluster_filter in filters if cluster_filter is not None]


def volume_filters(pod_info: PodInfo, cache: Cache) -> VolumeFilters | NoNode:
    filters = list[tuple[VolumeFilterPlugin, Filter]]()
    for plugin in VOLUME_FILTERS if pod_info.volumes else ():
        volume_filter = plugin.pre_filter(pod_info, cache.nodes, cache.volumes)
        if isinstance(volume_filter, Refused):
            return NoNode(volume_filter.reason, plugin.requeue_on & ~ClusterEvent.NODE)
        if volume_filter is not None:
            filters.append((plugin, volume_filter))
    return filters


def events_that_help(pod_info: PodInfo, cache: Cache) -> ClusterEvent:
    """Return the events that can help, from the filters of VFs, volumes and other pods that apply to a pod."""
    events = ClusterEvent.NODE_INVENTORY if pod_info.interfaces else NO_EVENT
    for plugin in VOLUME_FILTERS if pod_info.volumes else ():
        events |= plugin.requeue_on
    for cluster_plugin, _ in cluster_filters(pod_info, cache):
        events |= cluster_plugin.requeue_on
    return events


def sift(
    rows: Rows, filters: Sequence[tuple[VolumeFilterPlugin | ClusterFilterPlugin, Filter]]
) -> tuple[Rows, list[RefusedRows]]:
    """Return the rows that pass all of these filters, and the reasons of the others."""
    refused_rows = list[RefusedRows]()
    for plugin, judge in filters:
        refusals = judge(rows)
        if refusals is None:
            continue
        for code, texts in enumerate(refusals.texts, start=1):
            if len(matches := rows[refusals.codes == code]):
                is_permanent = isinstance(plugin, ClusterFilterPlugin) and texts in plugin.permanent
                refused_rows.append(RefusedRows(plugin.requeue_on, texts, matches, is_permanent))
        rows = rows[refusals.codes == 0]
    return rows, refused_rows


def refused_rows(signature_scores: SignatureScores, among: Among | None, nodes: NodeColumns) -> Iterator[RefusedRows]:
    for plugin, texts, rows in signature_scores.refusals():
        rows_among = rows if among is None else rows[among.flags[rows]]
        if len(rows_among):
            yield RefusedRows(plugin.requeue_on, texts, rows_among)
    if among is None:
        return
    outside = np.flatnonzero(nodes.valid[: nodes.size] & ~among.flags)
    lacks_label = nodes.label(among.label).ids[outside] == 0 if among.label else np.zeros(len(outside), np.bool_)
    for text, part in (f"node(s) had no label {among.label}", outside[lacks_label]), (_OUTSIDE, outside[~lacks_label]):
        if len(part):
            # The domain with most placed members can change when one of their nodes is removed.
            yield RefusedRows(ClusterEvent.NODE_LABELS | ClusterEvent.NODE_REMOVED, (text,), part)

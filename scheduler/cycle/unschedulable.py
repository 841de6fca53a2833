"""Explain why a pod fits no node: the reasons, counted by node, and the events that can help. Pure."""

from collections.abc import Sequence

from scheduler.cache.node_columns import NodeColumns
from scheduler.cycle.cluster_filters import NoNode
from scheduler.cycle.decisions import Unschedulable, Why
from scheduler.cycle.refusals import RefusedRows, no_node_available, none_available
from scheduler.kube.cluster_event import ClusterEvent
from scheduler.kube.pod_info import PodInfo


def on_no_node(pod_info: PodInfo, refusal: NoNode, nodes: NodeColumns) -> Unschedulable:
    total = len(nodes.row_of)
    why: Why = {"v": 1, "nodes": total, "counts": {refusal.reason: total}}
    return Unschedulable(pod_info, no_node_available(total, refusal.reason), refusal.requeue_on, why)


def unschedulable(
    pod_info: PodInfo, refusals: Sequence[RefusedRows], nodes: NodeColumns, max_named: int
) -> Unschedulable:
    """Return the reasons against all nodes; at most ``max_named`` nodes are listed for each."""
    total = len(nodes.row_of)
    if not total:
        nowhere = "no nodes available to schedule pods"
        return Unschedulable(pod_info, nowhere, ClusterEvent.NODE_ADDED, {"v": 1, "nodes": 0})
    counts: dict[str, int] = {}
    names: dict[str, list[str]] = {}
    # A new node can help, whatever the reasons against the existing nodes.
    events = ClusterEvent.NODE_ADDED
    for refusal in refusals:
        events |= refusal.requeue_on
        for text in refusal.texts:
            counts[text] = counts.get(text, 0) + len(refusal.rows)
            node_names = [nodes.names[row] for row in refusal.rows[:max_named]]
            names[text] = sorted([*names.get(text, ()), *node_names])[:max_named]
    why: Why = {"v": 1, "nodes": total, "counts": counts, "refused": names}
    return Unschedulable(pod_info, none_available(total, counts), events, why)

"""Why a pod fits no node: the rejected rows, the message in kube-scheduler's words, and the events that can help."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from scheduler.cache.node_columns import Flags, NodeColumns, Rows
from scheduler.cycle.decisions import Unschedulable, Why
from scheduler.cycle.filters import NoNode, RefusedRows
from scheduler.cycle.signature_scores import SignatureScores
from scheduler.kube.cluster_event import ClusterEvent
from scheduler.kube.pod_info import PodInfo

_OUTSIDE = "node(s) were outside the group's topology domain"


@dataclass(frozen=True, slots=True)
class Among:
    """The rows on which a member of a group is tried, and the label whose value they must share; empty for none."""

    flags: Flags
    label: str = ""


def rows_of(refusals: Sequence[RefusedRows]) -> Rows:
    return np.concatenate([np.zeros(0, np.intp), *(refusal.rows for refusal in refusals)])


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


def unschedulable(
    pod_info: PodInfo, refusals: Sequence[RefusedRows] | NoNode, nodes: NodeColumns, max_names: int
) -> Unschedulable:
    """Return the reasons against all nodes; at most ``max_names`` nodes are listed for each."""
    total = len(nodes.row_of)
    if isinstance(refusals, NoNode):
        why: Why = {"v": 1, "nodes": total, "counts": {refusals.reason: total}}
        return Unschedulable(pod_info, no_node_available(total, refusals.reason), refusals.requeue_on, why)
    if not total:
        no_nodes = "no nodes available to schedule pods"
        return Unschedulable(pod_info, no_nodes, ClusterEvent.NODE_ADDED, {"v": 1, "nodes": 0})
    counts: dict[str, int] = {}
    names: dict[str, list[str]] = {}
    # A new node can help, whatever the reasons against the existing nodes.
    events = ClusterEvent.NODE_ADDED
    for refusal in refusals:
        events |= refusal.requeue_on
        for text in refusal.texts:
            counts[text] = counts.get(text, 0) + len(refusal.rows)
            node_names = [nodes.names[row] for row in refusal.rows[:max_names]]
            names[text] = sorted([*names.get(text, ()), *node_names])[:max_names]
    why = {"v": 1, "nodes": total, "counts": counts, "refused": names}
    return Unschedulable(pod_info, none_available(total, counts), events, why)


def no_node_available(total: int, reasons: str) -> str:
    return f"0/{total} nodes are available: {reasons}."


def for_member(reason: str, number: int) -> str:
    """Return a message of `no_node_available` that names one member of a group; return other messages unchanged."""
    ending = "th" if number % 100 in (11, 12, 13) else {1: "st", 2: "nd", 3: "rd"}.get(number % 10, "th")
    return reason.replace("nodes are available: ", f"nodes are available for the {number}{ending} member: ", 1)


def none_available(total: int, counts: Mapping[str, int]) -> str:
    """Return `no_node_available` with the number of nodes for each reason."""
    return no_node_available(total, ", ".join(sorted(f"{count} {text}" for text, count in counts.items() if count)))

"""Explain why a group, or some of its members, is not placed, and which events can help. Pure.

Input: the members that are on their nodes in a snapshot, and why others are not. Output: the reason in the domain where
most members fit, with the events that can help any of them.
"""

from collections.abc import Sequence
from dataclasses import replace

import numpy as np

from scheduler.cache.groups.group_sources import MOST_SHAPES
from scheduler.cache.node_columns import NodeColumns, Rows
from scheduler.cycle.cycle import NAME_COUNT
from scheduler.cycle.decisions import GroupUnschedulable, Unschedulable
from scheduler.cycle.groups.domains import Target
from scheduler.cycle.groups.group_demand import GroupDemand, reads_other_nodes
from scheduler.cycle.groups.group_snapshot import GroupSnapshot, Refusals
from scheduler.cycle.placement_budget import TurnSpent
from scheduler.cycle.refusals import Among
from scheduler.kube.cluster_event import ANY_EVENT, NO_EVENT, ClusterEvent


def too_many_shapes(demand: GroupDemand) -> GroupUnschedulable:
    """Return that a group has too many shapes to be scheduled."""
    reason = f"its members make {len(demand.shapes)} different requests; the limit is {MOST_SHAPES}"
    return GroupUnschedulable(0, demand.min_members, Unschedulable(demand.members[0], reason, NO_EVENT, {"v": 1}))


def cluster_changed(demand: GroupDemand) -> GroupUnschedulable:
    """Return that the cluster changed faster than the group could be scheduled."""
    reason = "the cluster changed too often while the group was scheduled"
    refusal = Unschedulable(demand.members[0], reason, ANY_EVENT, {"v": 1})
    return GroupUnschedulable(0, demand.min_members, refusal, comes_again=True)


def shortage_of(snapshot: GroupSnapshot, target: Target, refusals: Refusals) -> GroupUnschedulable:
    """Return how many members fit in a domain, and why the first that fits nowhere does not."""
    binds, nodes = tuple(snapshot.binds.values()), snapshot.nodes
    node_names = [bind.assigned.node for bind in binds]
    refusal = next(iter(refusals.values()))
    refusal = _with_group(refusal, target.min_members, target.domain.rows(nodes), node_names, nodes)
    return GroupUnschedulable(len(binds), snapshot.demand.min_members, refusal, target.domain.text, binds)


def refusal_of_group(snapshot: GroupSnapshot, best: GroupUnschedulable) -> GroupUnschedulable:
    """Return why a group does not fit, from the domain where most members fit."""
    best = _of_all_domains(snapshot, best)
    return replace(best, refusal=_with_events_of_all(snapshot, best.refusal))


def _of_all_domains(snapshot: GroupSnapshot, best: GroupUnschedulable) -> GroupUnschedulable:
    """Return why a member fits in no domain, if no member fits anywhere: the tried domain then represents all of them.

    This does not apply if placed members determine the domain, or if the member would fit on networks that were not
    tried.
    """
    demand, nodes, member = snapshot.demand, snapshot.nodes, best.refusal.pod_info
    label = demand.group.within
    if best.fitting or not best.where or not label or demand.placed_pods:
        return best
    if demand.group.rails == "same":
        member = next(candidate for candidate in demand.members if candidate.uid == member.uid)
    inside = nodes.valid[: nodes.size] & (nodes.label(label).ids[: nodes.size] > 0)
    try:
        decision = snapshot.cycle.place(member, 0.0, snapshot.budget.placement, Among(inside, label))
    except TurnSpent:
        return best
    if not isinstance(decision, Unschedulable):
        # It fits, but in a domain that has too little room for the group.
        return best
    return replace(best, refusal=_with_group(decision, best.wanted, np.flatnonzero(inside), (), nodes), where="")


def _with_events_of_all(snapshot: GroupSnapshot, refusal: Unschedulable) -> Unschedulable:
    """Return a refusal with the events that can help any member, because a member may free its place for another."""
    group, kinds = snapshot.demand.group, snapshot.demand.kinds
    is_plain = group.rails is None and not group.within and not group.prefer and not group.slices
    if is_plain and len(kinds) == 1 and not reads_other_nodes(kinds[0]):
        return refusal
    events = refusal.requeue_on | ClusterEvent.ROOM | ClusterEvent.NODE
    if len(kinds) > MOST_SHAPES:
        # There are too many members to check which rules about other pods apply to each.
        return replace(refusal, requeue_on=events | ANY_EVENT)
    for member in kinds:
        events |= snapshot.cycle.events_that_help(member)
    return replace(refusal, requeue_on=events)


def _with_group(
    refusal: Unschedulable, count: int, inside: Rows, node_names: Sequence[str], nodes: NodeColumns
) -> Unschedulable:
    """Return a refusal that names the member, how many must be placed, and the nodes that block the group.

    These are of the rows ``inside``, first those that are not the ``node_names`` of members of the group.
    """
    member_rows = [nodes.row_of[node] for node in node_names]
    free = inside[~np.isin(inside, member_rows)]
    rows = [*free[:NAME_COUNT].tolist(), *dict.fromkeys(member_rows)][:NAME_COUNT]
    about = {
        "member": refusal.pod_info.pod.metadata.name,
        "fitting": len(node_names),
        "wanted": count,
        "nodes": [nodes.names[row] for row in rows],
    }
    return replace(refusal, why={**refusal.why, "group": about})

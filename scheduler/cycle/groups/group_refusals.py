"""Explain why a group, or some of its members, is not placed, and which events can help. Pure.

Input: the members that are on their nodes in a snapshot, and why others are not. Output: the reason in the domain where
most members fit, with the events that can help any of them.
"""

from collections.abc import Hashable, Mapping, Sequence
from dataclasses import replace

import numpy as np

from scheduler.cache.groups.group_sources import MOST_SHAPES
from scheduler.cache.node_columns import NodeColumns, Rows
from scheduler.cycle.cycle import NAME_COUNT
from scheduler.cycle.decisions import GroupUnschedulable, Unschedulable
from scheduler.cycle.groups.domains import Target
from scheduler.cycle.groups.group_demand import GroupDemand, reads_other_nodes
from scheduler.cycle.groups.group_snapshot import GroupSnapshot
from scheduler.cycle.placement_budget import PlacementBudget, TurnSpent
from scheduler.cycle.refusals import Among
from scheduler.kube.cluster_event import ANY_EVENT, LEAVING, NO_EVENT, ClusterEvent

# Why members do not fit, for one member of each kind.
Refusals = Mapping[Hashable, Unschedulable]


def too_many_shapes(demand: GroupDemand) -> GroupUnschedulable | None:
    """Return why a group with too many shapes is not scheduled; None if it has few enough."""
    if (count := len(demand.shapes)) <= MOST_SHAPES:
        return None
    reason = f"its members make {count} different requests; the limit is {MOST_SHAPES}"
    return GroupUnschedulable(0, demand.min_members, Unschedulable(demand.members[0], reason, NO_EVENT, {"v": 1}))


def overtaken(demand: GroupDemand) -> GroupUnschedulable:
    """Return that the cluster changed faster than the group could be scheduled."""
    reason = "the cluster changed too often while the group was scheduled"
    refusal = Unschedulable(demand.members[0], reason, ANY_EVENT, {"v": 1})
    return GroupUnschedulable(0, demand.min_members, refusal, comes_again=True)


def shortage_of(snapshot: GroupSnapshot, demand: GroupDemand, target: Target, refusals: Refusals) -> GroupUnschedulable:
    """Return how many members fit in a domain, and why the first that fits nowhere does not."""
    binds, nodes = tuple(snapshot.binds.values()), snapshot.cache.nodes
    placed_on = [bind.assigned.node for bind in binds]
    refusal = next(iter(refusals.values()))
    refusal = _hanging_on(refusal, target.wanted, target.domain.row_numbers(nodes), placed_on, nodes)
    return GroupUnschedulable(len(binds), demand.min_members, refusal, target.domain.text, binds)


def of_all_domains(
    snapshot: GroupSnapshot, demand: GroupDemand, best: GroupUnschedulable, budget: PlacementBudget
) -> GroupUnschedulable:
    """Return why a member fits in no domain, if no member fits anywhere: the tried domain then represents all of them.

    This does not apply if placed members determine the domain, or if the member would fit on networks that were not
    tried.
    """
    label, member = demand.group.within, best.refusal.pod_info
    if best.fitting or not best.where or not label or demand.placed_pods:
        return best
    if demand.group.rails == "same":
        member = next(candidate for candidate in demand.members if candidate.uid == member.uid)
    nodes = snapshot.cache.nodes
    inside = nodes.valid[: nodes.size] & (nodes.label(label).ids[: nodes.size] > 0)
    try:
        decision = snapshot.cycle.place(member, 0.0, budget, Among(inside, label))
    except TurnSpent:
        return best
    if not isinstance(decision, Unschedulable):
        # It fits, but in a domain that has too little room for the group.
        return best
    return replace(best, refusal=_hanging_on(decision, best.wanted, np.flatnonzero(inside), (), nodes), where="")


def with_events_of_all(snapshot: GroupSnapshot, demand: GroupDemand, refusal: Unschedulable) -> Unschedulable:
    """Return a refusal with the events that can help any member, because a member may free its place for another."""
    group, kinds = demand.group, demand.kinds
    is_plain = group.rails is None and not group.within and not group.prefer and not group.slices
    if is_plain and len(kinds) == 1 and not reads_other_nodes(kinds[0]):
        return refusal
    events = refusal.requeue_on | LEAVING | ClusterEvent.NODE
    if len(kinds) > MOST_SHAPES:
        # There are too many members to check which rules about other pods apply to each.
        return replace(refusal, requeue_on=events | ANY_EVENT)
    for member in kinds:
        events |= snapshot.cycle.events_that_help(member)
    return replace(refusal, requeue_on=events)


def _hanging_on(
    refusal: Unschedulable, count: int, inside: Rows, placed_on: Sequence[str], nodes: NodeColumns
) -> Unschedulable:
    """Return a refusal that names the member and the nodes that block the group, first nodes without members of the
    group.

    ``inside`` are the rows on which members were tried, and ``wanted`` is how many must be placed.
    """
    placed_rows = [nodes.row_of[node] for node in placed_on]
    free = inside[~np.isin(inside, placed_rows)]
    rows = [*free[:NAME_COUNT].tolist(), *dict.fromkeys(placed_rows)][:NAME_COUNT]
    about = {
        "member": refusal.pod_info.pod.metadata.name,
        "fitting": len(placed_on),
        "wanted": count,
        "nodes": [nodes.names[row] for row in rows],
    }
    return replace(refusal, why={**refusal.why, "group": about})

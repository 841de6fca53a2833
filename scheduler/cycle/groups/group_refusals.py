"""Why a group is not placed, or some of its members are left over, and what can help. Pure.

What it takes: members that are on their nodes in a snapshot, and why others are not. What it returns: what the group
hangs on, in the domain where the most members fit, with the events that can help any of them.
"""

from collections.abc import Hashable, Mapping, Sequence
from dataclasses import replace

import numpy as np

from scheduler.cache.groups.sources import MOST_SHAPES
from scheduler.cache.node_columns import NodeColumns, Rows
from scheduler.cycle.cycle import NAMED
from scheduler.cycle.decisions import GroupUnschedulable, Unschedulable
from scheduler.cycle.groups.domains import Target
from scheduler.cycle.groups.group_demand import GroupDemand
from scheduler.cycle.groups.group_snapshot import GroupSnapshot
from scheduler.cycle.groups.members import alike, are_interchangeable, together_by
from scheduler.cycle.placement_budget import PlacementBudget, TurnSpent
from scheduler.cycle.refusals import Among
from scheduler.kube.cluster_event import ANY_EVENT, LEAVING, NO_EVENT, ClusterEvent

# Why members do not fit, one of each kind.
Refusals = Mapping[Hashable, Unschedulable]


def too_many_shapes(demand: GroupDemand) -> GroupUnschedulable | None:
    """Return why a group is not decided about; None if it is."""
    if (count := len(demand.shapes)) <= MOST_SHAPES:
        return None
    reason = f"its members make {count} different requests; the limit is {MOST_SHAPES}"
    return GroupUnschedulable(0, demand.needed, Unschedulable(demand.members[0], reason, NO_EVENT, {"v": 1}))


def overtaken(demand: GroupDemand) -> GroupUnschedulable:
    """Return that the cluster changed faster than the group was decided about."""
    reason = "the cluster changed too often while the group was scheduled"
    refusal = Unschedulable(demand.members[0], reason, ANY_EVENT, {"v": 1})
    return GroupUnschedulable(0, demand.needed, refusal, comes_again=True)


def left_over(snapshot: GroupSnapshot, target: Target, refusals: Refusals) -> Unschedulable | None:
    """Return why members are left over beside those that are placed; None if none are."""
    refusal = _first(snapshot, target, refusals)
    if refusal is None:
        return None
    events = NO_EVENT
    for member_refusal in refusals.values():
        events |= member_refusal.requeue_on
    return replace(refusal, requeue_on=events)


def shortage_of(snapshot: GroupSnapshot, demand: GroupDemand, target: Target, refusals: Refusals) -> GroupUnschedulable:
    """Return how many members fit in a domain, and why no more do."""
    refusal = _first(snapshot, target, refusals)
    assert refusal is not None, "as many members wait as are needed"
    binds = tuple(snapshot.binds.values())
    return GroupUnschedulable(len(binds), demand.needed, refusal, target.domain.text, binds)


def of_all_domains(
    snapshot: GroupSnapshot, demand: GroupDemand, best: GroupUnschedulable, budget: PlacementBudget
) -> GroupUnschedulable:
    """Return why a member fits in no domain, where none does: the domain that was tried is like any other one.

    Unless its domain is given by placed members, or it would fit on other networks than those that were tried.
    """
    label, member = demand.group.within, best.refusal.pod_info
    if best.fitting or not best.where or not label or demand.placed:
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
        # It fits in a domain that has no room for as many as are needed.
        return best
    return replace(best, refusal=_hanging_on(decision, best.wanted, np.flatnonzero(inside), (), nodes), where="")


def with_events_of_all(snapshot: GroupSnapshot, demand: GroupDemand, refusal: Unschedulable) -> Unschedulable:
    """Return a refusal with the events that can help any member: each could leave its place to another one."""
    group, members = demand.group, demand.members
    is_plain = group.rails is None and not group.within and not group.prefer
    if is_plain and are_interchangeable(members) and not together_by(members):
        return refusal
    events = refusal.requeue_on | LEAVING | ClusterEvent.NODE
    members_by_kind = {alike(member): member for member in members}
    if len(members_by_kind) > MOST_SHAPES:
        # Too many to ask which rules about other pods apply to each.
        return replace(refusal, requeue_on=events | ANY_EVENT)
    for member_of_kind in members_by_kind.values():
        events |= snapshot.cycle.events_that_help(member_of_kind)
    return replace(refusal, requeue_on=events)


def _first(snapshot: GroupSnapshot, target: Target, refusals: Refusals) -> Unschedulable | None:
    """Return why the first member that fits nowhere does not; None if there is none."""
    refusal = next(iter(refusals.values()), None)
    if refusal is None:
        return None
    placed_on = [bind.assigned.node for bind in snapshot.binds.values()]
    nodes = snapshot.cache.nodes
    return _hanging_on(refusal, target.wanted, target.domain.row_numbers(nodes), placed_on, nodes)


def _hanging_on(
    refusal: Unschedulable, count: int, inside: Rows, placed_on: Sequence[str], nodes: NodeColumns
) -> Unschedulable:
    """Return a refusal with what the group hangs on: the member, and nodes, first those that hold none of it.

    ``inside`` are the rows on which members were tried, ``wanted`` is how many must be placed.
    """
    placed_rows = [nodes.row_of[node] for node in placed_on]
    free = inside[~np.isin(inside, placed_rows)]
    rows = [*free[:NAMED].tolist(), *dict.fromkeys(placed_rows)][:NAMED]
    about = {
        "member": refusal.pod_info.pod.metadata.name,
        "fitting": len(placed_on),
        "wanted": count,
        "nodes": [nodes.names[row] for row in rows],
    }
    return replace(refusal, why={**refusal.why, "group": about})

"""Decide about a group: all that is needed of it, or nothing. Pure.

What it is: one generator, which yields between portions and returns one outcome. It places the group on a private
snapshot (`scheduler.cycle.groups.group_placement`); the live cache holds no member before the commit. The commit judges
again what may have changed: members on nodes that have, and all members if something has that rules read across
nodes. What still holds is carried out, even if something better exists by now. Otherwise a fresh snapshot is taken, and
only the members that do not hold are placed again. After three such rounds nobody else is decided about, for a while
(`GroupBudget.is_exclusive`): large groups do not starve beside pods that come and go.

Why it is right: between the last look at what has changed and the commit nothing happens, because both are in one turn.
A member that is judged again is judged by all filters, on a snapshot with all members before it. A member that goes or
changes ends the decision: the caller closes the generator, and nothing of it is left.

What it costs: a snapshot for each round, and what a pod costs for each member; in the commit for few of them.
"""

from collections.abc import Hashable, Iterator
from dataclasses import replace

import numpy as np

from scheduler.cache.cache import Cache
from scheduler.cache.groups.sources import MOST_SHAPES
from scheduler.cache.node_columns import Flags
from scheduler.cycle.cycle import SchedulingCycle
from scheduler.cycle.decisions import Bind, GroupPlacement, GroupUnschedulable, Unschedulable
from scheduler.cycle.groups.group_budget import GroupBudget
from scheduler.cycle.groups.group_demand import GroupDemand
from scheduler.cycle.groups.group_placement import DomainPlacement, Steps, among_rows, place_group, place_member
from scheduler.cycle.groups.group_refusals import left_over, overtaken, too_many_shapes
from scheduler.cycle.groups.group_snapshot import GroupSnapshot
from scheduler.cycle.groups.members import alike, needs_order
from scheduler.cycle.nominations import NominatedPods
from scheduler.cycle.refusals import Among
from scheduler.kube.pod_info import PodInfo

# Rounds after which others wait, and after which the group is tried later.
_ROUNDS, _MOST_ROUNDS = 3, 12


class GroupCycle:
    """Decides about groups on snapshots of the live cache."""

    def __init__(self, cache: Cache, scheduling_cycle: SchedulingCycle, nominated_pods: NominatedPods) -> None:
        self._cache, self._cycle, self._nominated_pods = cache, scheduling_cycle, nominated_pods

    def decide(self, demand: GroupDemand, budget: GroupBudget) -> Steps[GroupPlacement | GroupUnschedulable]:
        """Decide about a group, turn by turn; the members of a placement are assumed in the live cache."""
        if (refusal := too_many_shapes(demand)) is not None:
            return refusal
        yield from self._prepare(demand, budget)
        snapshot, outcome = yield from self._place(demand, budget)
        rounds = 0
        while isinstance(outcome, DomainPlacement):
            stale_uids = snapshot.outdated(demand.kinds)
            if not stale_uids:
                self._cache.assume_all(snapshot.cache, [bind.assigned for bind in outcome.placement.binds])
                return outcome.placement
            rounds += 1
            if rounds > _MOST_ROUNDS:
                return overtaken(demand)
            budget.is_exclusive = rounds >= _ROUNDS
            old_snapshot, snapshot = snapshot, self._snapshot(demand)
            stale = frozenset(stale_uids)
            renewed = yield from _put_back(old_snapshot, snapshot, stale, outcome, demand, budget)
            if renewed is not None:
                outcome = renewed
            else:
                snapshot, outcome = yield from self._place(demand, budget)
        return outcome

    def _place(
        self, demand: GroupDemand, budget: GroupBudget
    ) -> Steps[tuple[GroupSnapshot, DomainPlacement | GroupUnschedulable]]:
        """Place a group on a fresh snapshot; first without the nodes that have just refused such members, if any."""
        if self._cycle.refusing_nodes.concern(member.pod for member in demand.members):
            snapshot = self._snapshot(demand, only_elsewhere=True)
            outcome = yield from place_group(snapshot, demand, budget)
            if isinstance(outcome, DomainPlacement):
                return snapshot, outcome
        snapshot = self._snapshot(demand)
        return snapshot, (yield from place_group(snapshot, demand, budget))

    def _snapshot(self, demand: GroupDemand, *, only_elsewhere: bool = False) -> GroupSnapshot:
        return GroupSnapshot(demand, self._cache, self._cycle, self._nominated_pods, only_elsewhere=only_elsewhere)

    def _prepare(self, demand: GroupDemand, budget: GroupBudget) -> Steps[None]:
        """Make the columns of labels, one after another: the snapshot has them too, and the next decision."""
        nodes = self._cache.nodes
        for key in dict.fromkeys(_labels(demand)):
            if not nodes.has_label_column(key):
                if budget.turn_is_over:
                    yield
                nodes.label(key)
                budget.charge_column(nodes.size)


def _put_back(
    old_snapshot: GroupSnapshot,
    snapshot: GroupSnapshot,
    stale_uids: frozenset[str],
    placement: DomainPlacement,
    demand: GroupDemand,
    budget: GroupBudget,
) -> Steps[DomainPlacement | None]:
    """Put members where they were, those that are outdated if they still fit there, else in the same domain.

    Return where all are now, and why one is left over; None if the group is to be placed as a whole again: too few fit,
    or the others may be where they are because of one that has moved.
    """
    for uid, bind in old_snapshot.binds.items():
        if uid not in stale_uids:
            if budget.turn_is_over:
                yield
            snapshot.put_on(bind)
            budget.charge_move()
    nodes, displaced_members = snapshot.cache.nodes, list[PodInfo]()
    for uid in (uid for uid in old_snapshot.binds if uid in stale_uids):
        bind = old_snapshot.binds[uid]
        row = nodes.row_of.get(bind.assigned.node, -1)
        only: Flags = np.zeros(nodes.size, np.bool_)
        only[row] = row >= 0
        decision = yield from place_member(snapshot, bind.pod_info, Among(only), budget)
        if isinstance(decision, Bind):
            snapshot.put_on(decision)
        else:
            displaced_members.append(bind.pod_info)
    if displaced_members and any(map(needs_order, demand.kinds)):
        return None
    among = among_rows(placement.target, demand.group.within, nodes)
    refusals = dict[Hashable, Unschedulable]()
    for member in displaced_members:
        decision = yield from place_member(snapshot, member, among, budget)
        if isinstance(decision, Bind):
            snapshot.put_on(decision)
        else:
            refusals.setdefault(alike(member), decision)
    if len(snapshot.binds) < placement.target.wanted:
        return None
    refusal = left_over(snapshot, placement.target, refusals) or placement.placement.refusal
    return replace(placement, placement=GroupPlacement(tuple(snapshot.binds.values()), refusal))


def _labels(demand: GroupDemand) -> Iterator[str]:
    """Yield the labels by which members are placed."""
    yield from (key for key in (*demand.group.prefer, demand.group.within) if key)
    for member in demand.kinds[:MOST_SHAPES]:
        affinity_info = member.affinity_info
        yield from (term.key for term in (*affinity_info.required_affinity, *affinity_info.required_anti_affinity))
        yield from (term.key for term, _ in affinity_info.preferred)
        yield from (constraint.key for constraint in member.spread)

"""Schedule a group: place at least the members that it needs, or none. Pure.

Method: one generator that yields between turns and returns one outcome. It places the group on a private snapshot
(`scheduler.cycle.groups.group_placement`); the live cache holds no member before the commit. The commit evaluates again
what may have changed: members on changed nodes, or all members if a fact changed that rules read across nodes. Places
that are still valid are kept, even if better ones exist by now. Otherwise the cycle takes a fresh snapshot and places
only the invalid members again. After three such rounds others wait for a limited time (`GroupBudget.is_exclusive`), so
that large groups do not starve while single pods come and go.

Correctness: the last check for changes and the commit are in one turn, so nothing happens between them. A member is
evaluated again with all filters, on a snapshot that has all members before it. If a member is deleted or changed, the
caller closes the generator, and nothing of the decision remains.

Cost: a snapshot for each round, and for each member the cost of a pod; the commit evaluates only a few members.
"""

from collections.abc import Iterator
from functools import partial

from scheduler.cache.cache import Cache
from scheduler.cache.groups.group_sources import MOST_SHAPES
from scheduler.cycle.cycle import SchedulingCycle
from scheduler.cycle.decisions import Bind, GroupPlacement, GroupUnschedulable
from scheduler.cycle.groups.group_budget import GroupBudget, Turns
from scheduler.cycle.groups.group_demand import GroupDemand, needs_order
from scheduler.cycle.groups.group_placement import DomainPlacement, among_rows, place_group, place_member, place_members
from scheduler.cycle.groups.group_refusals import overtaken, too_many_shapes
from scheduler.cycle.groups.group_snapshot import GroupSnapshot
from scheduler.cycle.refusals import Among
from scheduler.cycle.reservations import ReservedRoom
from scheduler.kube.pod_info import PodInfo

# Cost of the check and the commit of a member, in units of one node.
_A_COMMIT = 30
# Number of rounds after which others wait, and after which the group is tried later.
_ROUNDS, _MOST_ROUNDS = 3, 12


class GroupCycle:
    """Schedules groups on snapshots of the live cache."""

    def __init__(self, cache: Cache, scheduling_cycle: SchedulingCycle, reserved: ReservedRoom) -> None:
        self._cache, self._cycle, self._reserved = cache, scheduling_cycle, reserved

    def decide(self, demand: GroupDemand, budget: GroupBudget) -> Turns[GroupPlacement | GroupUnschedulable]:
        """Schedule a group, turn by turn; the live cache assumes the members of the result."""
        if demand.has_many_shapes and not demand.similar_members:
            yield from budget.move_all(demand.add_similar, demand.members)
        if (refusal := too_many_shapes(demand)) is not None:
            return refusal
        yield from self._prepare(demand, budget)
        snapshot, outcome = yield from self._place(demand, budget)
        rounds = 0
        while isinstance(outcome, DomainPlacement):
            budget.charge(_A_COMMIT * len(snapshot.binds))
            if budget.turn_is_over:
                yield
            stale_uids = snapshot.outdated(demand.kinds)
            if not stale_uids:
                if (placement := self._commit(snapshot, demand)) is None:
                    return (yield from self.decide(demand.without_spares(), budget))
                return placement
            rounds += 1
            if rounds > _MOST_ROUNDS:
                return overtaken(demand)
            budget.is_exclusive = rounds >= _ROUNDS
            old_snapshot, snapshot = snapshot, self._snapshot(demand)
            stale = frozenset(stale_uids)
            if not (yield from _put_back(old_snapshot, snapshot, stale, outcome, demand, budget)):
                snapshot, outcome = yield from self._place(demand, budget)
        return outcome

    def _commit(self, snapshot: GroupSnapshot, demand: GroupDemand) -> GroupPlacement | None:
        """Assume the members, and keep the room of spares; None if too few of the placed members are pods."""
        binds = tuple(bind for uid, bind in snapshot.binds.items() if uid in demand.uids)
        if len(binds) < demand.min_members - demand.needed_spares:
            return None
        spares = [bind.assigned for uid, bind in snapshot.binds.items() if uid not in demand.uids]
        for spare in spares:
            snapshot.take_off(spare.uid)
        self._cache.assume_all(snapshot.cache, [bind.assigned for bind in binds])
        return GroupPlacement(binds, tuple(spares))

    def _place(
        self, demand: GroupDemand, budget: GroupBudget
    ) -> Turns[tuple[GroupSnapshot, DomainPlacement | GroupUnschedulable]]:
        """Place a group on a fresh snapshot; first without the nodes that have just refused such members, if any."""
        if self._cycle.refusing_nodes.concern(member.pod for member in demand.members):
            snapshot = self._snapshot(demand, avoids_nodes=True)
            outcome = yield from place_group(snapshot, demand, budget)
            if isinstance(outcome, DomainPlacement):
                return snapshot, outcome
        snapshot = self._snapshot(demand)
        return snapshot, (yield from place_group(snapshot, demand, budget))

    def _snapshot(self, demand: GroupDemand, *, avoids_nodes: bool = False) -> GroupSnapshot:
        return GroupSnapshot(demand, self._cache, self._cycle, self._reserved, avoids_nodes=avoids_nodes)

    def _prepare(self, demand: GroupDemand, budget: GroupBudget) -> Turns[None]:
        """Build the columns of labels, one after another: this snapshot and the next decision both use them."""
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
) -> Turns[bool]:
    """Put members where they were before; outdated ones too if they still fit there, otherwise elsewhere in the same
    domain.

    Return False if the whole group must be placed again: too few fit, or the places of others may depend on a member
    that has moved.
    """
    valid_binds = [bind for uid, bind in old_snapshot.binds.items() if uid not in stale_uids]
    yield from budget.move_all(snapshot.put_on, valid_binds)
    nodes, displaced_members = snapshot.cache.nodes, list[PodInfo]()
    for uid in (uid for uid in old_snapshot.binds if uid in stale_uids):
        bind = old_snapshot.binds[uid]
        row = nodes.row_of.get(bind.assigned.node)
        only = Among(nodes.flags([] if row is None else [row]))
        decision = yield from place_member(snapshot, bind.pod_info, only, budget)
        if isinstance(decision, Bind):
            snapshot.put_on(decision)
        else:
            displaced_members.append(bind.pod_info)
    if displaced_members and (demand.group.slices or any(map(needs_order, demand.kinds))):
        return False
    among = among_rows(placement.target.domain, demand.group.within, nodes)
    place = partial(place_member, snapshot, among=among, budget=budget)
    yield from place_members(snapshot, displaced_members, placement.target.wanted, place)
    return len(snapshot.binds) >= placement.target.wanted


def _labels(demand: GroupDemand) -> Iterator[str]:
    group = demand.group
    yield from (key for key in (*group.prefer, group.within, *(one.within for one in group.slices)) if key)
    for member in demand.kinds[:MOST_SHAPES]:
        affinity_info = member.affinity_info
        yield from (term.key for term in (*affinity_info.required_affinity, *affinity_info.required_anti_affinity))
        yield from (term.key for term, _ in affinity_info.preferred)
        yield from (constraint.key for constraint in member.spread)

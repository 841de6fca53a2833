"""Place a group on a snapshot: at least the needed members, or report why there is no room. Pure.

Method: members are put on nodes of the snapshot one after another. The ordinary cycle chooses each node with all
earlier members present, so all rules hold among members, including exact VFs. Topology domains are tried one after
another (`scheduler.cycle.groups.domains`), and in each domain one choice of networks after another
(`scheduler.cycle.groups.rails`). Each is tried with the largest members first. If too few fit, it is tried in the
members' own order, and finally, if not all are needed, with the smallest first. Of the successful attempts in a domain,
the one that places most members wins.

Cost: each member costs as much as a pod. After one fits nowhere, equal members are not tried. `_MAX_ATTEMPTS` limits
all domains together; the next decision continues where this one stopped.
"""

from collections import deque
from collections.abc import Callable, Hashable, Iterator, Sequence
from dataclasses import dataclass, replace
from functools import partial

import numpy as np

from scheduler.cache.assigned_pod import AssignedPod
from scheduler.cache.groups.group_sources import Group
from scheduler.cache.node_columns import NodeColumns, Rows
from scheduler.cycle.decisions import Bind, Decision, GroupUnschedulable, Unschedulable
from scheduler.cycle.groups.domains import Domain, Target, targets
from scheduler.cycle.groups.group_budget import GroupBudget, Turns
from scheduler.cycle.groups.group_demand import GroupDemand, common_domain_label, kind_of
from scheduler.cycle.groups.group_refusals import Refusals, of_all_domains, shortage_of, with_events_of_all
from scheduler.cycle.groups.group_snapshot import GroupSnapshot
from scheduler.cycle.groups.member_room import MemberRoom
from scheduler.cycle.groups.network_sums import Networks, NetworkSums
from scheduler.cycle.groups.rails import choices, networks_in, on_rails
from scheduler.cycle.groups.slice_placement import SlicePlacement
from scheduler.cycle.refusals import Among
from scheduler.kube.pod_info import PodInfo

# Number of members that one decision tries in all topology domains together (some seconds), and to place more than
# needed.
_MAX_ATTEMPTS, _MAX_EXTRA_ATTEMPTS = 20_000, 2_000
# Looks that the sums of a row take.
_A_ROW = 50


@dataclass(frozen=True, slots=True)
class DomainPlacement:
    """Enough members are on nodes of a domain in the snapshot."""

    target: Target


@dataclass(slots=True)
class _LazySums:
    """Sums of the free VFs and Mb/s by network, computed when first needed; mostly they are not."""

    snapshot: GroupSnapshot
    demand: GroupDemand
    rows_of_shapes: Sequence[Rows]
    room: MemberRoom
    sums: NetworkSums | None = None

    def read(self, budget: GroupBudget) -> Turns[None]:
        """Compute the sums while no member is on its node."""
        if self.sums is None:
            nodes = self.snapshot.cache.nodes
            self.sums = NetworkSums(nodes.size, self.demand)
            rows = np.unique(np.concatenate(self.rows_of_shapes))
            yield from self.sums.read(rows, nodes.free_vfs_of_row.__getitem__, _A_ROW, budget)

    def admitted(self, networks: Networks, among: Rows) -> int:
        assert self.sums is not None, "the sums were read"
        return self.sums.admitted(networks, among)


def place_group(
    snapshot: GroupSnapshot, demand: GroupDemand, budget: GroupBudget
) -> Turns[DomainPlacement | GroupUnschedulable]:
    """Place a group; on success its members are on their nodes in the snapshot."""
    passing_rows = yield from _passing_rows(snapshot, demand, budget)
    room = MemberRoom(demand.summed_members, demand.shapes, passing_rows, snapshot.cache.nodes, demand.group.slices)
    sums = _LazySums(snapshot, demand, passing_rows, room)
    outcome = yield from _try_targets(snapshot, demand, budget, sums)
    if isinstance(outcome, DomainPlacement):
        return outcome
    best = of_all_domains(snapshot, demand, outcome, budget.placement)
    return replace(best, refusal=with_events_of_all(snapshot, demand, best.refusal))


def place_member(snapshot: GroupSnapshot, member: PodInfo, among: Among | None, budget: GroupBudget) -> Turns[Decision]:
    """Choose a member's node in the snapshot, with the members that are already there."""

    def place() -> Decision:
        old_steps = budget.placement.spent
        try:
            return snapshot.cycle.place(member, 0.0, budget.placement, among, budget.record_phase)
        finally:
            budget.charge_member(member, snapshot.cache.nodes.size, budget.placement.spent - old_steps)

    return (yield from budget.evaluate(place))


def _passing_rows(snapshot: GroupSnapshot, demand: GroupDemand, budget: GroupBudget) -> Turns[list[Rows]]:
    """Return the rows that pass for each shape of members, each row evaluated by itself."""
    rows_of_shapes = list[Rows]()
    for member in demand.shapes:
        rows = yield from budget.evaluate(partial(snapshot.cycle.passing_rows, member, budget.placement))
        rows_of_shapes.append(rows)
        budget.charge_shape(snapshot.cache.nodes.size)
    return rows_of_shapes


def _all_targets(snapshot: GroupSnapshot, demand: GroupDemand, room: MemberRoom) -> Iterator[Target]:
    if not demand.placed_pods and (key := common_domain_label(demand.members)):
        # The first placed member determines the domain of the others.
        yield from targets(replace(demand, group=_within(demand.group, key)), room, snapshot.cache)
    yield from targets(demand, room, snapshot.cache)


def _within(group: Group, key: str) -> Group:
    """Return a group whose members are tried in the domains of one more label."""
    if not group.within:
        return replace(group, within=key)
    return group if key in (group.within, *group.prefer) else replace(group, prefer=(key, *group.prefer))


def _try_targets(
    snapshot: GroupSnapshot, demand: GroupDemand, budget: GroupBudget, sums: _LazySums
) -> Turns[DomainPlacement | GroupUnschedulable]:
    """Try one domain after another, starting at the demand's first domain, or at the first of all if there are fewer
    now.
    """
    best, best_rank, count = None, (0, 0), 0
    for first in dict.fromkeys((demand.first_domain, 0)):
        for number, target in enumerate(_all_targets(snapshot, demand, sums.room)):
            budget.charge(snapshot.cache.nodes.size)
            if number < first:
                continue
            if best is not None and count >= _MAX_ATTEMPTS:
                return replace(best, is_cut=True, go_on_from=number, comes_again=True)
            outcome, tried_count = yield from _try_target(snapshot, demand, target, budget, sums)
            if isinstance(outcome, DomainPlacement):
                return outcome
            count += tried_count
            # The best reason is that of the domain where most members fit, of equal ones the widest.
            rank = outcome.fitting, -len(target.domain.labels)
            if best is None or rank > best_rank:
                best, best_rank = outcome, rank
        if best is not None:
            break
    assert best is not None, "a group is tried somewhere"
    return best


def _try_target(
    snapshot: GroupSnapshot, demand: GroupDemand, target: Target, budget: GroupBudget, sums: _LazySums
) -> Turns[tuple[DomainPlacement | GroupUnschedulable, int]]:
    """Make attempts in a domain until all members fit; then repeat the one that placed most.

    Return the result, and how many members were tried.
    """
    best, best_fitting, shortage = None, target.wanted - 1, None
    count, extra_count, is_cut = 0, 0, False
    for members in _attempts(snapshot, demand, target, sums):
        if members is None:
            yield from sums.read(budget)
            continue
        if count >= _MAX_ATTEMPTS or extra_count >= _MAX_EXTRA_ATTEMPTS:
            is_cut = True
            break
        refusals, tried_count = yield from _fill(snapshot, members, target, demand, budget, sums.room)
        count += tried_count
        extra_count += tried_count if best is not None else 0
        if len(snapshot.binds) == len(members):
            return DomainPlacement(target), count
        if len(snapshot.binds) > best_fitting:
            best, best_fitting = members, len(snapshot.binds)
        elif best is None and (shortage is None or len(snapshot.binds) > shortage.fitting):
            shortage = shortage_of(snapshot, demand, target, refusals)
        yield from budget.move_all(snapshot.take_off, list(snapshot.binds))
    if best is None:
        assert shortage is not None, "a domain is tried at least once"
        return replace(shortage, is_cut=is_cut), count
    # Nothing changes in a snapshot: the same members go to the same nodes again.
    yield from _fill(snapshot, best, target, demand, budget, sums.room)
    return DomainPlacement(target), count


def _attempts(
    snapshot: GroupSnapshot, demand: GroupDemand, target: Target, sums: _LazySums
) -> Iterator[Sequence[PodInfo] | None]:
    """Yield the members to try in a domain: each choice of networks, in each order.

    Yield None before the sums are first needed.
    """
    nodes, orders = snapshot.cache.nodes, demand.orders(target.wanted)
    if demand.group.rails != "same":
        yield from (on_rails(order, demand.group, ()) for order in orders)
        return
    inside, networks_in_domain = target.domain.row_numbers(nodes), networks_in(target.domain, nodes)
    member_limit = partial(sums.admitted, among=inside)
    nominated = _nominated_members(snapshot, demand, inside)
    for networks in choices(demand, target.wanted, networks_in_domain, member_limit, nominated):
        if networks is None:
            yield None
            continue
        yield from (on_rails(order, demand.group, networks) for order in orders)


def _nominated_members(snapshot: GroupSnapshot, demand: GroupDemand, inside: Rows) -> list[AssignedPod]:
    """Return the members that are nominated to nodes of a domain, with the VFs that are reserved for them."""
    row_of, rows = snapshot.cache.nodes.row_of, frozenset(inside.tolist())
    rooms = filter(None, (snapshot.reserved.room_of(member.uid) for member in demand.members))
    return [room for room in rooms if row_of.get(room.node, -1) in rows]


def _fill(
    snapshot: GroupSnapshot,
    members: Sequence[PodInfo],
    target: Target,
    demand: GroupDemand,
    budget: GroupBudget,
    room: MemberRoom,
) -> Turns[tuple[Refusals, int]]:
    """Place as many members in a domain as fit, if enough can; return what `place_members` does.

    The parts of the domain are filled one after another. Members that fit in none of them go anywhere in the domain.
    """
    nodes = snapshot.cache.nodes
    if demand.group.slices:
        slices = SlicePlacement(snapshot, demand, budget, partial(place_member, snapshot, budget=budget))
        yield from slices.place(members, target.domain.row_numbers(nodes), room)
        return slices.refusals, slices.count
    among, parts = among_rows(target.domain, demand.group.within, nodes), deque(map(Among, target.parts()))

    def place(member: PodInfo) -> Turns[Decision]:
        while parts:
            decision = yield from place_member(snapshot, member, parts[0], budget)
            if isinstance(decision, Bind):
                return decision
            parts.popleft()
        return (yield from place_member(snapshot, member, among, budget))

    return (yield from place_members(snapshot, members, target.wanted, place))


def place_members(
    snapshot: GroupSnapshot, members: Sequence[PodInfo], wanted: int, place: Callable[[PodInfo], Turns[Decision | None]]
) -> Turns[tuple[Refusals, int]]:
    """Put members on the nodes that ``place`` chooses, until it returns None or too few members are left.

    After one fits nowhere, equal members are not tried. Return why members do not fit, and how many were tried.
    """
    refusals, count = dict[Hashable, Unschedulable](), 0
    for number, member in enumerate(members, start=1):
        if refusals and kind_of(member) in refusals:
            continue
        decision = yield from place(member)
        if decision is None:
            break
        count += 1
        if isinstance(decision, Bind):
            snapshot.put_on(decision)
            continue
        refusals[kind_of(member)] = decision
        remaining = sum(kind_of(later) not in refusals for later in members[number:])
        if len(snapshot.binds) + remaining < wanted:
            break
    return refusals, count


def among_rows(domain: Domain, within: str, nodes: NodeColumns) -> Among | None:
    """Return the rows of a domain, None for all; ``within`` is the label whose value all members must share."""
    inside = domain.rows(nodes)
    return None if inside is None else Among(inside, within)

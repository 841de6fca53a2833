"""Schedule a group: place at least the members that it needs, or none. Pure.

The members are put on nodes of a private snapshot one after another. The ordinary cycle chooses each node with all
earlier members present, so all rules hold among members, including exact VFs.

Attempts: each topology domain is tried in turn, and within it each choice of networks. An attempt places the largest
members first. If too few fit, the next one takes the members' own order, and the last one, if not all members are
needed, the smallest first. The attempt in a domain that places most members wins.

Commit: members on changed nodes are evaluated again, or all if a fact changed that rules read across nodes. Only those
whose nodes are no longer valid are placed again, on a fresh snapshot. After three such rounds others wait for a limited
time (`GroupBudget.is_exclusive`). The last check and the commit are in one turn, so nothing happens between them.
"""

from collections import deque
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from functools import partial
from math import inf

import numpy as np

from scheduler.cache.node_columns import Rows
from scheduler.cycle.cycle import NAME_COUNT, SchedulingCycle
from scheduler.cycle.decisions import Bind, Decision, GroupPlacement, GroupUnschedulable, Unschedulable
from scheduler.cycle.filters import Among, events_that_help
from scheduler.cycle.groups.domains import Target, targets
from scheduler.cycle.groups.group_demand import GroupDemand, common_domain_label, needs_order, reads_other_nodes
from scheduler.cycle.groups.group_snapshot import GroupBudget, GroupSnapshot, Refusals, Turns
from scheduler.cycle.groups.member_room import MemberRoom
from scheduler.cycle.groups.rails import NetworkSums, choices, on_rails
from scheduler.cycle.groups.slice_placement import SlicePlacement
from scheduler.cycle.placement_budget import TurnSpent
from scheduler.kube.cluster_event import ANY_EVENT, NO_EVENT, ClusterEvent
from scheduler.kube.group import MOST_SHAPES, Group
from scheduler.kube.pod_info import PodInfo

# Number of members that one decision tries in one topology domain, and to place more than needed.
_MAX_ATTEMPTS, _MAX_EXTRA_ATTEMPTS = 20_000, 2_000
# Cost of the check and the commit of a member, in units of one node.
_A_COMMIT = 30
# Number of rounds after which others wait, and after which the group is tried later.
_ROUNDS, _MOST_ROUNDS = 3, 12


@dataclass(frozen=True, slots=True)
class GroupCycle:
    """Schedules groups on snapshots of the live cluster."""

    live_cycle: SchedulingCycle

    def decide(self, demand: GroupDemand, budget: GroupBudget) -> Turns[GroupPlacement | GroupUnschedulable]:
        """Schedule a group, turn by turn; the live cache assumes the members of the result."""
        if demand.has_many_shapes and not demand.similar_members:
            yield from budget.move_all(demand.add_similar, demand.members)
        if len(demand.shapes) > MOST_SHAPES:
            reason = f"its members make {len(demand.shapes)} different requests; the limit is {MOST_SHAPES}"
            return _refusal(demand, reason, NO_EVENT)
        yield from self._build_columns(demand, budget)
        snapshot, outcome = yield from self._place(demand, budget)
        rounds = 0
        while isinstance(outcome, Target):
            yield from budget.checkpoint(_A_COMMIT * len(snapshot.binds))
            stale_uids = frozenset(snapshot.stale_uids())
            if not stale_uids:
                if (placement := self._commit(snapshot)) is None:
                    return (yield from self.decide(demand.without_spares(), budget))
                return placement
            rounds += 1
            if rounds > _MOST_ROUNDS:
                reason = "the cluster changed too often while the group was scheduled"
                return replace(_refusal(demand, reason, ANY_EVENT), comes_again=True)
            budget.is_exclusive = rounds >= _ROUNDS
            stale_snapshot, snapshot = snapshot, GroupSnapshot(self.live_cycle, demand, budget)
            if not (yield from _put_back(stale_snapshot, snapshot, stale_uids, outcome)):
                snapshot, outcome = yield from self._place(demand, budget)
        return outcome

    def _commit(self, snapshot: GroupSnapshot) -> GroupPlacement | None:
        """Assume the members, and keep the room of spares; None if too few of the placed members are pods."""
        demand = snapshot.demand
        binds = tuple(bind for uid, bind in snapshot.binds.items() if uid in demand.uids)
        if len(binds) < demand.needed_count - demand.needed_spares:
            return None
        spares = [bind.assigned for uid, bind in snapshot.binds.items() if uid not in demand.uids]
        for spare in spares:
            snapshot.take_off(spare.uid)
        self.live_cycle.cache.assume_all(snapshot.cache, [bind.assigned for bind in binds])
        return GroupPlacement(binds, tuple(spares))

    def _place(
        self, demand: GroupDemand, budget: GroupBudget
    ) -> Turns[tuple[GroupSnapshot, Target | GroupUnschedulable]]:
        """Place a group on a fresh snapshot; first without the nodes that have just refused such members, if any."""
        if self.live_cycle.refusing_nodes.concern(member.pod for member in demand.members):
            snapshot = GroupSnapshot(self.live_cycle, demand, budget, avoids_nodes=True)
            outcome = yield from place_group(snapshot)
            if isinstance(outcome, Target):
                return snapshot, outcome
        snapshot = GroupSnapshot(self.live_cycle, demand, budget)
        return snapshot, (yield from place_group(snapshot))

    def _build_columns(self, demand: GroupDemand, budget: GroupBudget) -> Turns[None]:
        """Build the columns of labels, one after another: this snapshot and the next decision both use them."""
        nodes = self.live_cycle.cache.nodes
        for key in dict.fromkeys(_label_keys(demand)):
            if not nodes.has_label_column(key):
                yield from budget.checkpoint()
                nodes.label(key)
                budget.charge_nodes(nodes.size)


def _label_keys(demand: GroupDemand) -> Iterator[str]:
    group = demand.group
    yield from (key for key in (*group.prefer, group.within, *(level.within for level in group.slices)) if key)
    for member in demand.kinds[:MOST_SHAPES]:
        affinity_info = member.affinity_info
        yield from (term.key for term in (*affinity_info.required_affinity, *affinity_info.required_anti_affinity))
        yield from (term.key for term, _ in affinity_info.preferences)
        yield from (constraint.key for constraint in member.spread)


def _put_back(
    stale_snapshot: GroupSnapshot, snapshot: GroupSnapshot, stale_uids: frozenset[str], target: Target
) -> Turns[bool]:
    """Put members where they were before; stale ones elsewhere in the same domain if they do not fit there any more.

    Return False if too few fit, or if the places of others may depend on a member that has moved.
    """
    demand, displaced_members = snapshot.demand, list[PodInfo]()
    valid_binds = [bind for uid, bind in stale_snapshot.binds.items() if uid not in stale_uids]
    yield from snapshot.budget.move_all(snapshot.put_on, valid_binds)
    for uid, bind in stale_snapshot.binds.items():
        if uid in stale_uids and not (yield from snapshot.place_on(bind.pod_info, bind.assigned.node)):
            displaced_members.append(bind.pod_info)
    if displaced_members and (demand.group.slices or any(map(needs_order, demand.kinds))):
        return False
    place = partial(snapshot.choose_node, among=target.domain.among(snapshot.nodes, demand.group.within))
    yield from snapshot.place_members(displaced_members, target.needed_count, place)
    return len(snapshot.binds) >= target.needed_count


def member_room(snapshot: GroupSnapshot) -> Turns[MemberRoom]:
    demand, budget, rows_of_shapes = snapshot.demand, snapshot.budget, list[Rows]()
    for member in demand.shapes:
        rows = yield from budget.evaluate(partial(snapshot.cycle.passing_rows, member, budget.placement))
        rows_of_shapes.append(rows)
        budget.charge_nodes(snapshot.nodes.size)
    return MemberRoom(snapshot.nodes, demand, rows_of_shapes)


def place_group(snapshot: GroupSnapshot) -> Turns[Target | GroupUnschedulable]:
    """Place a group; on success its members are on their nodes in the snapshot, in a domain.

    A group without within, prefer, rails and slices has one domain, the cluster, and one choice of networks.
    """
    room = yield from member_room(snapshot)
    search = _DomainSearch(snapshot, room, NetworkSums(snapshot))
    outcome = yield from search.try_targets()
    if isinstance(outcome, Target):
        return outcome
    outcome = _of_all_domains(snapshot, outcome)
    return replace(outcome, refusal=_with_all_events(snapshot, outcome.refusal))


@dataclass(slots=True)
class _DomainSearch:
    """Tries a group in one domain after another."""

    snapshot: GroupSnapshot
    room: MemberRoom
    # Read when first needed, while no member is on its node; mostly they are not.
    sums: NetworkSums

    def try_targets(self) -> Turns[Target | GroupUnschedulable]:
        """Try one domain after another; the reason is that of the domain where most fit, of equal ones the widest."""
        best, best_rank = None, (0, 0)
        for target in self._targets():
            self.snapshot.budget.charge(self.snapshot.nodes.size)
            outcome = yield from self._try_target(target)
            if isinstance(outcome, Target):
                return outcome
            rank = outcome.fitting, -len(target.domain.labels)
            if best is None or rank > best_rank:
                best, best_rank = outcome, rank
        assert best is not None, "a group is tried somewhere"
        return best

    def _targets(self) -> Iterator[Target]:
        demand = self.snapshot.demand
        if not demand.placed_pods and (key := common_domain_label(demand.members)):
            # The first placed member determines the domain of the others.
            yield from targets(replace(demand, group=_with_domain_label(demand.group, key)), self.room)
        yield from targets(demand, self.room)

    def _try_target(self, target: Target) -> Turns[Target | GroupUnschedulable]:
        """Repeat the attempt in a domain that placed most members; if too few fit, return why the next one does not."""
        snapshot, best, most, shortage = self.snapshot, None, target.needed_count - 1, None
        count, limit = 0, _MAX_ATTEMPTS
        for members in self._attempts(target):
            if members is None:
                yield from self.sums.read(np.unique(np.concatenate(self.room.rows_of_shapes)))
                continue
            if count >= limit:
                shortage = replace(shortage, is_cut=True) if shortage is not None else None
                break
            refusals, try_count = yield from fill(snapshot, self.room, members, target)
            count, bind_count = count + try_count, len(snapshot.binds)
            if bind_count == len(members):
                return target
            if bind_count > most:
                best, most, limit = members, bind_count, min(limit, count + _MAX_EXTRA_ATTEMPTS)
            elif best is None and (shortage is None or bind_count > shortage.fitting):
                shortage = _shortage(snapshot, target, refusals)
            yield from snapshot.budget.move_all(snapshot.take_off, list(snapshot.binds))
        if best is not None:
            # Nothing changes in a snapshot: the same members go to the same nodes again.
            yield from fill(snapshot, self.room, best, target)
            return target
        assert shortage is not None, "a domain is tried at least once"
        return shortage

    def _attempts(self, target: Target) -> Iterator[Sequence[PodInfo] | None]:
        """Yield the members to try in a domain: each choice of networks, in each order; None if sums are needed."""
        demand, snapshot, orders = self.snapshot.demand, self.snapshot, self.snapshot.demand.orders(target.needed_count)
        # With the VFs that are reserved for them.
        nominated_pods = demand.rooms(snapshot.reserved) if demand.group.rails == "same" else ()
        for networks in choices(self.sums, target.needed_count, target.domain, nominated_pods):
            if networks is None:
                yield None
                continue
            yield from (on_rails(order, demand.group, networks) for order in orders)


def fill(
    snapshot: GroupSnapshot, room: MemberRoom, members: Sequence[PodInfo], target: Target, stop_count: float = inf
) -> Turns[tuple[Refusals, int]]:
    """Place as many members in a domain as fit, at most ``stop_count``, first in its parts; see `place_members`."""
    group, nodes = snapshot.demand.group, snapshot.nodes
    if group.slices:
        slices = SlicePlacement(snapshot, stop_count)
        yield from slices.place(members, target.domain.rows(nodes), room)
        return slices.refusals, slices.count
    among, parts = target.domain.among(nodes, group.within), deque(map(Among, target.parts()))

    def place(member: PodInfo) -> Turns[Decision | None]:
        if len(snapshot.binds) >= stop_count:
            return None
        while parts:
            decision = yield from snapshot.choose_node(member, parts[0])
            if isinstance(decision, Bind):
                return decision
            parts.popleft()
        return (yield from snapshot.choose_node(member, among))

    return (yield from snapshot.place_members(members, target.needed_count, place))


def _with_domain_label(group: Group, key: str) -> Group:
    """Return a group whose members are tried in the domains of one more label."""
    if not group.within:
        return replace(group, within=key)
    return group if key in (group.within, *group.prefer) else replace(group, prefer=(key, *group.prefer))


def _refusal(demand: GroupDemand, reason: str, events: ClusterEvent) -> GroupUnschedulable:
    return GroupUnschedulable(0, demand.needed_count, Unschedulable(demand.members[0], reason, events, {"v": 1}))


def _shortage(snapshot: GroupSnapshot, target: Target, refusals: Refusals) -> GroupUnschedulable:
    binds, refusal = tuple(snapshot.binds.values()), next(iter(refusals.values()))
    refusal = _with_group(snapshot, refusal, target.needed_count, target.domain.rows(snapshot.nodes))
    return GroupUnschedulable(len(binds), snapshot.demand.needed_count, refusal, target.domain.text, binds)


def _of_all_domains(snapshot: GroupSnapshot, best: GroupUnschedulable) -> GroupUnschedulable:
    """Return why a member fits in no domain, if none fits anywhere: the tried domain then represents all of them.

    Placed members determine the domain, and the member may fit on networks that were not tried.
    """
    demand, nodes, member = snapshot.demand, snapshot.nodes, best.refusal.pod_info
    label = demand.group.within
    if best.fitting or not best.where or not label or demand.placed_pods:
        return best
    if demand.group.rails == "same":
        member = next(candidate for candidate in demand.members if candidate.uid == member.uid)
    inside = nodes.valid[: nodes.size] & (nodes.label(label).ids[: nodes.size] > 0)
    try:
        decision = snapshot.cycle.choose_node(member, snapshot.budget.placement, Among(inside, label))
    except TurnSpent:
        return best
    if not isinstance(decision, Unschedulable):
        # It fits, but in a domain that has too little room for the group.
        return best
    return replace(best, refusal=_with_group(snapshot, decision, best.wanted, np.flatnonzero(inside)), where="")


def _with_all_events(snapshot: GroupSnapshot, refusal: Unschedulable) -> Unschedulable:
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
        events |= events_that_help(member, snapshot.cache)
    return replace(refusal, requeue_on=events)


def _with_group(snapshot: GroupSnapshot, refusal: Unschedulable, count: int, inside: Rows) -> Unschedulable:
    """Return a refusal that names the member, how many must be placed, and the nodes that block the group.

    These are of the rows ``inside``, first those that have no members of the group.
    """
    nodes = snapshot.nodes
    member_rows = [nodes.row_of[bind.assigned.node] for bind in snapshot.binds.values()]
    free = inside[~np.isin(inside, member_rows)]
    rows = [*free[:NAME_COUNT].tolist(), *dict.fromkeys(member_rows)][:NAME_COUNT]
    about = {
        "member": refusal.pod_info.pod.metadata.name,
        "fitting": len(member_rows),
        "wanted": count,
        "nodes": [nodes.names[row] for row in rows],
    }
    return replace(refusal, why={**refusal.why, "group": about})

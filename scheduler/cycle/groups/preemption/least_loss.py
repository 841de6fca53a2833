"""Place members of a group on a snapshot with the least loss by preemption. Pure.

Method: each topology domain is tried with each choice of networks. Members go where they fit. A member that fits
nowhere goes to the node whose victims are the smallest loss in kube-scheduler's order, and these victims are removed
from the snapshot, so the next member is evaluated without them. The attempt with the smallest loss, summed over the
group, wins. Then its victims that are not necessary stay (`scheduler.cycle.groups.preemption.reprieve`).

Correctness: at any time everything in the snapshot fits together by the ordinary cycle, without the victims. Equal
members are placed as long as a node takes one after all possible victims have left, so if this fails, there is no
placement. Victims are not searched for if members have rules about pods on other nodes.

Source: selectVictimsOnDomain in kube-scheduler 1.36's framework/preemption/podgrouppreemption.go. It removes all
possible victims at once, and places the group by scores. Here the loss decides, and free room is used first.
"""

import itertools
from collections.abc import Hashable, Sequence, Set
from dataclasses import dataclass, field
from functools import partial

import numpy as np

from scheduler.cache.assigned_pod import AssignedPod
from scheduler.cycle.decisions import Bind, Decision
from scheduler.cycle.groups.domains import Domain, domains_within
from scheduler.cycle.groups.group_budget import Turns
from scheduler.cycle.groups.group_demand import by_shape
from scheduler.cycle.groups.group_placement import among_rows, place_member, place_members
from scheduler.cycle.groups.member_room import MemberRoom
from scheduler.cycle.groups.network_sums import Networks, NetworkSums
from scheduler.cycle.groups.preemption.reprieve import Reprieve
from scheduler.cycle.groups.preemption.row_victims import RowVictims
from scheduler.cycle.groups.rails import choices, networks_in, on_rails
from scheduler.cycle.groups.slice_placement import SlicePlacement
from scheduler.cycle.preemption.disruption_budgets import Objections
from scheduler.cycle.preemption.potential_victims import NO_LOSS, Loss, Victim, add_loss, loss_of, pods_of, start_of
from scheduler.cycle.preemption.select_victims import PORTION, VictimSearch
from scheduler.cycle.refusals import Among
from scheduler.kube.pod_info import PodInfo

# Trying this many members on other networks or in another domain takes as long as one dry run.
_MEMBERS_AS_LONG = 50
# Looks that the sum of a row takes.
_A_ROW = 175
# The loss, and the start time of the victims, the latest first.
Cost = tuple[Loss, tuple[int, ...]]


class RemovedVictims:
    """The removed victims and their total loss. As `Objections`, it adds the budgets that they use."""

    def __init__(self, objections: Objections, victims: Sequence[Victim] = ()) -> None:
        self._objections, self._counts = objections, dict[int, int]()
        self.victims, self.loss = list[Victim](), NO_LOSS
        self.add(victims)

    @property
    def has_any(self) -> bool:
        return self._objections.has_any

    @property
    def cost(self) -> Cost:
        """What kube-scheduler compares, as a sort key: the best first."""
        return self.loss, tuple(-ord(letter) for letter in start_of(self.victims))

    def violations(self, assigned_pods: Sequence[AssignedPod], counts: dict[int, int]) -> int:
        if not counts:
            counts.update(self._counts)
        return self._objections.violations(assigned_pods, counts)

    def add(self, victims: Sequence[Victim]) -> None:
        self.loss = add_loss(self.loss, loss_of(victims, self._objections.violations(pods_of(victims), self._counts)))
        self.victims += victims


@dataclass(slots=True)
class VictimPlacement:
    """One attempt to place members ``among`` some rows, None for all, with at most a ``limit`` of loss.

    After its end, ``binds`` has the members on their nodes; ``victims`` are those of the ``removed`` that must leave.
    """

    row_victims: RowVictims
    removed: RemovedVictims
    among: Among | None
    limit: Loss | None
    binds: Sequence[Bind] = ()
    victims: Sequence[Victim] = ()
    # The rows for each kind of members that have needed victims.
    _searches: dict[Hashable, tuple[VictimSearch, list[int]]] = field(default_factory=dict)
    # In slices: the domain of each member, and the number of members and victims before victims were added.
    _slices: dict[str, Among] = field(default_factory=dict)
    _counts: list[tuple[int, int]] = field(default_factory=list)

    @property
    def has_needed(self) -> bool:
        return len(self.row_victims.snapshot.binds) >= self.row_victims.demand.min_members

    def place(self, members: Sequence[PodInfo]) -> Turns[None]:
        """Put members on the snapshot, and remove their victims, until enough members have a place."""
        snapshot, demand = self.row_victims.snapshot, self.row_victims.demand
        if demand.group.slices:
            yield from self._place_slices(members)
        else:
            yield from place_members(snapshot, members, demand.min_members, self._place_needed)

    def reprieve(self) -> Turns[None]:
        """Repeat the attempt after its end, and let victims stay that are not necessary."""
        snapshot, budget = self.row_victims.snapshot, self.row_victims.budget
        yield from budget.move_all(snapshot.remove, pods_of(self.removed.victims))
        yield from budget.move_all(snapshot.put_on, self.binds)
        reprieve = Reprieve(self.row_victims, lambda uid: self._slices.get(uid, self.among))
        self.victims = yield from reprieve.run(self.removed.victims)
        yield from self.end()

    def end(self) -> Turns[None]:
        """Restore the snapshot, and release what only the attempt needs."""
        self._searches.clear()
        snapshot, budget = self.row_victims.snapshot, self.row_victims.budget
        self.binds = tuple(snapshot.binds.values())
        yield from budget.move_all(snapshot.take_off, list(snapshot.binds))
        yield from budget.move_all(snapshot.restore, pods_of(self.removed.victims))

    def _place_slices(self, members: Sequence[PodInfo]) -> Turns[None]:
        """Place each slice in the first domain where that is possible, those with most free room first."""
        snapshot, demand, budget = self.row_victims.snapshot, self.row_victims.demand, self.row_victims.budget
        nodes, shapes, rows_of_shapes = snapshot.cache.nodes, by_shape(members), []
        for member in shapes:
            rows = yield from self.row_victims.rows_for(member, self.among)
            rows_of_shapes.append(np.array(rows, np.intp))
        inside = nodes.all_rows() if self.among is None else np.flatnonzero(self.among.flags)
        placement = SlicePlacement(snapshot, demand, budget, self._place_in_slice, demand.min_members, self._undo)
        yield from placement.place(members, inside, MemberRoom(members, shapes, rows_of_shapes, nodes))

    def _place_in_slice(self, member: PodInfo, among: Among) -> Turns[Decision | None]:
        if among is not self.among:
            self.among, self._searches = among, {}
        self._slices[member.uid] = among
        return (yield from self._place(member))

    def _undo(self, placed_count: int) -> Turns[None]:
        """Restore the victims of the members that were placed after this many."""
        while self._counts and self._counts[-1][0] >= placed_count:
            _, victim_count = self._counts.pop()
            victims = pods_of(self.removed.victims[victim_count:])
            yield from self.row_victims.budget.move_all(self.row_victims.snapshot.restore, victims)
            self.removed = RemovedVictims(self.row_victims.goal.objections, self.removed.victims[:victim_count])

    def _place_needed(self, member: PodInfo) -> Turns[Decision | None]:
        return None if self.has_needed else (yield from self._place(member))

    def _place(self, member: PodInfo) -> Turns[Decision | None]:
        """Place a member where it fits, or where its victims are the smallest loss; return None to place no more."""
        if self.row_victims.is_spent or (self.limit is not None and self.removed.loss > self.limit):
            return None
        decision = yield from self._place_among(member, self.among)
        if isinstance(decision, Bind):
            return decision
        return (yield from self._place_for_victims(member)) or decision

    def _place_among(self, member: PodInfo, among: Among | None) -> Turns[Decision]:
        self.row_victims.charge(1)
        return (yield from place_member(self.row_victims.snapshot, member, among, self.row_victims.budget))

    def _place_for_victims(self, member: PodInfo) -> Turns[Bind | None]:
        """Remove the victims of the row with the smallest loss, and place a member there."""
        snapshot, budget = self.row_victims.snapshot, self.row_victims.budget
        kind, nodes = self.row_victims.kind(member), snapshot.cache.nodes
        if kind not in self._searches:
            rows = yield from self.row_victims.rows_for(member, self.among)
            self._searches[kind] = VictimSearch(PORTION, budget.placement), rows
        search, rows = self._searches[kind]
        while not self.row_victims.is_spent:
            find = self.row_victims.finder(member, self.removed)
            while not search.turn(nodes, rows, find):
                yield
            best = search.best()
            if best is None:
                return None
            if not search.is_valid(best, find):
                # Victims elsewhere have since used a budget, or members that a group can spare.
                continue
            yield from budget.move_all(snapshot.remove, best.pods)
            decision = yield from self._place_among(member, Among(nodes.flags([best.row])))
            if isinstance(decision, Bind):
                self._counts.append((len(snapshot.binds), len(self.removed.victims)))
                self.removed.add(best.victims)
                return decision
            # The dry run counts VFs, and does not choose them.
            yield from budget.move_all(snapshot.restore, best.pods)
            rows.remove(best.row)
        return None


def least_loss(row_victims: RowVictims) -> Turns[VictimPlacement | None]:
    """Return the best attempt; afterwards the snapshot has only lost the pods that are being deleted."""
    best = yield from _best_attempt(row_victims)
    if best is not None and row_victims.goal.is_for_room:
        best.victims = best.removed.victims
    elif best is not None:
        yield from best.reprieve()
    return best


def _best_attempt(row_victims: RowVictims) -> Turns[VictimPlacement | None]:
    """Return the attempt with the smallest loss, with all of its victims."""
    demand, budget, goal = row_victims.demand, row_victims.budget, row_victims.goal
    cache = row_victims.snapshot.cache
    best: VictimPlacement | None = None
    cost: Cost | None = None
    yield from row_victims.remove_terminating()
    orders, first_domains = demand.orders(demand.min_members), _first_domains(row_victims)
    domains = domains_within(demand.group, [assigned_pod.node for assigned_pod in demand.placed_pods], cache)
    for domain in sorted(domains, key=lambda domain: domain not in first_domains):
        if goal.is_for_room and best is not None and not best.removed.loss[0] and domain not in first_domains:
            # The group can wait here, and only for pods that end by themselves: there may be thousands of domains.
            break
        budget.charge_column(cache.nodes.size)
        among = among_rows(domain, "", cache.nodes)
        for networks, order in itertools.product((yield from _networks(row_victims, domain)), orders):
            if budget.turn_is_over:
                yield
            if row_victims.is_spent:
                return best
            row_victims.charge(1 + len(order) // _MEMBERS_AS_LONG)
            attempt = VictimPlacement(row_victims, RemovedVictims(goal.objections), among, cost[0] if cost else None)
            yield from attempt.place(on_rails(order, demand.group, networks))
            attempt_cost = attempt.removed.cost
            if attempt.has_needed and (not cost or attempt_cost < cost):
                best, cost = attempt, attempt_cost
            yield from attempt.end()
    return best


def _networks(row_victims: RowVictims, domain: Domain) -> Turns[Sequence[Networks]]:
    """Return the choices of networks to try in a domain: those with enough room if all possible victims leave."""
    nodes, demand = row_victims.snapshot.cache.nodes, row_victims.demand
    if demand.group.rails != "same":
        return [()]
    rows, sums = domain.row_numbers(nodes), NetworkSums(nodes.size, demand)
    yield from sums.read(rows, row_victims.free_vfs, _A_ROW, row_victims.budget)
    member_limit = partial(sums.admitted, among=rows)
    all_choices = choices(demand, demand.min_members, networks_in(domain, nodes), member_limit)
    return [choice for choice in all_choices if choice is not None]


def _first_domains(row_victims: RowVictims) -> Set[Domain]:
    within = row_victims.demand.group.within
    if not within:
        return frozenset()
    labels = row_victims.snapshot.cache.nodes.label(within)
    values = [labels[row] for row in row_victims.rows_of(row_victims.goal.first)]
    return {Domain(((within, value),)) for value in values if value is not None}

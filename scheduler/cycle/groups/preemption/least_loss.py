"""Place members of a group on a snapshot with the least loss by preemption. Pure.

Method: each topology domain is tried with each choice of networks. Members go where they fit. A member that fits
nowhere goes to the node whose victims are the smallest loss in kube-scheduler's order, and these victims are removed
from the snapshot. The next member is then evaluated without them. The attempt with the smallest loss, summed over the
group, wins.

Correctness: at any time everything in the snapshot fits together by the ordinary cycle, without the victims. Equal
members are placed as long as a node takes one after all possible victims have left, so if this fails, there is no
placement. Victims are not searched for if members have rules about pods on other nodes.

Source: selectVictimsOnDomain in kube-scheduler 1.36's framework/preemption/podgrouppreemption.go. It removes all
possible victims at once and then places the group. This module uses free room before it removes a victim, so fewer
victims must be put back.
"""

import itertools
from collections.abc import Hashable, Mapping, Sequence, Set
from dataclasses import dataclass, field
from functools import partial

import numpy as np

from scheduler.cache.assigned_pod import AssignedPod
from scheduler.cache.node_columns import Rows
from scheduler.cycle.decisions import Bind, Decision
from scheduler.cycle.groups.domains import Domain, domains_within
from scheduler.cycle.groups.group_budget import Turns
from scheduler.cycle.groups.group_placement import among_rows, place_member, place_members
from scheduler.cycle.groups.member_room import MemberRoom
from scheduler.cycle.groups.members import alike, by_shape
from scheduler.cycle.groups.network_sums import Networks, NetworkSums
from scheduler.cycle.groups.preemption.row_victims import RowVictims
from scheduler.cycle.groups.rails import choices, networks_in, on_rails
from scheduler.cycle.groups.slice_placement import SlicePlacement
from scheduler.cycle.preemption.disruption_budgets import Objections
from scheduler.cycle.preemption.potential_victims import Loss, Victim, loss_of, pods_of, since
from scheduler.cycle.preemption.select_victims import PORTION, VictimSearch
from scheduler.cycle.refusals import Among
from scheduler.kube.pod_info import PodInfo
from scheduler.placement.vf_accounting import FreeVfs, unused

# Trying this many members on other networks or in another domain takes as long as one dry run.
_MEMBERS_AS_LONG = 50
# Looks that the sum of a row takes.
_A_ROW = 175
# The loss, and the start time of the victims, the latest first.
Cost = tuple[Loss, tuple[int, ...]]


class RemovedVictims:
    """The removed victims and their total loss. As `Objections`, it adds the budgets that they use."""

    def __init__(self, objections: Objections, victims: Sequence[Victim] = ()) -> None:
        self._objections, self._counts, self._broken = objections, dict[int, int](), 0
        self.victims = list[Victim]()
        self.add(victims)

    @property
    def has_any(self) -> bool:
        return self._objections.has_any

    @property
    def cost(self) -> Cost:
        """What kube-scheduler compares, as a sort key: the best first."""
        return self.loss, tuple(-ord(letter) for letter in since(self.victims))

    def violations(self, assigned_pods: Sequence[AssignedPod], counts: dict[int, int]) -> int:
        if not counts:
            counts.update(self._counts)
        return self._objections.violations(assigned_pods, counts)

    def add(self, victims: Sequence[Victim]) -> None:
        self._broken += self._objections.violations(pods_of(victims), self._counts)
        self.victims += victims
        self.loss = loss_of(self.victims, self._broken)

    def first(self, count: int) -> "RemovedVictims":
        return RemovedVictims(self._objections, self.victims[:count])


@dataclass(frozen=True, slots=True)
class LeastLoss:
    """Members on their nodes after the victims have left.

    ``among`` are the rows where they may be, None for all. In a slice they are those of its domain, by uid.
    """

    binds: tuple[Bind, ...]
    removed: RemovedVictims
    among: Among | None
    slices: Mapping[str, Among] = field(default_factory=dict)

    def among_for(self, uid: str) -> Among | None:
        return self.slices.get(uid, self.among)


@dataclass(slots=True)
class VictimPlacement:
    """One attempt to place members ``among`` some rows, None for all, with at most a ``limit`` of loss."""

    row_victims: RowVictims
    removed: RemovedVictims
    among: Among | None
    limit: Loss | None
    # The rows for each kind of members that have needed victims.
    _searches: dict[Hashable, tuple[VictimSearch, list[int]]] = field(default_factory=dict)

    # In slices: the domain of each member, and the number of members and victims before victims were added.
    _slices: dict[str, Among] = field(default_factory=dict)
    _counts: list[tuple[int, int]] = field(default_factory=list)

    def run(self, members: Sequence[PodInfo]) -> Turns[LeastLoss | None]:
        """Place members until enough are placed; return None if that fails. Then restore the snapshot."""
        snapshot, budget = self.row_victims.snapshot, self.row_victims.budget
        demand = self.row_victims.demand
        if demand.group.slices:
            yield from self._place_slices(members)
        else:
            yield from place_members(snapshot, members, demand.needed, self._place_needed)
        binds = tuple(snapshot.binds.values())
        yield from budget.move_all(snapshot.take_off, list(snapshot.binds))
        yield from budget.move_all(snapshot.restore, pods_of(self.removed.victims))
        return LeastLoss(binds, self.removed, self.among, self._slices) if len(binds) >= demand.needed else None

    def _place_slices(self, members: Sequence[PodInfo]) -> Turns[None]:
        """Place each slice in the first domain where that is possible, those with most free room first."""
        snapshot, demand, rows_of_shapes = self.row_victims.snapshot, self.row_victims.demand, list[Rows]()
        nodes, shapes = snapshot.cache.nodes, by_shape(members)
        for member in shapes:
            rows = yield from self.row_victims.rows_for(member, self.among)
            rows_of_shapes.append(np.array(rows, np.intp))
        inside = nodes.all_rows() if self.among is None else np.flatnonzero(self.among.flags)
        budget = self.row_victims.budget
        placement = SlicePlacement(snapshot, demand, budget, self._place_in_slice, demand.needed, self._undo)
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
            self.removed = self.removed.first(victim_count)

    def _place_needed(self, member: PodInfo) -> Turns[Decision | None]:
        is_enough = len(self.row_victims.snapshot.binds) >= self.row_victims.demand.needed
        return None if is_enough else (yield from self._place(member))

    def _place(self, member: PodInfo) -> Turns[Decision | None]:
        """Place a member where it fits, or where its victims are the smallest loss; return None to place no more."""
        row_victims, is_over_limit = self.row_victims, self.limit is not None and self.removed.loss > self.limit
        if is_over_limit or row_victims.is_spent:
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
        kind, nodes = alike(member), snapshot.cache.nodes
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
            yield from budget.move_all(snapshot.remove, best.victims)
            decision = yield from self._place_among(member, Among(nodes.flags([best.row])))
            if isinstance(decision, Bind):
                self._counts.append((len(snapshot.binds), len(self.removed.victims)))
                self.removed.add(best.chosen)
                return decision
            # The dry run counts VFs, and does not choose them.
            yield from budget.move_all(snapshot.restore, best.victims)
            rows.remove(best.row)
        return None


def least_loss(row_victims: RowVictims, objections: Objections, *, is_for_room: bool) -> Turns[LeastLoss | None]:
    """Return the best attempt; afterwards the snapshot has only lost the pods that are being deleted.

    ``objections`` are the reasons against removing pods. ``is_for_room``: the group waits where pods end by themselves.
    """
    demand, budget, nodes = row_victims.demand, row_victims.budget, row_victims.snapshot.cache.nodes
    best: LeastLoss | None = None
    yield from row_victims.remove_terminating()
    orders, first_domains = demand.orders(demand.needed), _first_domains(row_victims)
    placed_on = [assigned_pod.node for assigned_pod in demand.placed]
    domains = domains_within(demand.group, placed_on, row_victims.snapshot.cache)
    for domain in sorted(domains, key=lambda domain: domain not in first_domains):
        if is_for_room and best is not None and not best.removed.loss[0] and domain not in first_domains:
            # The group can wait here, and only for pods that end by themselves: there may be thousands of domains.
            break
        budget.charge_column(nodes.size)
        among = among_rows(domain, "", nodes)
        for networks, order in itertools.product(
            (yield from _networks(row_victims, domain, is_for_room=is_for_room)), orders
        ):
            if budget.turn_is_over:
                yield
            if row_victims.is_spent:
                return best
            row_victims.charge(1 + len(order) // _MEMBERS_AS_LONG)
            limit = best.removed.loss if best is not None else None
            placement = VictimPlacement(row_victims, RemovedVictims(objections), among, limit)
            attempt = yield from placement.run(on_rails(order, demand.group, networks))
            if attempt is not None and (best is None or attempt.removed.cost < best.removed.cost):
                best = attempt
    return best


def _networks(row_victims: RowVictims, domain: Domain, *, is_for_room: bool) -> Turns[Sequence[Networks]]:
    """Return the choices of networks to try in a domain: those with enough room if all possible victims leave."""
    nodes, demand = row_victims.snapshot.cache.nodes, row_victims.demand
    if demand.group.rails != "same":
        return [()]
    rows, free_by_model = domain.row_numbers(nodes), dict[int, FreeVfs]()

    def free(row: int) -> FreeVfs:
        if not is_for_room:
            return row_victims.free_vfs(row)
        # Nearly all pods are possible victims, and nodes of one model share their PFs.
        pfs = nodes.free_vfs_of_row[row].pfs
        return free_by_model.get(id(pfs)) or free_by_model.setdefault(id(pfs), unused(pfs))

    sums = NetworkSums(nodes.size, demand)
    yield from sums.read(rows, free, _A_ROW, row_victims.budget)
    member_limit = partial(sums.admitted, among=rows)
    all_choices = choices(demand, demand.needed, networks_in(domain, nodes), member_limit)
    return [choice for choice in all_choices if choice is not None]


def _first_domains(row_victims: RowVictims) -> Set[Domain]:
    within = row_victims.demand.group.within
    if not within:
        return frozenset()
    labels = row_victims.snapshot.cache.nodes.label(within)
    values = [labels[row] for row in row_victims.first_rows()]
    return {Domain(((within, value),)) for value in values if value is not None}

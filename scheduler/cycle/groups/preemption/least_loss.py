"""Place members of a group on a snapshot with the least loss by preemption. Pure.

Method: each topology domain is tried with each choice of networks. Members go where they fit. A member that fits
nowhere goes to the node whose victims are the smallest loss in kube-scheduler's order, and these victims are removed
from the snapshot, so the next member is evaluated without them. The attempt with the smallest loss, summed over the
group, wins. Then its victims that are not necessary stay, in kube-scheduler's order: first come those whose removal
violates a disruption budget, then the most important. A victim stays if the members on its nodes fit with it, or have
other places in the domain.

Correctness: at any time everything in the snapshot fits together by the ordinary cycle, without the victims. Equal
members are placed as long as a node takes one after all possible victims have left, so if this fails, there is no
placement. Victims are not searched for if members have rules about pods on other nodes.

Source: selectVictimsOnDomain in kube-scheduler 1.36's framework/preemption/podgrouppreemption.go. It removes all
possible victims at once, and places the group by scores. Here the loss decides, and free room is used first.
"""

import itertools
from collections import defaultdict
from collections.abc import Callable, Hashable, Sequence, Set
from dataclasses import dataclass, field

import numpy as np

from scheduler.cache.assigned_pod import AssignedPod
from scheduler.cycle.decisions import Bind, Decision
from scheduler.cycle.groups.domains import Domain, domains_within
from scheduler.cycle.groups.group_budget import Turns
from scheduler.cycle.groups.group_demand import by_shape
from scheduler.cycle.groups.member_room import MemberRoom
from scheduler.cycle.groups.preemption.row_victims import RowVictims
from scheduler.cycle.groups.rails import Networks, NetworkSums, choices, on_rails
from scheduler.cycle.groups.slice_placement import SlicePlacement
from scheduler.cycle.preemption.disruption_budgets import Objections
from scheduler.cycle.preemption.potential_victims import (
    NO_LOSS,
    Loss,
    Victim,
    add_loss,
    importance,
    loss_of,
    pods_of,
    split,
    start_of,
    with_spare_members,
)
from scheduler.cycle.preemption.select_victims import PORTION, VictimSearch
from scheduler.cycle.refusals import Among
from scheduler.kube.pod_info import PodInfo

# Trying this many members on other networks or in another domain takes as long as one dry run.
_MEMBERS_PER_DRY_RUN = 50
# Looks that the sum of a row takes, and one victim to compare or count.
_A_ROW, A_VICTIM = 175, 10
# Number of members that are put on nodes to let victims stay. Victims not tried by then are preempted.
_MAX_MOVES = 10_000
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

    After its end, ``binds`` has the members on their nodes; ``victims`` are those of the ``removals`` that must leave.
    """

    row_victims: RowVictims
    removals: RemovedVictims
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
    def has_min_members(self) -> bool:
        return len(self.row_victims.snapshot.binds) >= self.row_victims.demand.min_members

    def place(self, members: Sequence[PodInfo]) -> Turns[None]:
        """Put members on the snapshot, and remove their victims, until enough members have a place."""
        demand = self.row_victims.demand
        if demand.group.slices:
            yield from self._place_slices(members)
        else:
            yield from self.row_victims.snapshot.place_members(members, demand.min_members, self._place)

    def reprieve(self) -> Turns[None]:
        """Repeat the attempt after its end, and let victims stay that are not necessary."""
        snapshot, budget = self.row_victims.snapshot, self.row_victims.budget
        yield from budget.move_all(snapshot.remove, pods_of(self.removals.victims))
        yield from budget.move_all(snapshot.put_on, self.binds)
        reprieve = Reprieve(self.row_victims, lambda uid: self._slices.get(uid, self.among))
        self.victims = yield from reprieve.run(self.removals.victims)
        yield from self.end()

    def end(self) -> Turns[None]:
        """Restore the snapshot, and release what only the attempt needs."""
        self._searches.clear()
        snapshot, budget = self.row_victims.snapshot, self.row_victims.budget
        self.binds = tuple(snapshot.binds.values())
        yield from budget.move_all(snapshot.take_off, list(snapshot.binds))
        yield from budget.move_all(snapshot.restore, pods_of(self.removals.victims))

    def _place_slices(self, members: Sequence[PodInfo]) -> Turns[None]:
        """Place each slice in the first domain where that is possible, those with most free room first."""
        snapshot = self.row_victims.snapshot
        shapes, rows_of_shapes = by_shape(members), []
        for member in shapes:
            rows = yield from self.row_victims.rows_for(member, self.among)
            rows_of_shapes.append(np.array(rows, np.intp))
        inside = snapshot.nodes.all_rows() if self.among is None else np.flatnonzero(self.among.flags)
        room = MemberRoom(snapshot.nodes, members, shapes, rows_of_shapes)
        placement = SlicePlacement(snapshot, self._place_in_slice, snapshot.demand.min_members, self._undo)
        yield from placement.place(members, inside, room)

    def _place_in_slice(self, member: PodInfo, among: Among) -> Turns[Decision | None]:
        if among is not self.among:
            self.among, self._searches = among, {}
        self._slices[member.uid] = among
        return (yield from self._place_or_preempt(member))

    def _undo(self, bind_count: int) -> Turns[None]:
        """Restore the victims of the members that were placed after this many."""
        while self._counts and self._counts[-1][0] >= bind_count:
            _, victim_count = self._counts.pop()
            victims = pods_of(self.removals.victims[victim_count:])
            yield from self.row_victims.budget.move_all(self.row_victims.snapshot.restore, victims)
            self.removals = RemovedVictims(self.row_victims.goal.objections, self.removals.victims[:victim_count])

    def _place(self, member: PodInfo) -> Turns[Decision | None]:
        return None if self.has_min_members else (yield from self._place_or_preempt(member))

    def _place_or_preempt(self, member: PodInfo) -> Turns[Decision | None]:
        """Place a member where it fits, or where its victims are the smallest loss; return None to place no more."""
        if self.row_victims.is_spent or (self.limit is not None and self.removals.loss > self.limit):
            return None
        decision = yield from self._place_among(member, self.among)
        if isinstance(decision, Bind):
            return decision
        return (yield from self._preempt(member)) or decision

    def _place_among(self, member: PodInfo, among: Among | None) -> Turns[Decision]:
        self.row_victims.charge(1)
        return (yield from self.row_victims.snapshot.place_member(member, among))

    def _preempt(self, member: PodInfo) -> Turns[Bind | None]:
        """Remove the victims of the row with the smallest loss, and place a member there."""
        snapshot, budget = self.row_victims.snapshot, self.row_victims.budget
        kind, nodes = self.row_victims.kind(member), snapshot.nodes
        if kind not in self._searches:
            rows = yield from self.row_victims.rows_for(member, self.among)
            self._searches[kind] = VictimSearch(PORTION, budget.placement), rows
        search, rows = self._searches[kind]
        while not self.row_victims.is_spent:
            find = self.row_victims.finder(member, self.removals)
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
                self._counts.append((len(snapshot.binds), len(self.removals.victims)))
                self.removals.add(best.victims)
                return decision
            # The dry run counts VFs, and does not choose them.
            yield from budget.move_all(snapshot.restore, best.pods)
            rows.remove(best.row)
        return None


class Reprieve:
    """Victims are put back on a snapshot that has the members; ``among_for`` returns where a member may be, by uid."""

    def __init__(self, row_victims: RowVictims, among_for: Callable[[str], Among | None]) -> None:
        self._row_victims, self._among_for = row_victims, among_for
        self._snapshot, self._budget = row_victims.snapshot, row_victims.budget
        # Whether one more member of a kind fits on some rows, while no victim has been put back since.
        self._has_room: dict[Hashable, bool] = {}
        self._binds_on = defaultdict[str, dict[str, Bind]](dict)
        for bind in self._snapshot.binds.values():
            self._binds_on[bind.assigned.node][bind.pod_info.uid] = bind

    def run(self, victims: Sequence[Victim]) -> Turns[list[Victim]]:
        """Put back the victims that may stay; return the others, the most important first."""
        yield from self._budget.pause(A_VICTIM * len(victims))
        violators, rest = split(self._row_victims.goal.objections, sorted(victims, key=importance))
        yield from self._budget.pause(A_VICTIM * len(victims))
        choice, move_count = list[Victim](), 0
        for victim in (*violators, *rest):
            if move_count <= _MAX_MOVES:
                nodes = dict.fromkeys(assigned_pod.node for assigned_pod in victim.pods)
                binds = [bind for node in nodes for bind in self._binds_on[node].values()]
                move_count += len(binds)
                if (yield from self._put_back(victim, binds)):
                    continue
            choice.append(victim)
        # It counts for the next search, which follows if nodes have changed.
        self._row_victims.dry_run_count += move_count
        yield from self._budget.pause(A_VICTIM * len(choice))
        return sorted(with_spare_members(choice, victims), key=importance)

    def _put_back(self, victim: Victim, binds: Sequence[Bind]) -> Turns[bool]:
        """Put a victim back if the members on its nodes, with these ``binds``, then have places there or elsewhere."""
        snapshot, budget, nodes = self._snapshot, self._budget, self._snapshot.nodes
        own_rows = nodes.flags([nodes.row_of[bind.assigned.node] for bind in binds])
        places = list[list[Among | None]]()
        for bind in binds:
            among = self._among_for(bind.pod_info.uid)
            own_among = Among(own_rows if among is None else own_rows & among.flags)
            places.append([own_among, among] if (yield from self._is_room_for(bind, among)) else [own_among])
        uids = [bind.pod_info.uid for bind in binds]
        yield from budget.move_all(snapshot.take_off, uids)
        yield from budget.move_all(snapshot.restore, victim.pods)
        for bind, amongs in zip(binds, places, strict=True):
            for among in amongs:
                decision = yield from snapshot.place_member(bind.pod_info, among)
                if isinstance(decision, Bind):
                    snapshot.put_on(decision)
                    break
            else:
                yield from budget.move_all(snapshot.take_off, [uid for uid in uids if uid in snapshot.binds])
                yield from budget.move_all(snapshot.remove, victim.pods)
                yield from budget.move_all(snapshot.put_on, binds)
                return False
        for bind in binds:
            del self._binds_on[bind.assigned.node][bind.pod_info.uid]
        for uid in uids:
            self._binds_on[snapshot.binds[uid].assigned.node][uid] = snapshot.binds[uid]
        self._has_room.clear()
        return True

    def _is_room_for(self, bind: Bind, among: Among | None) -> Turns[bool]:
        """Return whether one more member like this fits; otherwise it fits only on nodes that members leave."""
        key = self._row_victims.kind(bind.pod_info), id(among)
        if key not in self._has_room:
            decision = yield from self._snapshot.place_member(bind.pod_info, among)
            self._has_room[key] = isinstance(decision, Bind)
        return self._has_room[key]


def least_loss(row_victims: RowVictims) -> Turns[VictimPlacement | None]:
    """Return the best attempt; afterwards the snapshot has only lost the pods that are being deleted."""
    best = yield from _best_attempt(row_victims)
    if best is not None and row_victims.goal.is_for_room:
        best.victims = best.removals.victims
    elif best is not None:
        yield from best.reprieve()
    return best


def _best_attempt(row_victims: RowVictims) -> Turns[VictimPlacement | None]:
    """Return the attempt with the smallest loss, with all of its victims."""
    demand, budget, goal, nodes = row_victims.demand, row_victims.budget, row_victims.goal, row_victims.snapshot.nodes
    best: VictimPlacement | None = None
    best_cost: Cost | None = None
    yield from row_victims.remove_terminating_pods()
    orders, first_domains = demand.orders(demand.min_members), _first_domains(row_victims)
    domains = domains_within(demand.group, [pod.node for pod in demand.placed_pods], nodes)
    for domain in sorted(domains, key=lambda domain: domain not in first_domains):
        if (
            goal.is_for_room
            and best is not None
            and not best.removals.loss.broken_budgets
            and domain not in first_domains
        ):
            # The group can wait here, and only for pods that end by themselves: there may be thousands of domains.
            break
        budget.charge_column(nodes.size)
        among = domain.among(nodes)
        for networks, order in itertools.product((yield from _networks(row_victims, domain)), orders):
            yield from budget.pause()
            if row_victims.is_spent:
                return best
            row_victims.charge(1 + len(order) // _MEMBERS_PER_DRY_RUN)
            limit = best_cost[0] if best_cost else None
            attempt = VictimPlacement(row_victims, RemovedVictims(goal.objections), among, limit)
            yield from attempt.place(on_rails(order, demand.group, networks))
            cost = attempt.removals.cost
            if attempt.has_min_members and (not best_cost or cost < best_cost):
                best, best_cost = attempt, cost
            yield from attempt.end()
    return best


def _networks(row_victims: RowVictims, domain: Domain) -> Turns[Sequence[Networks]]:
    """Return the choices of networks to try in a domain: those with enough room if all possible victims leave."""
    nodes, demand = row_victims.snapshot.nodes, row_victims.demand
    sums = NetworkSums(nodes.size, demand)
    if demand.group.rails == "same":
        yield from sums.read(domain.rows(nodes), row_victims.free_vfs, _A_ROW, row_victims.budget)
    return [choice for choice in choices(demand, demand.min_members, domain, nodes, sums) if choice is not None]


def _first_domains(row_victims: RowVictims) -> Set[Domain]:
    within = row_victims.demand.group.within
    if not within:
        return frozenset()
    labels = row_victims.snapshot.nodes.label(within)
    values = [labels[row] for row in row_victims.rows_of(row_victims.goal.first_nodes)]
    return {Domain(((within, value),)) for value in values if value is not None}

"""Place members of a group on a snapshot with the least loss by preemption. Pure.

Each topology domain is tried with each choice of networks. Members go where they fit. A member that fits nowhere goes
to the node whose victims are the smallest loss in kube-scheduler's order
(`scheduler.cycle.preemption.select_victims`), and these victims are removed from the snapshot, so the next member is
evaluated without them. The attempt with the smallest loss, summed over the group, wins. A member of the group is never
a victim, otherwise fewer members would be placed.

Source: selectVictimsOnDomain in kube-scheduler 1.36's framework/preemption/podgrouppreemption.go. It removes all
possible victims at once, and places the group by scores. Here the loss decides, and free room is used first.
"""

import itertools
from collections.abc import Hashable, Sequence, Set
from dataclasses import dataclass, field
from functools import partial

import numpy as np

from scheduler.cache.assigned_pod import AssignedPod
from scheduler.cache.node_columns import LINES, Rows
from scheduler.cache.pod_counts import selects
from scheduler.cycle.decisions import Bind, Decision
from scheduler.cycle.filters import Among
from scheduler.cycle.groups.domains import Domain, domains_within, rows_of
from scheduler.cycle.groups.group_budget import Turns
from scheduler.cycle.groups.group_demand import by_shape, needs
from scheduler.cycle.groups.group_snapshot import GroupSnapshot
from scheduler.cycle.groups.member_room import MemberRoom
from scheduler.cycle.groups.rails import Networks, NetworkSums, choices, on_rails
from scheduler.cycle.groups.slice_placement import SlicePlacement
from scheduler.cycle.node_dry_run import DryRuns
from scheduler.cycle.preemption.disruption_budgets import Objections
from scheduler.cycle.preemption.potential_victims import (
    NO_LOSS,
    Loss,
    PotentialVictims,
    Victim,
    add_loss,
    is_terminating,
    loss_of,
    node_pods_of,
    pods_of,
    start_of,
)
from scheduler.cycle.preemption.select_victims import (
    PORTION,
    NodeResult,
    SelectVictims,
    VictimSearch,
    select_victims_on_node,
)
from scheduler.kube.pod_info import PodInfo
from scheduler.placement.place import PfCapacity
from scheduler.placement.shares import shares_of
from scheduler.placement.vf_accounting import FreeVfs, full_capacity

# Looks that a dry run takes, a pod that is only listed, and the sum of a row.
_A_DRY_RUN, _A_POD, _A_ROW = 700, 3, 175
# As long as one dry run takes: this many pods that are removed and put back, or only listed (such as those of whole
# groups on other nodes), rows that are sorted, and members that are tried on other networks or in another domain.
_MOVES_PER_DRY_RUN, _PODS_PER_DRY_RUN, _ROWS_PER_DRY_RUN, _MEMBERS_PER_DRY_RUN = 4, 40, 100, 50


@dataclass(frozen=True, slots=True)
class VictimGoal:
    """Pods of lower priority than ``max_priority`` may be victims; there are ``objections`` to some.

    A search takes at most ``max_dry_runs``. With ``is_for_room``, the group waits until pods end by themselves. The
    ``first_nodes`` come before all others.
    """

    objections: Objections
    max_priority: int
    max_dry_runs: int
    is_for_room: bool = False
    first_nodes: Set[str] = frozenset()


class RowVictims:
    """The victims on each row of a snapshot for one more member of the group; ``dry_run_count`` is the work so far.

    Members with VFs find no victims on ``stuck_nodes``: these do not release the VFs of the pods that leave.
    """

    def __init__(
        self,
        snapshot: GroupSnapshot,
        goal: VictimGoal,
        victims: PotentialVictims,
        stuck_nodes: Set[str],
        dry_run_count: int = 0,
    ) -> None:
        self.snapshot, self.demand, self.budget, self.goal = snapshot, snapshot.demand, snapshot.budget, goal
        self.dry_run_count = dry_run_count
        self._stuck_nodes = stuck_nodes
        self._exempt_uids = victims.placed(self.demand.group.key) | self.demand.uids
        self._victims = victims.on(snapshot.cache, self._exempt_uids)
        self._nominated_pods = snapshot.reserved.counting_for_owner(self.demand.group.key, self.demand.priority)
        # The anti-affinity of nominated pods, which the snapshot does not count.
        infos = {pod.affinity_info for pods in self._nominated_pods.values() for pod in pods}
        self._nominated_terms = {term for info in infos if info is not None for term in info.required_anti_affinity}
        self._rows_of_shapes: dict[bytes, Rows] = {}

    @property
    def is_spent(self) -> bool:
        return self.dry_run_count >= self.goal.max_dry_runs or self.budget.placement.is_spent

    def charge(self, dry_runs: int) -> None:
        self.dry_run_count += dry_runs
        self.budget.charge(_A_DRY_RUN * dry_runs)

    def remove_terminating_pods(self) -> Turns[None]:
        for node in list(self.snapshot.nodes.row_of):
            pods = list(self.snapshot.cache.assigned_pods_on(node))
            yield from self.budget.move_all(self.snapshot.remove, filter(is_terminating, pods))
            yield from self.budget.pause(_A_POD * len(pods))

    def rows_for(self, member: PodInfo, among: Among | None) -> Turns[list[int]]:
        """Return the rows that could take a member without other pods: the first nodes, then those that lack least."""
        nodes = self.snapshot.nodes
        if member.shape not in self._rows_of_shapes:
            self._rows_of_shapes[member.shape] = yield from self._possible_rows(member)
        rows = self._rows_of_shapes[member.shape]
        rows = rows if among is None else rows[among.flags[rows]]
        self.charge(1 + len(rows) // _ROWS_PER_DRY_RUN)
        view, amounts = nodes.view(rows), np.array(needs(member), np.int64)[:, None]
        shortage = (np.maximum(amounts - view.free, 0) / np.maximum(amounts, 1)).max(axis=0)
        is_later = np.isin(rows, rows_of(self.goal.first_nodes, nodes), invert=True)
        pods = view.allocatable[LINES["pods"]] - view.free[LINES["pods"]]
        ordered_rows: list[int] = rows[np.lexsort((pods, shortage, is_later))].tolist()
        return ordered_rows

    def _possible_rows(self, member: PodInfo) -> Turns[Rows]:
        nodes, placement = self.snapshot.nodes, self.budget.placement
        rows = yield from self.budget.evaluate(partial(self.snapshot.cycle.rows_without_pods, member, placement))
        rows = DryRuns(member, self.snapshot.cache, placement).rows_if_empty(rows)
        self.budget.charge_shape(nodes.size)
        return rows[np.isin(rows, rows_of(self._stuck_nodes, nodes), invert=True)] if member.interfaces else rows

    def kind(self, member: PodInfo) -> Hashable:
        """Return a key; the same nodes take, or do not take, members with the same key.

        Labels, such as the index of a rank, count only if the anti-affinity of other pods selects them.
        """
        info, pod_counts = member.affinity_info, self.snapshot.cache.pod_counts
        labels = pod_counts.namespace_labels(info.namespace)
        terms = {term for term in self._nominated_terms if selects(term, info, labels)}
        terms.update(pod_counts.terms["anti_affinity"].about(info, labels))
        return member.shape, info.required_anti_affinity, frozenset(terms)

    def finder(self, member: PodInfo, objections: Objections) -> SelectVictims:
        """Return a function that finds the victims on a row; it is valid while nothing in the snapshot changes."""
        dry_runs = DryRuns(member, self.snapshot.cache, self.budget.placement)
        names, victims = self.snapshot.nodes.names, self._victims.on(self.snapshot.cache, self._exempt_uids)

        def find(row: int) -> tuple[NodeResult, int]:
            lower = victims.below(names[row], self.goal.max_priority)
            nominated_pods = self._nominated_pods.get(names[row], ())
            result = select_victims_on_node(dry_runs, row, lower, nominated_pods, objections)
            listed_count = sum(len(victim.pods) for victim in lower)
            pod_count = len(lower) // _MOVES_PER_DRY_RUN + listed_count // _PODS_PER_DRY_RUN
            # Rows without possible victims are not charged to the search: there may be thousands.
            self.charge(1 + pod_count if lower else 0)
            return result, len(lower) + pod_count

        return find

    def free_vfs(self, row: int) -> FreeVfs:
        """Return the free VFs of a row's PFs together with those of possible victims, as if no other pod held them."""
        node, free_vfs = self.snapshot.nodes.names[row], self.snapshot.nodes.free_vfs_of_row[row]
        if self.goal.is_for_room:
            # Nearly all pods are possible victims.
            return full_capacity(free_vfs.pfs)
        pods = node_pods_of(self._victims.below(node, self.goal.max_priority)) if free_vfs.pfs else ()
        if not pods:
            return free_vfs
        if free_vfs.shared_ports:
            return full_capacity(free_vfs.pfs)
        accounting, capacities = self.snapshot.cache.vf_accounting(node), list(free_vfs.capacities)
        for assigned_pod in pods:
            assignment = assigned_pod.assignment
            for index, rate in accounting.held(assigned_pod.uid, assignment) if assignment is not None else ():
                vfs, mbps = capacities[index]
                capacities[index] = PfCapacity(vfs + 1, mbps + rate)
        return FreeVfs(free_vfs.pfs, capacities=tuple(capacities), shares=shares_of(free_vfs.pfs))


@dataclass(slots=True)
class VictimPlacement:
    """One attempt to place members ``among`` some rows, None for all, with at most a ``limit`` of loss.

    After its end, ``binds`` has the members on their nodes. As `Objections`, it adds the budgets that its victims use.
    """

    row_victims: RowVictims
    among: Among | None
    limit: Loss | None
    binds: Sequence[Bind] = ()
    loss: Loss = NO_LOSS
    # By uid of the member for which they were removed.
    _victims: dict[str, Sequence[Victim]] = field(default_factory=dict)
    _budget_counts: dict[int, int] = field(default_factory=dict)
    # The rows for each kind of members that have needed victims.
    _searches: dict[Hashable, tuple[VictimSearch, list[int]]] = field(default_factory=dict)
    # In slices: the domain of each member.
    _slices: dict[str, Among] = field(default_factory=dict)

    @property
    def has_min_members(self) -> bool:
        return len(self.row_victims.snapshot.binds) >= self.row_victims.demand.min_members

    @property
    def victims(self) -> Sequence[Victim]:
        return list(itertools.chain.from_iterable(self._victims.values()))

    @property
    def cost(self) -> tuple[Loss, Sequence[int]]:
        """The smaller the better; of equal losses that whose victims have started last."""
        return self.loss, [-ord(letter) for letter in start_of(self.victims)]

    @property
    def has_any(self) -> bool:
        return self.row_victims.goal.objections.has_any

    def violations(self, assigned_pods: Sequence[AssignedPod], counts: dict[int, int]) -> int:
        if not counts:
            counts.update(self._budget_counts)
        return self.row_victims.goal.objections.violations(assigned_pods, counts)

    def among_for(self, uid: str) -> Among | None:
        return self._slices.get(uid, self.among)

    def place(self, members: Sequence[PodInfo]) -> Turns[None]:
        snapshot, demand = self.row_victims.snapshot, self.row_victims.demand
        if demand.group.slices:
            yield from self._place_slices(members)
        else:
            yield from snapshot.place_members(members, demand.min_members, self._place_needed_member)

    def end(self) -> Turns[None]:
        """Restore the snapshot, and release what only the attempt needs."""
        self._searches.clear()
        snapshot, budget = self.row_victims.snapshot, self.row_victims.budget
        self.binds = tuple(snapshot.binds.values())
        yield from budget.move_all(snapshot.take_off, list(snapshot.binds))
        yield from budget.move_all(snapshot.restore, pods_of(self.victims))

    def _place_slices(self, members: Sequence[PodInfo]) -> Turns[None]:
        """Place each slice in the first domain where that is possible, those with most free room first."""
        snapshot, shapes, rows_of_shapes = self.row_victims.snapshot, by_shape(members), []
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
        return (yield from self._place(member))

    def _add(self, uid: str, victims: Sequence[Victim]) -> None:
        broken_budgets = self.row_victims.goal.objections.violations(pods_of(victims), self._budget_counts)
        self.loss = add_loss(self.loss, loss_of(victims, broken_budgets))
        self._victims[uid] = victims

    def _undo(self) -> Turns[None]:
        """Restore the victims of the members that have lost their places."""
        snapshot, victims_of = self.row_victims.snapshot, self._victims
        if snapshot.binds.keys() >= victims_of.keys():
            return
        self.loss, self._victims, self._budget_counts = NO_LOSS, {}, {}
        for uid, victims in victims_of.items():
            if uid in snapshot.binds:
                self._add(uid, victims)
            else:
                yield from self.row_victims.budget.move_all(snapshot.restore, pods_of(victims))

    def _place_needed_member(self, member: PodInfo) -> Turns[Decision | None]:
        return None if self.has_min_members else (yield from self._place(member))

    def _place(self, member: PodInfo) -> Turns[Decision | None]:
        """Place a member where it fits, or where its victims are the smallest loss; return None to place no more."""
        if self.row_victims.is_spent or (self.limit is not None and self.loss > self.limit):
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
            find = self.row_victims.finder(member, self)
            while not search.turn(nodes, rows, find):
                yield
            best = search.best()
            if best is None:
                return None
            if not search.is_valid(best, find):
                # Victims elsewhere have since used a budget, or members that a group can spare.
                continue
            yield from budget.move_all(snapshot.remove, pods_of(best.victims))
            decision = yield from self._place_among(member, Among(nodes.flags([best.row])))
            if isinstance(decision, Bind):
                self._add(member.uid, best.victims)
                return decision
            # The dry run counts VFs, and does not choose them.
            yield from budget.move_all(snapshot.restore, pods_of(best.victims))
            rows.remove(best.row)
        return None


def least_loss(row_victims: RowVictims) -> Turns[VictimPlacement | None]:
    """Return the best attempt, with all of its victims; the snapshot then lacks only pods that are being deleted."""
    demand, budget, goal, nodes = row_victims.demand, row_victims.budget, row_victims.goal, row_victims.snapshot.nodes
    best: VictimPlacement | None = None
    yield from row_victims.remove_terminating_pods()
    orders, first_domains = demand.orders(demand.min_members), _first_domains(row_victims)
    domains = domains_within(demand.group, [pod.node for pod in demand.placed_pods], nodes)
    for domain in sorted(domains, key=lambda domain: domain not in first_domains):
        has_room = goal.is_for_room and best is not None and not best.loss.broken_budgets
        if has_room and domain not in first_domains:
            # The group can wait there, and only for pods that end by themselves: there may be thousands of domains.
            break
        budget.charge_column(nodes.size)
        among = domain.among(nodes)
        for networks, order in itertools.product((yield from _networks(row_victims, domain)), orders):
            yield from budget.pause()
            if row_victims.is_spent:
                return best
            row_victims.charge(1 + len(order) // _MEMBERS_PER_DRY_RUN)
            attempt = VictimPlacement(row_victims, among, best.loss if best is not None else None)
            yield from attempt.place(on_rails(order, demand.group, networks))
            if attempt.has_min_members and (best is None or attempt.cost < best.cost):
                best = attempt
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
    within, nodes = row_victims.demand.group.within, row_victims.snapshot.nodes
    if not within:
        return frozenset()
    values = [nodes.label(within)[row] for row in rows_of(row_victims.goal.first_nodes, nodes)]
    return {Domain(((within, value),)) for value in values if value is not None}

"""Place members of a group on a snapshot with the least loss by preemption. Pure.

Method: members go where they fit. A member that fits nowhere goes to the node whose victims are the smallest loss in
kube-scheduler's order, and these victims are removed from the snapshot. The next member is then evaluated without them.

Correctness: at any time everything in the snapshot fits together by the ordinary cycle, without the victims. Equal
members are placed as long as a node takes one after all possible victims have left, so if this fails, there is no
placement. Victims are not searched for if members have rules about pods on other nodes.

Source: selectVictimsOnDomain in kube-scheduler 1.36's framework/preemption/podgrouppreemption.go. It removes all
possible victims at once and then places the group. This module uses free room before it removes a victim, so fewer
victims must be put back.
"""

from collections.abc import Hashable, Sequence
from dataclasses import dataclass, field

from scheduler.cache.assigned_pod import AssignedPod
from scheduler.cycle.decisions import Bind, Decision
from scheduler.cycle.groups.group_budget import GroupBudget, Turns
from scheduler.cycle.groups.group_placement import place_member, place_members
from scheduler.cycle.groups.group_snapshot import GroupSnapshot
from scheduler.cycle.groups.members import alike
from scheduler.cycle.groups.preemption.row_victims import RowVictims
from scheduler.cycle.preemption.disruption_budgets import Objections
from scheduler.cycle.preemption.potential_victims import Loss, Victim, loss_of, pods_of, since
from scheduler.cycle.preemption.select_victims import PORTION, VictimSearch
from scheduler.cycle.refusals import Among
from scheduler.kube.pod_info import PodInfo

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


@dataclass(frozen=True, slots=True)
class LeastLoss:
    """Members on their nodes after the victims have left; ``among`` are the rows where they may be, None for all."""

    binds: tuple[Bind, ...]
    removed: RemovedVictims
    among: Among | None


@dataclass(slots=True)
class VictimPlacement:
    """One attempt to place ``wanted`` members ``among`` some rows, None for all, with at most a ``limit`` of loss."""

    snapshot: GroupSnapshot
    row_victims: RowVictims
    removed: RemovedVictims
    among: Among | None
    budget: GroupBudget
    wanted: int
    limit: Loss | None
    # The rows for each kind of members that have needed victims.
    _searches: dict[Hashable, tuple[VictimSearch, list[int]]] = field(default_factory=dict)

    def run(self, members: Sequence[PodInfo]) -> Turns[LeastLoss | None]:
        """Place members until enough are placed; return None if that fails. Then restore the snapshot."""
        snapshot, budget = self.snapshot, self.budget
        yield from place_members(snapshot, members, self.wanted, self._place)
        binds = tuple(snapshot.binds.values())
        yield from budget.move_all(snapshot.take_off, list(snapshot.binds))
        yield from budget.move_all(snapshot.restore, pods_of(self.removed.victims))
        return LeastLoss(binds, self.removed, self.among) if len(binds) >= self.wanted else None

    def _place(self, member: PodInfo) -> Turns[Decision | None]:
        """Place a member where it fits, or where its victims are the smallest loss; return None to place no more."""
        is_over_limit = self.limit is not None and self.removed.loss > self.limit
        if len(self.snapshot.binds) >= self.wanted or is_over_limit or self.row_victims.is_spent:
            return None
        decision = yield from self._place_among(member, self.among)
        if isinstance(decision, Bind):
            return decision
        return (yield from self._place_for_victims(member)) or decision

    def _place_among(self, member: PodInfo, among: Among | None) -> Turns[Decision]:
        self.row_victims.charge(1)
        return (yield from place_member(self.snapshot, member, among, self.budget))

    def _place_for_victims(self, member: PodInfo) -> Turns[Bind | None]:
        """Remove the victims of the row with the smallest loss, and place a member there."""
        kind, nodes = alike(member), self.snapshot.cache.nodes
        if kind not in self._searches:
            rows = yield from self.row_victims.rows_for(member, self.among)
            self._searches[kind] = VictimSearch(PORTION, self.budget.placement), rows
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
            yield from self.budget.move_all(self.snapshot.remove, best.victims)
            decision = yield from self._place_among(member, Among(nodes.flags([best.row])))
            if isinstance(decision, Bind):
                self.removed.add(best.chosen)
                return decision
            # The dry run counts VFs, and does not choose them.
            yield from self.budget.move_all(self.snapshot.restore, best.victims)
            rows.remove(best.row)
        return None

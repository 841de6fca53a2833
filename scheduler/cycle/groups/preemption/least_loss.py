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

from collections import Counter
from collections.abc import Hashable, Iterable, Sequence
from dataclasses import dataclass

import numpy as np

from scheduler.cache.assigned_pod import AssignedPod
from scheduler.cache.node_columns import Flags, Rows
from scheduler.cycle.decisions import Bind, Decision
from scheduler.cycle.groups.group_budget import GroupBudget
from scheduler.cycle.groups.group_placement import Turns, place_member
from scheduler.cycle.groups.group_snapshot import GroupSnapshot
from scheduler.cycle.groups.members import alike
from scheduler.cycle.groups.preemption.row_candidates import Cost, RowCandidates, cost_of
from scheduler.cycle.groups.preemption.row_victims import RowVictims
from scheduler.cycle.preemption.disruption_budgets import Objections
from scheduler.cycle.preemption.potential_victims import Loss, Victim, loss_of, pods_of, since
from scheduler.cycle.refusals import Among
from scheduler.kube.pod_info import PodInfo


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
        return cost_of(self.loss, since(self.victims))

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
    """Members on their nodes after the victims have left; ``inside`` are the rows where they may be, None for all."""

    binds: tuple[Bind, ...]
    removed: RemovedVictims
    inside: Flags | None


class VictimPlacement:
    """One attempt to place members ``inside`` a domain, None for all rows."""

    def __init__(
        self,
        snapshot: GroupSnapshot,
        row_victims: RowVictims,
        objections: Objections,
        inside: Flags | None,
        budget: GroupBudget,
    ) -> None:
        self._snapshot, self._row_victims, self._budget = snapshot, row_victims, budget
        self._inside, self._objections = inside, objections
        self._removed = RemovedVictims(objections)
        # The rows that victims have left.
        self._vacated_rows: Flags = np.zeros(snapshot.cache.nodes.size, np.bool_)
        self._candidates: dict[Hashable, RowCandidates] = {}

    def place(
        self, members: Sequence[PodInfo], wanted: int, rows_of_kinds: dict[Hashable, Rows], limit: Loss | None
    ) -> Turns[LeastLoss | None]:
        """Place members until enough are placed; return None if that fails or the loss exceeds a limit."""
        remaining = Counter(map(alike, members))
        rows_of_kinds = {kind: rows for kind, rows in rows_of_kinds.items() if len(rows)}
        for member in members:
            kind = alike(member)
            if kind not in rows_of_kinds:
                continue
            bind = yield from self._place(member, rows_of_kinds[kind])
            remaining[kind] -= 1
            if bind is not None:
                self._snapshot.put_on(bind)
            else:
                del rows_of_kinds[kind]
            placed = len(self._snapshot.binds)
            if placed >= wanted:
                return LeastLoss(tuple(self._snapshot.binds.values()), self._removed, self._inside)
            if (
                placed + sum(remaining[other_kind] for other_kind in rows_of_kinds) < wanted
                or self._row_victims.is_spent
            ):
                return None
            if limit is not None and self._removed.loss > limit:
                return None
        return None

    def _place(self, member: PodInfo, rows: Rows) -> Turns[Bind | None]:
        """Place a member where it fits, or where its victims are the smallest loss."""
        kind = alike(member)
        if kind not in self._candidates:
            bind = yield from self._bind(member, self._inside)
        else:
            bind = (yield from self._bind(member, self._vacated_rows)) if self._removed.victims else None
        if bind is None:
            if kind not in self._candidates:
                self._candidates[kind] = RowCandidates(rows, self._snapshot.cache.nodes)
            bind = yield from self._place_for_victims(member, self._candidates[kind])
        return bind

    def _bind(self, member: PodInfo, inside: Flags | None) -> Turns[Bind | None]:
        among = Among(inside) if inside is not None else None
        decision: Decision = yield from place_member(self._snapshot, member, among, self._budget)
        self._row_victims.charge(1)
        return decision if isinstance(decision, Bind) else None

    def _place_for_victims(self, member: PodInfo, candidates: RowCandidates) -> Turns[Bind | None]:
        """Remove the victims of the row with the smallest loss, and place a member there."""
        size = self._snapshot.cache.nodes.size
        while not self._row_victims.is_spent:
            find = self._row_victims.finder(member, self._removed)
            best = yield from candidates.take(find, self._removed, self._budget)
            if best is None:
                return None
            yield from remove_victims(self._snapshot, best.chosen, self._budget)
            bind = yield from self._bind(member, flags_of([best.row], size))
            if bind is not None:
                self._removed.add(best.chosen)
                rows = flags_of(rows_of(best.chosen, self._snapshot), size)
                self._vacated_rows |= rows if self._inside is None else rows & self._inside
                return bind
            # The dry run counts VFs, and does not choose them.
            yield from restore_victims(self._snapshot, best.chosen, self._budget)
            candidates.leave_out(best.row)
        return None

    def clear(self) -> Turns[None]:
        """Remove the members again, and add the victims again."""
        for uid in list(self._snapshot.binds):
            if self._budget.turn_is_over:
                yield
            self._snapshot.take_off(uid)
            self._budget.charge_move()
        yield from restore_victims(self._snapshot, self._removed.victims, self._budget)


def remove_victims(snapshot: GroupSnapshot, victims: Iterable[Victim], budget: GroupBudget) -> Turns[None]:
    """Remove victims from a snapshot; a group that is disrupted as a whole may have thousands of pods."""
    for assigned_pod in pods_of(victims):
        if budget.turn_is_over:
            yield
        snapshot.remove([assigned_pod])
        budget.charge_move()


def restore_victims(snapshot: GroupSnapshot, victims: Iterable[Victim], budget: GroupBudget) -> Turns[None]:
    """Add removed victims again."""
    for assigned_pod in pods_of(victims):
        if budget.turn_is_over:
            yield
        snapshot.restore([assigned_pod])
        budget.charge_move()


def rows_of(victims: Iterable[Victim], snapshot: GroupSnapshot) -> list[int]:
    row_of = snapshot.cache.nodes.row_of
    return [row_of[assigned_pod.node] for assigned_pod in pods_of(victims) if assigned_pod.node in row_of]


def flags_of(rows: Sequence[int], size: int) -> Flags:
    flags: Flags = np.zeros(size, np.bool_)
    flags[rows] = True
    return flags

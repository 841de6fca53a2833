"""Groups, from the queue to their Binds: the decision in progress, its consequences, and the messages for its members.

This module keeps promise 9 of the architecture: a decision places no member unless it places enough of the group, and
none of its Binds is written before the volumes of all of its members are bound.
"""

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from typing import get_args

from scheduler.cache.assigned_pod import AssignedPod
from scheduler.cycle.cycle import RecordPhase
from scheduler.cycle.decisions import Bind, GroupPlacement, GroupUnschedulable, Unschedulable
from scheduler.cycle.groups.group_budget import GroupBudget, Turns
from scheduler.cycle.groups.group_cycle import GroupCycle
from scheduler.cycle.groups.group_demand import GroupDemand
from scheduler.cycle.groups.preemption.preempt import NOBODY_PREEMPTED, GroupPreempted, GroupPreemption
from scheduler.cycle.instructions import DeleteVictims, Instruction
from scheduler.kube.cluster_event import LEAVING, NO_EVENT, ClusterEvent
from scheduler.kube.group_membership import GroupKey
from scheduler.kube.outcomes import Refused
from scheduler.pending.groups.first_call import FirstCall, UrgentTurn
from scheduler.pending.groups.pending_groups import GroupOptions
from scheduler.pending.groups.promises import NO_START
from scheduler.pending.part import Part
from scheduler.state.groups.backfill import Backfill
from scheduler.state.groups.decision import (
    DecisionOutcome,
    DecisionResult,
    GroupDecision,
    must_restart,
)
from scheduler.state.groups.demand import demand_of
from scheduler.state.groups.held_binds import Batch, HeldBinds
from scheduler.state.groups.messages import shortage
from scheduler.state.groups.spares import Spares
from scheduler.state.shared_state import SharedState

_ROOM_MESSAGE = " Room is kept for the members that fit."
_LATER_ROOM_MESSAGE = " Room is kept for the group as it becomes free."
# Seconds after which a paused decision continues even if others still wait.
_RESUME_S = 0.4
# Seconds for which others wait for a decision that changes have invalidated several times.
_EXCLUSIVE_S = 0.25
# Number of members from which sorting them is a step by itself.
_SORTING_STEP = 512


@dataclass(slots=True)
class GroupScheduling(Part):
    """The groups of the machine. At most one decision runs at a time; others may be paused."""

    state: SharedState
    group_cycle: GroupCycle
    group_preemption: GroupPreemption
    backfill: Backfill
    spares: Spares
    options: GroupOptions
    portion: int
    # How many decisions there were, by result, and how many members they have placed.
    decisions: Counter[DecisionResult] = field(
        default_factory=lambda: Counter(dict.fromkeys(get_args(DecisionResult), 0))
    )
    placement_count: int = 0
    first_call: FirstCall = field(init=False)
    held_binds: HeldBinds = field(init=False)
    urgent_turn: UrgentTurn = field(init=False)
    _decision: GroupDecision | None = None
    # The decisions that others have interrupted, and when the next one continues.
    _decisions_aside: dict[GroupKey, GroupDecision] = field(default_factory=dict)
    _resume_at: float = 0.0
    _last_proceed: float = 0.0

    def __post_init__(self) -> None:
        state = self.state
        self.first_call = FirstCall(state.pending_groups, state.reservations, self.options)
        self.urgent_turn = UrgentTurn(state.pending_groups, state.queue)
        self.held_binds = HeldBinds(state)

    def begin(self, key: GroupKey) -> None:
        """Start a decision about a group that was popped from the queue."""
        assert self._decision is None, "one group is decided about at a time"
        self._decisions_aside.pop(key, None)
        self.state.group_reports.withdraw(key)
        demand, owners = demand_of(key, self.state)
        budget = GroupBudget(self.portion)
        self._decision = GroupDecision(
            demand, budget, self._decide(demand, budget), owners, self.state.pending_groups.members(key).changes
        )

    def resume(self, now: float) -> str:
        """Continue a paused decision if it is time; return its queue entry, otherwise empty."""
        if not self._decisions_aside or (
            now < self._resume_at and self.urgent_turn.is_over(self._decisions_aside, now)
        ):
            return ""
        key = self._first_aside()
        if key is None:
            self._decisions_aside.clear()
            return ""
        self._decision = self._decisions_aside.pop(key)
        self._decision.budget.begin_slice()
        return key.entry

    def _first_aside(self) -> GroupKey | None:
        """Return the first group by priority and age whose decision is paused."""
        entries = {key.entry: key for key in self._decisions_aside if self.state.queue.is_in_flight(key.entry)}
        return entries.get(self.state.queue.earliest(entries))

    @property
    def is_deciding(self) -> bool:
        return self._decision is not None

    @property
    def has_aside(self) -> bool:
        return bool(self._decisions_aside)

    def _give_way(self, decision: GroupDecision, now: float) -> None:
        """Pause a decision if its slice has ended and others wait."""
        key, budget = decision.demand.group.key, decision.budget
        if not budget.slice_is_over:
            return
        if budget.is_exclusive and decision.exclusive_end is None:
            decision.exclusive_end = now + _EXCLUSIVE_S
        if decision.exclusive_end is not None and now < decision.exclusive_end:
            return
        if not self._is_overtaking(key) and not self.urgent_turn.is_over((key,), now):
            return
        self._decision, self._decisions_aside[key] = None, decision
        self._resume_at = now + _RESUME_S

    def _is_overtaking(self, key: GroupKey) -> bool:
        """Return whether the decision about an older group is paused."""
        first = self._first_aside()
        return first is not None and self.state.queue.earliest((first.entry, key.entry)) == first.entry

    def proceed(self, now: float, record_phase: RecordPhase) -> list[Instruction] | None:
        """Continue the decision; return None if it needs another step, at once or after others (`is_deciding`)."""
        decision = self._decision
        assert decision is not None, "a decision has begun"
        if must_restart(decision, self.state.pending_groups):
            self.abandon()
            self.state.pending_groups.requeue(decision.demand.group.key, now)
            return None
        self._last_proceed = now
        decision.budget.begin_turn(record_phase)
        try:
            next(decision.steps)
        except StopIteration as stop:
            self._decision = None
            verdict, preemption = stop.value
            return self._finish(decision.demand, verdict, preemption, now)
        self._give_way(decision, now)
        return None

    def _decide(self, demand: GroupDemand, budget: GroupBudget) -> Turns[DecisionOutcome]:
        """Place a group; if too few of its members fit, search for room, and otherwise keep that of those that fit."""
        if len(demand.members) > _SORTING_STEP:
            yield
        verdict = yield from self.group_cycle.decide(demand, budget)
        if isinstance(verdict, GroupPlacement):
            return verdict, NOBODY_PREEMPTED
        preemption, fitting_pods = NOBODY_PREEMPTED, [bind.assigned for bind in verdict.binds]
        if not verdict.go_on_from and verdict.refusal.requeue_on & LEAVING:
            # No pod is preempted before everything has been tried.
            preemption = yield from self._search_room(demand, budget, fitting_pods)
        if preemption.reservation is None and self.first_call.holds(demand.group.key, self._last_proceed):
            preemption = self._hold(demand, fitting_pods, preemption, _ROOM_MESSAGE)
        return verdict, preemption

    def _search_room(
        self, demand: GroupDemand, budget: GroupBudget, fitting_pods: Sequence[AssignedPod]
    ) -> Turns[GroupPreempted]:
        """Search for victims, then for room to wait for."""
        key = demand.group.key
        preemption = yield from self.group_preemption.search(demand, budget, self._last_proceed)
        if preemption.reservation is not None and demand.spares:
            # Nobody leaves for a spare: a lost member can preempt when it is made again.
            preemption = yield from self.group_preemption.search(demand.without_spares(), budget, self._last_proceed)
        if preemption.reservation is not None and preemption.reservation.cause == "backfill":
            return replace(preemption, note=self.backfill.note(key))
        if preemption.reservation is not None and preemption.reservation.cause == "hold":
            return replace(preemption, note=_LATER_ROOM_MESSAGE)
        if preemption.reservation is None and self.first_call.is_for(key):
            reservation, note = yield from self.backfill.search(demand, budget)
            preemption = replace(preemption, reservation=reservation, note=note)
        elif self.first_call.is_passed_over(key):
            preemption = replace(preemption, note=NO_START)
        if preemption.reservation is None and self.first_call.holds(key, self._last_proceed):
            room = yield from self.group_preemption.search_room(demand, budget, fitting_pods)
            preemption = self._hold(demand, room, preemption, _LATER_ROOM_MESSAGE)
        return preemption

    def _hold(
        self, demand: GroupDemand, room: Sequence[AssignedPod], preemption: GroupPreempted, message: str
    ) -> GroupPreempted:
        """Reserve room for members, if there is any."""
        if not room:
            return preemption
        reservation = self.first_call.reservation(demand.group.key, room)
        return replace(preemption, reservation=reservation, note=message + preemption.note)

    def _finish(
        self,
        demand: GroupDemand,
        verdict: GroupPlacement | GroupUnschedulable,
        preemption: GroupPreempted,
        now: float,
    ) -> list[Instruction]:
        if isinstance(verdict, GroupPlacement):
            self.decisions["scheduled"] += 1
            self.placement_count += len(verdict.binds)
            return self._carry_out(demand, verdict, now)
        self.decisions["unschedulable"] += 1
        if verdict.go_on_from:
            self.state.pending_groups.keep_rest(demand.group.key, verdict.go_on_from, demand.since)
        elif preemption.reservation is None:
            self.first_call.pass_over(demand.group.key, now)
        message = shortage(self.state.pending_groups.members(demand.group.key), demand, verdict, self.state.cache)
        if demand.needed_spares:
            message = f"{message} The members include {demand.needed_spares} spare."
        if preemption.reason:
            message = f"{message} preemption: {preemption.reason}"
        # The next decision needs no room for spares (`demand_of`). With another reservation, it would fail as this one.
        reservation = preemption.reservation
        is_by_search = reservation is not None and reservation.cause == "victims"
        fits_without_spares = demand.needed_spares > 0 and is_by_search and not preemption.victims
        needs_retry = verdict.comes_again or preemption.comes_again or fits_without_spares
        reports = self._refuse(demand, verdict.refusal, message, now, preemption, needs_retry=needs_retry)
        if not preemption.victims:
            return reports
        assert preemption.reservation is not None, "victims leave for somebody"
        first = next(iter(preemption.reservation.rooms.values()))
        return [DeleteVictims(self.state.pending_pods[first.uid].pod, first.node, preemption.victims), *reports]

    def abandon(self) -> None:
        """End a decision without an outcome and without a trace."""
        if self._decision is not None:
            self._decision.steps.close()
            self._decision = None

    def give_up(self, entry: str) -> list[Instruction]:
        """Set a group aside whose decision failed because of a bug."""
        self.abandon()
        key = GroupKey.of_entry(entry)
        if key is None or self.state.pending_groups.in_queue(key) is None:
            return []
        self.decisions["error"] += 1
        self.state.queue.add_unschedulable(entry, NO_EVENT)
        members = self.state.pending_groups.members(key)
        message = f"internal error while scheduling group {members.title}: see the scheduler's log"
        self.state.group_reports.put(key, members.of("waiting"), message, self._last_proceed, is_bug=True)
        return self._report_some()

    def settle(self, decision: Bind, reason: str, now: float) -> list[Instruction]:
        """Process the result of binding the volumes of a pod whose Bind is held; ``reason`` is why they are not bound,
        or empty.
        """
        batch = self.held_binds.batch_of(decision.pod_info.uid)
        if batch is None:
            return []
        if not reason:
            batch.has_changed = True
            return []
        return self._release(batch, f"binding volumes of {decision.pod_info.pod.key}: {reason}", now)

    def tick(self, now: float) -> list[Instruction]:
        """Return what is due: Binds whose volumes are all bound, and messages."""
        instructions = list[Instruction]()
        self.first_call.tick(now)
        self.backfill.review(self.state.pending_groups.room_owner, now)
        for batch in self.held_binds.changed():
            binds = self.held_binds.take(batch)
            instructions += self._release(batch, binds.reason, now) if isinstance(binds, Refused) else binds
        for key, message in self.state.pending_groups.due(now):
            self.state.group_reports.put(key, self.state.pending_groups.members(key).of("waiting"), message, now)
        instructions += self._report_some()
        return instructions

    def next_due(self) -> float | None:
        """Return when `tick` has work, if no event arrives before."""
        if self.held_binds.changed():
            return 0.0
        parts = self.state.pending_groups, self.first_call
        times = [part.next_due() for part in parts]
        return min((time for time in times if time is not None), default=None)

    def check(self) -> None:
        """Raise AssertionError if the state of groups contradicts the cache or the pending pods."""
        self.state.pending_groups.check()
        self.state.group_cache.check(lambda uid: self.state.cache.assigned(uid) is not None)

    def _carry_out(self, demand: GroupDemand, verdict: GroupPlacement, now: float) -> list[Instruction]:
        group, key = demand.group, demand.group.key
        uids = [bind.pod_info.uid for bind in verdict.binds]
        self.state.reservations.end(key, now)
        self.state.pending_groups.place(key, uids, now)
        self.state.queue.placed(key.entry)
        self.state.queue.move_on_event(ClusterEvent.POD_ASSIGNED, now)
        # Further members are placed by themselves, or a decision about them tells why not.
        self.state.pending_groups.requeue(key, now)
        binds = verdict.binds
        if group.spares:
            kept = self.state.reservations.spares_of(key)
            rooms = verdict.spares if demand.spares or kept is None else tuple(kept.rooms.values())
            binds = self.spares.keep(key, binds, rooms, demand.priority, now)
        return list(self.held_binds.begin(group, binds, now))

    def _release(self, batch: Batch, reason: str, now: float) -> list[Instruction]:
        """Release all members of a decision that cannot be carried out, and report why."""
        uids = self.held_binds.release(batch, now)
        members = self.state.group_cache.get(batch.key)
        message = f"group {members.title if members else batch.key.name}: {reason}"
        self.state.group_reports.put(batch.key, uids, message, now)
        return self._report_some()

    def _refuse(
        self,
        demand: GroupDemand,
        refusal: Unschedulable,
        message: str,
        now: float,
        preemption: GroupPreempted,
        *,
        needs_retry: bool,
    ) -> list[Instruction]:
        """Let a group wait: for its victims, or for free resources."""
        key, missed_events = demand.group.key, self.state.queue.missed_since(demand.since)
        reservation = preemption.reservation
        if reservation is not None:
            self.state.reservations.put(reservation, now)
        elif not needs_retry:
            self.state.reservations.end(key, now)
        message += preemption.note
        uids = self.state.pending_groups.members(key).of("waiting")
        if not self.state.pending_groups.end_decision(key, now):
            self.state.queue.add_unschedulable(key.entry, refusal.requeue_on)
            if missed_events & refusal.requeue_on or needs_retry:
                self.state.queue.requeue(key.entry)
        self.state.group_reports.put(key, uids, message, now, refusal.why)
        return self._report_some()

    def _report_some(self) -> list[Instruction]:
        """Report to the next members that have not received their group's message."""
        reports = list[Instruction]()
        for uid, message, details in self.state.group_reports.take():
            pending = self.state.pending_pods.get(uid)
            if pending is not None and self.state.group_cache.state(uid) == "waiting":
                reports += self.state.pending_pods.report_unschedulable(pending, "Unschedulable", message, details)
        return reports

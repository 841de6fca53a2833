"""The scheduler without I/O: events in, instructions out, time as an argument.

`handle` applies a watch event (`nodes` and `pods` one of a kind), and `finished` applies the result of a write. `step`
schedules the next pod or group, and `tick` does what is due. All return instructions: `Bind`, `PreBind`, `Evict`,
`DeleteVictims`, `WriteRates`, `Report`, `ReportGroup`, `ReportRates` and `Notice`. Nothing here does I/O, so a test can
replay a whole run.
"""

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any

from mooring.kube.events import Change, Event
from scheduler.constraints.kinds import NONE, Kinds
from scheduler.cycle.cycle import RecordPhase, SchedulingCycle, ignore_phase
from scheduler.cycle.decisions import SignAssignment
from scheduler.cycle.instructions import Instruction, Notice, Order, Result
from scheduler.cycle.preemption.preemption import Preemption
from scheduler.cycle.preemption.select_victims import PORTION
from scheduler.extender.bound_without_vfs import BoundWithoutVfs
from scheduler.extender.extender_pods import ExtenderPods
from scheduler.kube.group import GroupKey
from scheduler.kube.objects import Node, Pod
from scheduler.pending.groups.group_evictions import MarkedMembers
from scheduler.pending.groups.pending_groups import NO_OPTIONS, GroupOptions
from scheduler.pending.part import Part
from scheduler.state.binding_cycle import BindingCycle
from scheduler.state.event_handlers import EventHandlers
from scheduler.state.groups.group_scheduling import GroupScheduling
from scheduler.state.nominations import Nominations
from scheduler.state.open_writes import OpenOrders
from scheduler.state.pod_scheduling import PodScheduling
from scheduler.state.rates.rate_changes import RateChanges, SignRates
from scheduler.state.shared_state import SharedState
from scheduler.state.vfs.claimed_vfs import RefusedPods, UnstartedPods, VfDisputes
from scheduler.state.vfs.lost_vfs import NO_EVICTIONS, LostVfOptions, LostVfs


@dataclass(slots=True)
class ConstraintFaults(Part):
    """Reports the faults of constraints that each kind has recorded to the log."""

    kinds: Kinds

    def tick(self, now: float) -> Iterable[Instruction]:
        return [Notice("constraint", text, {"constraint": kind}) for kind, text in self.kinds.take_faults()]


class Machine:
    """State and its transitions. Its parts are separate; each gets the others that it calls."""

    # The queue entry in progress.
    _current_entry = ""
    # Whether the last step has paused a decision, which continues after others, or ended one to start it again.
    has_paused = False

    def __init__(
        self,
        scheduler_name: str,
        *,
        evict_never_started: bool = True,
        kinds: Kinds = NONE,
        portion: int = PORTION,
        group_options: GroupOptions = NO_OPTIONS,
        lost_vf_options: LostVfOptions = NO_EVICTIONS,
        sign: SignAssignment | None = None,
        sign_rates: SignRates | None = None,
    ) -> None:
        """Check ``portion`` pods in one step for victims; ``sign`` and ``sign_rates`` sign assignments and rates."""
        self.scheduler_name = scheduler_name
        self.state = state = SharedState(scheduler_name, kinds)
        self.cache, self.queue, self.reservations = state.cache, state.queue, state.reservations
        self.pending_pods, self.pending_groups = state.pending_pods, state.pending_groups
        self.group_cache = state.group_cache
        preemption = Preemption(state.cache, state.reservations, state.budgets, state.group_cache)
        self._scheduling_cycle = SchedulingCycle(state.cache, state.reservations, preemption, sign=sign)
        self.binding_cycle = BindingCycle(state)
        self.nominations = Nominations(state, preemption)
        self.pod_scheduling = PodScheduling(state, self._scheduling_cycle, self.binding_cycle, portion)
        self.group_scheduling = GroupScheduling(
            state, self._scheduling_cycle, preemption, self.binding_cycle, group_options, portion
        )
        self.vf_disputes = VfDisputes(state)
        self.unstarted_pods = UnstartedPods(state, self.vf_disputes, evicts=evict_never_started)
        self.lost_vfs = LostVfs(state, self.unstarted_pods, lost_vf_options)
        self.rate_changes = RateChanges(state, sign_rates)
        self._open_orders = OpenOrders(state)
        self.extender_pods = _extender_pods(state, kinds, sign)
        self.parts = self._parts()
        self.event_handlers = EventHandlers(state, self.binding_cycle, self.parts)

    def _parts(self) -> tuple[Part, ...]:
        """Return the parts in the order in which they process events. A new feature is a `Part` and an entry here."""
        return (
            self.state.run_times,
            self.binding_cycle,
            self.nominations,
            self.pod_scheduling,
            self.group_scheduling.first_call,
            self.group_scheduling.backfill,
            self.pending_groups,
            self.group_scheduling,
            self.group_scheduling.spares,
            self.state.group_reports,
            self.group_scheduling.half_groups,
            MarkedMembers(self.scheduler_name, self.cache, self.group_cache),
            RefusedPods(self.cache, self._scheduling_cycle.refusing_nodes),
            # Each calls those before it.
            self.vf_disputes,
            self.unstarted_pods,
            self.lost_vfs,
            self.rate_changes,
            self.extender_pods.bound_without_vfs,
            ConstraintFaults(self.extender_pods.kinds),
            self._open_orders,
        )

    def nodes(self, event: Change[Node], now: float) -> list[Instruction]:
        return self.event_handlers.nodes(event, now)

    def pods(self, event: Change[Pod], now: float) -> list[Instruction]:
        return self.event_handlers.pods(event, now)

    def handle(self, kind: type[Any], event: Event[Any], now: float) -> list[Instruction]:
        return self.event_handlers.handle(kind, event, now)

    def finished(self, order: Order, result: Result, now: float) -> list[Instruction]:
        instructions: list[Instruction] = []
        for part in self.parts:
            instructions += part.finished(order, result, now)
        return self._note_writes(instructions, now)

    def _note_writes(self, instructions: list[Instruction], now: float) -> list[Instruction]:
        """Record the writes that the loop starts next."""
        self.state.run_times.note_binds(instructions, now)
        self._open_orders.begin(instructions, now)
        return instructions

    def step(self, now: float, record_phase: RecordPhase = ignore_phase) -> list[Instruction] | None:
        """Schedule the next pod or group, or continue the current decision; return None if no pod is ready.

        ``record_phase`` is called at the end of each phase.
        """
        instructions = self._step(now, record_phase)
        return None if instructions is None else self._note_writes(instructions, now)

    def _step(self, now: float, record_phase: RecordPhase) -> list[Instruction] | None:
        self.has_paused, self.reservations.now = False, now
        if not (self._current_entry and self.queue.is_in_flight(self._current_entry)):
            self._current_entry = ""
            self.group_scheduling.abandon()
            self.pod_scheduling.abandon()
            if self.nominations.take_over(now):
                return []
            if not self._begin(now):
                return None
        is_group = self.group_scheduling.decision is not None
        if is_group:
            instructions = self.group_scheduling.proceed(now, record_phase)
        else:
            instructions = self.pod_scheduling.proceed(self._current_entry, now, record_phase)
        self.has_paused = instructions is None and is_group and self.group_scheduling.decision is None
        if instructions is not None or self.has_paused:
            self._current_entry = ""
        return instructions or []

    def _begin(self, now: float) -> bool:
        """Start a decision about the next queue entry; return whether there is one."""
        self._current_entry = self.group_scheduling.resume(now)
        if not self._current_entry:
            self._open_orders.block_full_namespaces(now)
            self._current_entry = self.queue.pop(now) or ""
            if (key := GroupKey.of_entry(self._current_entry)) is not None:
                self.group_scheduling.begin(key)
            elif self._current_entry:
                self.pod_scheduling.begin(self._current_entry)
        return self._current_entry != ""

    @property
    def is_trying(self) -> bool:
        """Return whether a decision, or work that precedes it, needs another step."""
        return bool(self._current_entry or self.pending_pods.nominated_in_status)

    def give_up(self, now: float) -> list[Instruction]:
        """Mark the pod unschedulable whose decision failed because of a bug; continue with the others of its signature.

        It is not tried again automatically, and reserves no room: its room, or its group's, is released.
        """
        entry, self._current_entry = self._current_entry, ""
        return [*self.group_scheduling.give_up(entry, now), *self.pod_scheduling.give_up(entry, now)]

    def tick(self, now: float) -> list[Instruction]:
        self._scheduling_cycle.tick(now)
        self.reservations.now = now
        instructions: list[Instruction] = []
        for part in self.parts:
            instructions += part.tick(now)
        return self._note_writes(instructions, now)

    def repeat_reports(self) -> list[Instruction]:
        return [instruction for part in self.parts for instruction in part.repeat_reports()]

    def next_due(self) -> float | None:
        """Return when `tick` or `step` has work, if no event arrives before; None for never."""
        if self.is_trying or self.group_scheduling.paused_decisions:
            return 0.0
        times = [self.queue.next_ready(), *(part.next_due() for part in self.parts)]
        return min((time for time in times if time is not None), default=None)

    @property
    def budget_spent(self) -> int:
        """How many searches for a placement have run out of steps so far."""
        return self._scheduling_cycle.overruns

    def check(self) -> None:
        self.state.check()
        for part in self.parts:
            part.check()


def _extender_pods(state: SharedState, kinds: Kinds, sign: SignAssignment | None) -> ExtenderPods:
    return ExtenderPods(
        scheduler_name=state.scheduler_name,
        cache=state.cache,
        pending_pods=state.pending_pods,
        queue=state.queue,
        reservations=state.reservations,
        budgets=state.budgets,
        groups=state.group_cache,
        kinds=kinds,
        bound_without_vfs=BoundWithoutVfs(state.scheduler_name),
        sign=sign,
    )

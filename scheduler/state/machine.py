"""The scheduler without its edges: events in, instructions out, time as an argument.

`nodes`, `pods` and `handle` apply watch events, `finished` applies the result of a write. `step` decides about the next
pod, `tick` does what is due at a time. All return instructions: `Bind`, `PreBind`, `Evict`, `DeleteVictims`,
`WriteRates`, `Report` and `Notice`. Nothing here does I/O, so a whole life can be replayed in a test.
"""

from dataclasses import replace
from typing import Any

from mooring.kube.events import Change, Event
from scheduler.cache.cache import Cache
from scheduler.cache.groups.members import GroupsByPod
from scheduler.cache.groups.placed_groups import PlacedGroups
from scheduler.cache.groups.pod_groups import KnownPodGroups
from scheduler.constraints.kinds import NONE, Kinds
from scheduler.cycle.cycle import RecordPhase, SchedulingCycle, ignore_phase
from scheduler.cycle.decisions import SignAssignment
from scheduler.cycle.groups.group_budget import MEMBERS_A_TURN
from scheduler.cycle.groups.group_cycle import GroupCycle
from scheduler.cycle.groups.preemption.preempt import GroupPreemption
from scheduler.cycle.instructions import (
    DeleteVictims,
    Evict,
    EvictionResult,
    Instruction,
    Notice,
    Order,
    Report,
    Result,
)
from scheduler.cycle.nominations import Nomination
from scheduler.cycle.preemption.disruption_budgets import Budgets
from scheduler.cycle.preemption.preemption import Preemption
from scheduler.cycle.preemption.select_victims import PORTION
from scheduler.extender.bound_without_vfs import BoundWithoutVfs
from scheduler.extender.extender_pods import ExtenderPods
from scheduler.kube.objects import Node, Pod
from scheduler.pending.groups.conditions import PodGroupConditions
from scheduler.pending.groups.held_binds import HeldBinds
from scheduler.pending.groups.marked_members import MarkedMembers
from scheduler.pending.groups.member_messages import MemberMessages
from scheduler.pending.groups.options import NO_OPTIONS, GroupOptions
from scheduler.pending.groups.pending_groups import PendingGroups
from scheduler.pending.nominator import Nominator
from scheduler.pending.pending_pods import PendingPods
from scheduler.pending.volume_events import VolumeEvents
from scheduler.pending.volume_waits import VolumeWaits
from scheduler.queue.queue import Queue
from scheduler.state.cluster_objects import ClusterObjects
from scheduler.state.event_handlers import EventHandlers
from scheduler.state.groups.group_scheduling import GroupScheduling
from scheduler.state.nomination_takeover import NominationTakeover
from scheduler.state.open_binds import OpenBinds
from scheduler.state.pod_scheduling import PodScheduling
from scheduler.state.pre_binding import PreBinding
from scheduler.state.rates.rate_changes import RateChanges, SignRates
from scheduler.state.vfs.lost_vfs import NO_EVICTIONS, LostVfOptions, LostVfs
from scheduler.state.vfs.never_started import NeverStarted
from scheduler.state.vfs.vf_disputes import VfDisputes
from scheduler.state.write_results import WriteResults

__all__ = ["DeleteVictims", "Evict", "EvictionResult", "Instruction", "Machine", "Notice", "Report"]


class Machine:
    """State and its transitions. Its parts are separate, and each is given the others that it calls."""

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
        """Check ``portion`` pods in one step for victims; ``sign`` and ``sign_rates`` sign what pods are given."""
        self.scheduler_name = scheduler_name
        self._kinds = kinds
        self.cache = Cache(kinds)
        self.queue = Queue()
        self.nominator = Nominator(self.queue)
        self._volume_waits = VolumeWaits(self.cache.volumes, self.cache.node)
        self._volume_events = VolumeEvents(self.cache.volumes, self.queue, self._volume_waits)
        conditions, held_binds = PodGroupConditions(), HeldBinds()
        member_messages, never_started = MemberMessages(), NeverStarted()
        self.groups_by_pod, self.known_pod_groups = GroupsByPod(), KnownPodGroups()
        self.pending_groups = PendingGroups(self.queue, conditions, self.groups_by_pod, self.known_pod_groups)
        self.pending_pods = PendingPods(
            self.cache, self.queue, self.nominator, self._volume_events, self.pending_groups, self.groups_by_pod, kinds
        )
        self._open_binds = OpenBinds(self.queue, self.pending_pods, self.pending_groups)
        self.lost_vfs = LostVfs(self.cache, self.groups_by_pod, never_started, lost_vf_options)
        self.rate_changes = RateChanges(self.cache, self.nominator, scheduler_name, sign_rates)
        self._bound_without_vfs = BoundWithoutVfs(scheduler_name)
        budgets, self.placed_groups = Budgets(), PlacedGroups(self.groups_by_pod, self.known_pod_groups)
        marked_members = MarkedMembers(scheduler_name, self.cache, self.placed_groups)
        self._preemption = Preemption(self.cache, self.nominator, budgets, self.placed_groups)
        self._scheduling_cycle = SchedulingCycle(self.cache, self.nominator, self._preemption, sign=sign)
        cycle, waits = self._scheduling_cycle, self._volume_waits
        self.pod_scheduling = PodScheduling(
            self.cache, self.queue, self.nominator, self.pending_pods, cycle, waits, portion
        )
        self.group_scheduling = GroupScheduling(
            cache=self.cache,
            queue=self.queue,
            nominator=self.nominator,
            pending_pods=self.pending_pods,
            pending_groups=self.pending_groups,
            groups_by_pod=self.groups_by_pod,
            known_pod_groups=self.known_pod_groups,
            group_cycle=GroupCycle(self.cache, self._scheduling_cycle, self.nominator),
            held_binds=held_binds,
            conditions=conditions,
            marked_members=marked_members,
            messages=member_messages,
            group_preemption=GroupPreemption(
                self.cache, self._scheduling_cycle, self.nominator, budgets, self.placed_groups, self._preemption
            ),
            volume_waits=self._volume_waits,
            options=group_options,
            portion=min(portion, MEMBERS_A_TURN),
        )
        self.vf_disputes = VfDisputes(self.cache, never_started, scheduler_name, evicts=evict_never_started)
        self.nomination_takeover = NominationTakeover(
            self.cache, self.nominator, self.pending_pods, self.pending_groups
        )
        self._pre_binding = PreBinding(
            self.queue, self.pending_pods, self._volume_waits, held_binds, self.group_scheduling
        )
        self._write_results = WriteResults(
            cache=self.cache,
            queue=self.queue,
            pending_pods=self.pending_pods,
            pending_groups=self.pending_groups,
            group_conditions=conditions,
            group_messages=member_messages,
            nominator=self.nominator,
            vf_disputes=self.vf_disputes,
            lost_vfs=self.lost_vfs,
            rate_changes=self.rate_changes,
            marked_members=marked_members,
            pre_binding=self._pre_binding,
        )
        self.extender_pods = ExtenderPods(
            scheduler_name=scheduler_name,
            cache=self.cache,
            pending_pods=self.pending_pods,
            queue=self.queue,
            nominated_pods=self.nominator,
            budgets=budgets,
            is_spared=self.placed_groups.is_whole,
            kinds=kinds,
            bound_without_vfs=self._bound_without_vfs,
            sign=sign,
        )
        self.event_handlers = EventHandlers(
            scheduler_name=scheduler_name,
            cache=self.cache,
            queue=self.queue,
            pending_pods=self.pending_pods,
            pending_groups=self.pending_groups,
            groups_by_pod=self.groups_by_pod,
            group_scheduling=self.group_scheduling,
            held_binds=held_binds,
            marked_members=marked_members,
            nominator=self.nominator,
            volume_events=self._volume_events,
            volume_waits=self._volume_waits,
            vf_disputes=self.vf_disputes,
            lost_vfs=self.lost_vfs,
            rate_changes=self.rate_changes,
            cluster_objects=ClusterObjects(self.cache.pod_counts, budgets),
            bound_without_vfs=self._bound_without_vfs,
        )
        # The entry of the queue that is being decided about.
        self._trying = ""
        self._is_group = False
        # Whether the last step has set a decision aside: it goes on after others.
        self.has_set_aside = False

    def nodes(self, event: Change[Node], now: float) -> list[Instruction]:
        """Apply a watch event of a node."""
        return self.event_handlers.nodes(event, now)

    def pods(self, event: Change[Pod], now: float) -> list[Instruction]:
        """Apply a watch event of a pod."""
        return self.event_handlers.pods(event, now)

    def handle(self, kind: type[Any], event: Event[Any], now: float) -> list[Instruction]:
        """Apply a watch event of any kind of object."""
        return self.event_handlers.handle(kind, event, now)

    def finished(self, order: Order, result: Result, now: float) -> list[Instruction]:
        """Apply the result of a write; raise TypeError if the result is of another kind of write."""
        self._open_binds.end(order, result)
        return self._open_binds.begin(self._write_results.apply(order, result, now), now)

    def step(self, now: float, record_phase: RecordPhase = ignore_phase) -> list[Instruction] | None:
        """Decide about the next pod, or continue the current decision; None if no pod is ready.

        ``record_phase`` is called with each phase that ends.
        """
        found = self._step(now, record_phase)
        return None if found is None else self._open_binds.begin(found, now)

    def _step(self, now: float, record_phase: RecordPhase) -> list[Instruction] | None:
        self.has_set_aside = False
        if not (self._trying and self.queue.is_in_flight(self._trying)):
            self._abandon()
            if self.nomination_takeover.proceed(now):
                return []
            if not self._begin(now):
                return None
        if self._is_group:
            found = self.group_scheduling.proceed(now, record_phase)
        else:
            found = self.pod_scheduling.proceed(self._trying, now, record_phase)
        if found is None:
            self.has_set_aside = self._is_group and not self.group_scheduling.is_deciding
            if self.has_set_aside:
                self._trying = ""
            return []
        self._trying = ""
        return found

    def _abandon(self) -> None:
        """Drop the decision that is under way, if what it is about is not in the queue any more."""
        self._trying = ""
        self.group_scheduling.abandon()
        self.pod_scheduling.abandon()

    def _begin(self, now: float) -> bool:
        """Begin to decide about what is next in the queue; return whether there is anything."""
        self._trying = self.group_scheduling.resume(now)
        if self._trying:
            self._is_group = True
            return True
        self._open_binds.hold(now)
        self._trying = self.queue.pop(now) or ""
        if not self._trying:
            return False
        key = self.pending_groups.key_of(self._trying)
        self._is_group = key is not None
        if key is not None:
            self.group_scheduling.begin(key)
        else:
            self.pod_scheduling.begin(self._trying)
        return True

    @property
    def is_trying(self) -> bool:
        """Return whether a decision takes another step, or what must come before it."""
        return bool(self._trying) or self.nomination_takeover.is_under_way

    def give_up(self, now: float) -> list[Instruction]:
        """Mark the pod unschedulable whose decision failed by a bug; continue with the others of its signature.

        Nothing tries it again by itself, so that it keeps no room from others: its nomination, or its group's, ends.
        """
        uid, self._trying = self._trying, ""
        if (key := self.pending_groups.key_of(uid)) is not None:
            self.nominator.delete_group(key, now)
            return self.group_scheduling.give_up(uid)
        self.group_scheduling.abandon()
        return self.pod_scheduling.give_up(uid, now)

    def tick(self, now: float) -> list[Instruction]:
        """Return the instructions that are due: for pods that never start, volumes that are bound or never will be."""
        self._scheduling_cycle.tick(now)
        found: list[Instruction] = self._pre_binding.tick(now) if self._volume_waits else []
        for nomination in self.nominator.overdue(now) if self.nominator else ():
            found += self._stop_waiting(nomination, now)
        self.pod_scheduling.tick(now)
        found += self.group_scheduling.tick(now)
        found += self.vf_disputes.overdue(now)
        found += self.lost_vfs.overdue(now)
        found += self.rate_changes.overdue(now)
        found += (Notice("constraint", text, {"constraint": kind}) for kind, text in self._kinds.take_faults())
        self._open_binds.release(now)
        return self._open_binds.begin(found, now)

    def _stop_waiting(self, nomination: Nomination, now: float) -> list[Instruction]:
        """Reject a pod's nomination if the VFs that it waits for are not returned."""
        if nomination.group is not None and not self._preemption.awaits_vf(nomination.node):
            # Another member of the group waits for VFs, and falls with it; or none does any more.
            if self.nominator.of(nomination.assigned.uid) is nomination:
                self.nominator.add(replace(nomination, until=None))
            return []
        uid, why = nomination.assigned.uid, self._preemption.stop_waiting(nomination)
        self.nominator.reject(uid, now)
        return self.pending_pods.report_unschedulable(
            self.pending_pods[uid], "Unschedulable", f"nomination given up: {why}"
        )

    def report_again(self) -> list[Instruction]:
        """Return the reports that hold until a person acts: a new leader sends them again."""
        return [*self.vf_disputes.report_again(), *self._bound_without_vfs.report_again()]

    def next_due(self) -> float | None:
        """Return when `tick` or `step` has work, if no event arrives before; None for never."""
        if self.is_trying or self.group_scheduling.has_aside:
            return 0.0
        times = (
            self.queue.next_ready(),
            self.vf_disputes.next_due(),
            self.lost_vfs.next_due(),
            self.rate_changes.next_due(),
            self._volume_waits.next_due(),
            self.nominator.next_due(),
            self.pod_scheduling.next_due(),
            self.group_scheduling.next_due(),
            self._open_binds.next_due(),
        )
        return min((time for time in times if time is not None), default=None)

    @property
    def budget_spent(self) -> int:
        """How many searches for a placement have run out of steps so far."""
        return self._scheduling_cycle.budget_spent

    def check(self) -> None:
        """Raise AssertionError if any derived state contradicts its source."""
        self.cache.check()
        self.queue.check()
        self.pending_pods.check()
        self._volume_waits.check()
        self.group_scheduling.check()

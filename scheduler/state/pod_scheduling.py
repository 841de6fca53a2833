"""Pods that are scheduled one by one, from the queue to their Binds: the decision in progress, and its consequences.

A decision is divided into steps if it takes long. If a pod fits nowhere, the result applies to all pods of the same
signature until something happens that could help them. Groups are in `scheduler.state.groups.group_scheduling`.

A decision may have no steps left for some nodes. Its results are kept, so the next attempt continues with the other
nodes. It takes up to half a second, so there is one in `APART_S` for all pods together, in turns.
"""

from collections.abc import Hashable, Iterable
from dataclasses import dataclass, field, replace

from scheduler.cycle.cycle import RecordPhase, SchedulingCycle
from scheduler.cycle.decisions import Bind, Unschedulable
from scheduler.cycle.instructions import DeleteVictims, Instruction
from scheduler.cycle.preemption.select_victims import VictimSearch
from scheduler.kube.cluster_event import NO_EVENT, ClusterEvent
from scheduler.kube.outcomes import Refused
from scheduler.kube.pod_info import PodInfo
from scheduler.pending.part import Part
from scheduler.state.binding_cycle import BindingCycle
from scheduler.state.shared_state import SharedState

# Seconds between two attempts to continue a search.
APART_S = 10.0


@dataclass(slots=True)
class PodScheduling(Part):
    """The pods without a group. ``portion`` pods are checked for victims in one step."""

    state: SharedState
    scheduling_cycle: SchedulingCycle
    binding_cycle: BindingCycle
    portion: int
    # The pods whose search must continue, and when the first one does: that which has waited longest.
    _incomplete_uids: dict[str, None] = field(default_factory=dict)
    _next_attempt: float = 0.0
    # The search for victims of the pod in progress.
    _search: VictimSearch = field(init=False)
    # The number of the event after which the decision began.
    _since: int = 0

    def __post_init__(self) -> None:
        self._search = VictimSearch(self.portion)

    def abandon(self) -> None:
        if self._search.is_begun:
            self._search = VictimSearch(self.portion)

    def begin(self, uid: str) -> None:
        self.state.pending_pods[uid].attempts += 1
        self._since = self.state.queue.event_number

    def proceed(self, uid: str, now: float, record_phase: RecordPhase) -> list[Instruction] | None:
        """Continue the decision about a pod; return None if it needs another step."""
        pending = self.state.pending_pods[uid]
        if isinstance(pending.pod_info, Refused):
            self.state.queue.add_unschedulable(uid, NO_EVENT)
            return self.state.pending_pods.report_unschedulable(pending, "InvalidRequest", pending.pod_info.reason)
        decision = self._shared_result(pending.pod_info) or self.scheduling_cycle.proceed(
            pending.pod_info, now, self._search, record_phase
        )
        if decision is None:
            return None
        if isinstance(decision, Unschedulable):
            return self._add_unschedulable(uid, decision, now)
        return self._assume(uid, decision, now, record_phase)

    def give_up(self, uid: str, now: float) -> list[Instruction]:
        pending = self.state.pending_pods.get(uid)
        if pending is None or self.state.cache.assigned(uid) is not None:
            return []
        self.state.reservations.delete(uid, now)
        self.state.queue.add_unschedulable(uid, NO_EVENT)
        return self.state.pending_pods.report_unschedulable(
            pending, "Unschedulable", "internal error while scheduling this pod: see the scheduler's log"
        )

    def tick(self, now: float) -> Iterable[Instruction]:
        while self._incomplete_uids and now >= self._next_attempt:
            uid = next(iter(self._incomplete_uids))
            del self._incomplete_uids[uid]
            if self.state.queue.is_unschedulable(uid):
                self.state.queue.requeue(uid)
                self._next_attempt = now + APART_S
        return ()

    def next_due(self) -> float | None:
        return self._next_attempt if self._incomplete_uids else None

    def _assume(self, uid: str, decision: Bind, now: float, record_phase: RecordPhase) -> list[Instruction]:
        self.state.reservations.delete(uid, now)
        self.state.cache.assume(decision.assigned, now)
        record_phase("Reserve")
        self.state.queue.note_placement(uid)
        self.state.queue.move_on_event(ClusterEvent.POD_ASSIGNED, now)
        return list(self.binding_cycle.await_volumes([decision], now))

    def _shared_result(self, pod_info: PodInfo) -> Unschedulable | None:
        """Return the result of an unschedulable pod of the same signature, if no event since then could have helped.

        The result describes the current nodes, so any change of a node ends it.
        """
        uid = self.state.queue.answer_of(self._signature(pod_info)) if self.state.queue.has_unschedulable else ""
        end, answer = (uid and self.state.pending_pods[uid].answer) or (-1, None)
        return replace(answer, pod_info=pod_info) if answer and end == self.state.cache.nodes.renewals.end else None

    def _add_unschedulable(self, uid: str, decision: Unschedulable, now: float) -> list[Instruction]:
        """Set a pod aside that fits nowhere; delete its victims, and report to all pods that share the result."""
        pods, queue, reservations = self.state.pending_pods, self.state.queue, self.state.reservations
        pending, proposal, missed_events = pods[uid], decision.nominate, queue.missed_since(self._since)
        pending.is_oversized = not decision.requeue_on
        pending.answer = self.state.cache.nodes.renewals.end, decision
        if proposal is None:
            reservations.delete(uid, now)
        else:
            reservations.put(proposal.reservation, now)
        uids = queue.add_unschedulable(uid, decision.requeue_on, self._signature(decision.pod_info))
        if missed_events & decision.requeue_on:
            # The change happened during the search, and earlier results may no longer be valid.
            queue.requeue(uid)
        elif decision.is_incomplete and proposal is None:
            if not self._incomplete_uids:
                self._next_attempt = max(self._next_attempt, now + APART_S)
            self._incomplete_uids.setdefault(uid)
        reports = list[Instruction]()
        for pending_uid in (uid, *sorted(uids)):
            reports += pods.report_unschedulable(pods[pending_uid], "Unschedulable", decision.reason, decision.why)
        if proposal is None or not proposal.victims:
            return reports
        return [DeleteVictims(pending.pod, proposal.node, proposal.victims), *reports]

    def _signature(self, pod_info: PodInfo) -> Hashable:
        """Return the key of the pods that share a result; a nominated pod waits for its own victims."""
        nominated_uid = pod_info.uid if self.state.reservations.of(pod_info.uid) is not None else ""
        return (
            pod_info.shape,
            pod_info.affinity_info,
            pod_info.spread,
            pod_info.volumes,
            pod_info.priority,
            # Only room that is reserved from a time on distinguishes pods by their run times.
            pod_info.runs_s if self.state.reservations else None,
            pod_info.pod.spec.preemption_policy,
            nominated_uid,
        )

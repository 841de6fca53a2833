"""Pods that are decided about one by one, from the queue to their Binds: the decision under way, and what it leads to.

A pod is decided about in steps if a step would take long. If it fits nowhere, the result holds for all pods of the same
signature until something happens that could help it. Groups are in `group_scheduling`, beside this module.
"""

from collections.abc import Hashable
from dataclasses import dataclass, field, replace

from scheduler.cache.cache import Cache
from scheduler.cycle.cycle import RecordPhase, SchedulingCycle
from scheduler.cycle.decisions import Bind, Unschedulable
from scheduler.cycle.instructions import DeleteVictims, Instruction, PreBind
from scheduler.cycle.preemption.select_victims import VictimSearch
from scheduler.kube.cluster_event import NO_EVENT, ClusterEvent
from scheduler.kube.pod_info import PodInfo, Refusal
from scheduler.pending.nominator import Nominator
from scheduler.pending.pending_pods import PendingPods
from scheduler.pending.unfinished_searches import UnfinishedSearches
from scheduler.pending.volume_waits import VolumeWaits
from scheduler.queue.queue import Queue


@dataclass(slots=True)
class PodScheduling:
    """The single pods of the machine. ``portion`` pods are checked for victims in one step."""

    cache: Cache
    queue: Queue
    nominator: Nominator
    pending_pods: PendingPods
    scheduling_cycle: SchedulingCycle
    volume_waits: VolumeWaits
    portion: int
    _unfinished: UnfinishedSearches = field(default_factory=UnfinishedSearches)
    # The search for the victims of the pod that is being decided about.
    _search: VictimSearch = field(init=False)

    def __post_init__(self) -> None:
        self._search = VictimSearch(self.portion)

    def abandon(self) -> None:
        """Drop the decision that is under way, if there is one."""
        if self._search.is_begun:
            self._search = VictimSearch(self.portion)

    def begin(self, uid: str) -> None:
        """Begin to decide about a pod that was popped from the queue."""
        self.pending_pods[uid].attempts += 1

    def proceed(self, uid: str, now: float, record_phase: RecordPhase) -> list[Instruction] | None:
        """Go on with the decision about a pod; return None if that takes another step."""
        pending = self.pending_pods[uid]
        if isinstance(pending.pod_info, Refusal):
            self.queue.add_unschedulable(uid, NO_EVENT)
            return self.pending_pods.report_unschedulable(pending, "InvalidRequest", pending.pod_info.reason)
        decision = self._known(pending.pod_info) or self.scheduling_cycle.proceed(
            pending.pod_info, now, self._search, record_phase
        )
        if decision is None:
            return None
        if isinstance(decision, Unschedulable):
            return self._add_unschedulable(uid, decision, now)
        return self._assume(uid, decision, now, record_phase)

    def give_up(self, uid: str, now: float) -> list[Instruction]:
        """Mark a pod unschedulable whose decision failed by a bug; nothing tries it again by itself."""
        pending = self.pending_pods.get(uid)
        if pending is None or self.cache.assigned(uid) is not None:
            return []
        self.nominator.delete(uid, now)
        self.queue.add_unschedulable(uid, NO_EVENT)
        return self.pending_pods.report_unschedulable(
            pending, "Unschedulable", "the scheduler failed to decide about this pod: see its log"
        )

    def tick(self, now: float) -> None:
        """Let one pod come again whose last decision has left nodes unsearched."""
        for uid in self._unfinished.due(now):
            if self.queue.is_unschedulable(uid):
                self.queue.requeue(uid)
                self._unfinished.begun(now)
                return

    def next_due(self) -> float | None:
        """Return when `tick` has work; None for never."""
        return self._unfinished.next_due()

    def _assume(self, uid: str, decision: Bind, now: float, record_phase: RecordPhase) -> list[Instruction]:
        self.nominator.delete(uid, now)
        self.cache.assume(decision.assigned, now)
        record_phase("Reserve")
        self.queue.placed(uid)
        self.queue.move_on_event(ClusterEvent.POD_ASSIGNED, now)
        if decision.plan is None:
            return [decision]
        self.volume_waits.add(decision, now)
        return [PreBind(decision, decision.plan)]

    def _known(self, pod_info: PodInfo) -> Unschedulable | None:
        """Return the result of an unschedulable pod of the same signature, if no event since could have helped.

        The result describes the current nodes, so any change of a node ends it.
        """
        uid = self.queue.answered(self._signature(pod_info)) if self.queue.has_unschedulable else ""
        renewed, answer = (uid and self.pending_pods[uid].answer) or (-1, None)
        return replace(answer, pod_info=pod_info) if answer and renewed == self.cache.nodes.renewals.end else None

    def _add_unschedulable(self, uid: str, decision: Unschedulable, now: float) -> list[Instruction]:
        """Set a pod aside that fits nowhere; delete its victims, and report to all pods that share the result."""
        pending, made, missed = self.pending_pods[uid], decision.nominate, self.queue.missed
        pending.oversized = not decision.requeue_on
        pending.answer = self.cache.nodes.renewals.end, decision
        if made is None:
            self.nominator.delete(uid, now)
        else:
            self.nominator.nominate(made.nomination, now)
        others = self.queue.add_unschedulable(uid, decision.requeue_on, self._signature(decision.pod_info))
        if missed & decision.requeue_on:
            # The change happened during the search, and earlier results may no longer hold.
            self.queue.requeue(uid)
        elif decision.is_incomplete and made is None:
            self._unfinished.add(uid, now)
        told = [self.pending_pods[one] for one in (uid, *sorted(others))]
        found = [
            one
            for other in told
            for one in self.pending_pods.report_unschedulable(other, "Unschedulable", decision.reason, decision.why)
        ]
        if made is None or not made.victims:
            return found
        return [DeleteVictims(pending.pod, made.nomination.node, made.victims), *found]

    def _signature(self, pod_info: PodInfo) -> Hashable:
        """Return the key of the pods that share a result; a nominated pod waits for its own victims."""
        alone = pod_info.uid if self.nominator.of(pod_info.uid) is not None else ""
        return (
            pod_info.shape,
            pod_info.affinity_info,
            pod_info.spread,
            pod_info.volumes,
            pod_info.priority,
            pod_info.pod.spec.preemption_policy,
            alone,
        )

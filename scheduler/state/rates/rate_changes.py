"""Rates of running pods that their users change: what is allocated, what waits, and what is reported. Pure.

A user edits the rates in the request of a bound pod. `pod_assigned` records the request. `tick`, which only a leader
calls, decides: rates that fit are written (`WriteRates`), and reserved from that moment; others wait until something
changes on their node. Pods of higher priority come first, then those that have waited longer. Everything that a new
leader needs is in the API: the request, the annotations of pod and node, and since when the condition has been
Deferred.

The edits of one user must not delay others. A pod has at most one write in progress, and at least a second between two
writes. The pods of a node are judged in portions, and nodes take turns.
"""

from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from math import inf
from operator import gt
from typing import get_args

from mooring import names
from mooring.annotations.rates import PodRates, VfRates, assigned_rates, dump_rates
from scheduler.cache.assigned_pod import AssignedPod, pod_reference
from scheduler.cache.node_info import NodeInfo
from scheduler.cycle.instructions import (
    Instruction,
    Order,
    RatesReason,
    Report,
    ReportRates,
    Result,
    WriteRates,
    WriteRatesResult,
)
from scheduler.kube.cluster_event import ClusterEvent
from scheduler.kube.objects import Pod, unix_time
from scheduler.kube.outcomes import Refused
from scheduler.pending.part import Part, PodChange
from scheduler.placement.rate_change import Misfit
from scheduler.state.open_writes import OpenWrites
from scheduler.state.rates import pod_rates
from scheduler.state.rates.pod_rates import CONDITION, RatesReport, is_in_force
from scheduler.state.shared_state import SharedState

# Number of pods that one step judges, and maximum number of writes in progress: fewer than a client has connections.
_PORTION, _MAX_WRITES = 32, 8
# Seconds between two writes of one pod, after a conflict (the watch shows what has changed), and after a rejection.
_WRITE_INTERVAL_S, _CONFLICT_S, _REFUSAL_S = 1.0, 0.5, 60.0
# Seconds after which a waiting change is judged again even without an event: a pod that was to come to its node may not
# come.
_REVIEW_S = 60.0

SignRates = Callable[[str], str]


@dataclass(slots=True)
class _Change:
    """A pod whose rates differ from its request, or whose condition does not show yet that they are equal.

    ``new_rates`` is its request, or why that is rejected. ``pod`` is the part of the pod that a write needs.
    ``late_generation`` is the generation that was not in force when the pod was last received, and since when in UNIX
    seconds; 0 for none.
    ``last_report`` is the last one of this process, ``shown_report`` that of the pod's status.
    ``shown_start`` is since when an earlier leader has reported it as deferred, as an RFC 3339 time: it orders those
    that a new leader receives together.
    """

    pod: Pod
    node: str
    new_rates: tuple[VfRates, ...] | Refused
    priority: int
    start: float
    shown_start: str = ""
    next_write: float = 0.0
    last_report: RatesReport | None = None
    shown_report: RatesReport | None = None
    late_generation: int = 0
    late_unix_start: float = 0.0

    @property
    def order(self) -> tuple[int, float, bool, str, str]:
        return -self.priority, self.start, not self.shown_start, self.shown_start, self.pod.metadata.uid

    def report(self, reason: RatesReason, message: str) -> Iterator[Instruction]:
        """Yield a condition and an event, unless the last report was the same."""
        if self.last_report != (reason, message):
            self.last_report = reason, message
            yield ReportRates(self.pod, reason, message)
            yield Report(self.pod, pod_rates.EVENTS[reason], message)


@dataclass(slots=True)
class _Review:
    """When a node's changes are judged. It is judged in portions: ``uids`` are the remaining pods, in reverse order.

    ``is_outdated``: something has changed there since, so all its pods are judged once more.
    """

    due: float
    uids: list[str] = field(default_factory=list)
    is_outdated: bool = False


class RateChanges(Part):
    """The changes that are not settled, by pod uid; each pod is on a node in the cache."""

    def __init__(self, state: SharedState, sign: SignRates | None) -> None:
        self._cache, self._queue, self._reservations = state.cache, state.queue, state.reservations
        self._scheduler_name, self._sign, self._run_times = state.scheduler_name, sign, state.run_times
        self._changes: dict[str, _Change] = {}
        # Pods whose changed rates are in force, and whose condition says so.
        self._uids_in_force: set[str] = set()
        self._reviews: dict[str, _Review] = {}
        # When the first one is due; possibly too early, never too late.
        self._next_review = inf
        self._writes = OpenWrites(_MAX_WRITES)

    def pod_assigned(self, change: PodChange, now: float) -> Iterable[Instruction]:
        self._record(change.pod, change.assigned_pod, now)
        return ()

    def pod_unreadable(self, uid: str) -> None:
        self._drop(uid)

    def pod_deleted(self, uid: str, assigned_pod: AssignedPod | None, now: float) -> None:
        self._drop(uid)
        if assigned_pod is not None:
            self.touch(assigned_pod.node, now)

    def _record(self, pod: Pod, assigned_pod: AssignedPod, now: float) -> None:
        if pod.spec.scheduler_name != self._scheduler_name:
            return
        new_rates, uid = pod_rates.read_new_rates(pod, assigned_pod, self._cache), pod.metadata.uid
        if new_rates is None:
            self._drop(uid)
            if assigned_pod.rates is not None and pod.metadata.deletion_timestamp is None:
                self._uids_in_force.add(uid)
            return
        condition = pod.condition(CONDITION)
        reference = pod_rates.reference(pod, condition)
        change = self._changes.get(uid)
        if change is None:
            change = self._open(reference, assigned_pod, new_rates, now)
            change.shown_start = pod_rates.transition_time(condition, "Deferred")
        elif change.new_rates != new_rates:
            change.start, change.shown_start = now, ""
        change.pod, change.new_rates = reference, new_rates
        self._note_generation(change, assigned_pod, now, pod_rates.transition_time(condition, "Allocated"))
        change.shown_report = pod_rates.read_report(condition) if condition is not None else None
        change.last_report = change.last_report or change.shown_report
        self.touch(assigned_pod.node, now)

    def _open(
        self, pod: Pod, assigned_pod: AssignedPod, new_rates: tuple[VfRates, ...] | Refused, start: float
    ) -> _Change:
        change = _Change(pod, assigned_pod.node, new_rates, assigned_pod.priority, start)
        self._changes[assigned_pod.uid] = change
        self._uids_in_force.discard(assigned_pod.uid)
        return change

    def _note_generation(self, change: _Change, assigned_pod: AssignedPod, now: float, shown_start: str) -> None:
        """Record whether the allocated generation is late: from now on, or since the API server shows it."""
        rates, unix_now = assigned_pod.rates, now + self._run_times.unix_offset_s
        generation = 0 if rates is None or is_in_force(assigned_pod, self._cache) else rates.generation
        if change.late_generation != generation:
            change.late_generation, change.late_unix_start = generation, min(unix_now, unix_time(shown_start, unix_now))

    def node_changed(self, previous: NodeInfo | None, node: NodeInfo, now: float) -> Iterable[Instruction]:
        """Record that a node reports another state: rates that were in force may no longer be."""
        for assigned_pod in self._cache.assigned_pods_on(node.name) if self._uids_in_force else ():
            is_listed = assigned_pod.uid in self._uids_in_force
            if is_listed and assigned_pod.rates is not None and not is_in_force(assigned_pod, self._cache):
                change = self._open(pod_reference(assigned_pod), assigned_pod, assigned_pod.rates.rates, now)
                change.last_report = change.shown_report = pod_rates.in_force_report(node.name)
                self._note_generation(change, assigned_pod, now, "")
        self.touch(node.name, now)
        return ()

    def _drop(self, uid: str) -> None:
        self._uids_in_force.discard(uid)
        change = self._changes.pop(uid, None)
        if change is not None and not self._has_changes(change.node):
            self._reviews.pop(change.node, None)

    def touch(self, node: str, at: float) -> None:
        """Record that something has changed on a node: changes that wait there may fit at that time."""
        if self._has_changes(node):
            self._schedule(node, at).is_outdated = True

    def _schedule(self, node: str, at: float) -> _Review:
        """Let a node be judged at a time, or earlier if it already is."""
        review = self._reviews.setdefault(node, _Review(at))
        review.due = min(review.due, at)
        self._next_review = min(self._next_review, at)
        return review

    def states(self) -> Mapping[RatesReason, int]:
        counts = Counter(change.last_report[0] for change in self._changes.values() if change.last_report is not None)
        return {reason: counts[reason] for reason in get_args(RatesReason) if reason != "InForce"}

    def late_start(self) -> float | None:
        """Return since when the oldest allocated rates are late, in UNIX seconds; None if none may still be applied."""
        starts = [
            change.late_unix_start
            for uid, change in self._changes.items()
            if change.late_generation
            and (assigned_pod := self._cache.assigned(uid)) is not None
            and pod_rates.may_apply(assigned_pod, self._cache)
        ]
        return min(starts, default=None)

    def repeat_reports(self) -> Iterable[Instruction]:
        """Compare with what the API server shows: an earlier leader may have written reports."""
        for change in self._changes.values():
            change.last_report = change.shown_report or change.last_report
            self.touch(change.node, self._reservations.now)
        return ()

    def next_due(self) -> float | None:
        return max(self._next_review, self._writes.next_time()) if self._reviews else None

    def tick(self, now: float) -> Iterator[Instruction]:
        if not self._reviews or now < max(self._next_review, self._writes.next_time()):
            return
        node = min(self._reviews, key=lambda node: (self._reviews[node].due, node))
        review = self._reviews.pop(node) if self._reviews[node].due <= now else None
        self._next_review = min((waiting_review.due for waiting_review in self._reviews.values()), default=inf)
        if review is None:
            return
        if not review.uids:
            uids = [pod.uid for pod in self._cache.assigned_pods_on(node) if pod.uid in self._changes]
            review.uids = sorted(uids, key=lambda uid: self._changes[uid].order, reverse=True)
            review.is_outdated = False
        for _ in range(_PORTION):
            change = self._changes.get(review.uids.pop()) if review.uids and self._writes.next_time() <= now else None
            if change is not None:
                yield from self._settle(change, now)
        if review.uids:
            self._schedule(node, now).uids = review.uids
        if review.is_outdated:
            self._schedule(node, now).is_outdated = True

    def finished(self, order: Order, result: Result, now: float) -> Iterable[Instruction]:
        """Apply the definite result of a write.

        What was reserved for the write alone is free again: the node may also have put lower rates in force.
        """
        if not isinstance(order, WriteRates) or not isinstance(result, WriteRatesResult):
            return ()
        uid, old_pod = order.rates.uid, self._cache.assigned(order.rates.uid)
        self._writes.end(uid, order.pod.metadata.namespace)
        self._cache.finish_rates(uid, is_written=result.kind == "written")
        new_pod, change = self._cache.assigned(uid), self._changes.get(uid)
        instructions = list[Instruction]()
        if result.kind == "written":
            instructions.append(Report(order.pod, "RatesAllocated", order.message))
        if change is not None and new_pod is not None:
            instructions += self._note_result(change, order, result, now)
        if old_pod is not None and new_pod is not None and any(map(gt, old_pod.reserved, new_pod.reserved)):
            self._queue.move_on_event(ClusterEvent.VFS_FREED, now)
            self.touch(order.rates.node, now)
        return instructions

    def _note_result(
        self, change: _Change, order: WriteRates, result: WriteRatesResult, now: float
    ) -> Iterator[Instruction]:
        delays = {"written": _WRITE_INTERVAL_S, "refused": _REFUSAL_S}
        change.next_write = now + delays.get(result.kind, _CONFLICT_S)
        self.touch(order.rates.node, change.next_write)
        if result.kind == "written":
            change.last_report = "Allocated", order.message
        elif result.kind == "refused":
            yield from change.report("Deferred", f"the API server rejected the rates: {result.reason}")

    def _has_changes(self, node: str) -> bool:
        pods = self._cache.assigned_pods_on(node) if self._changes else ()
        return any(pod.uid in self._changes for pod in pods)

    def _settle(self, change: _Change, now: float) -> Iterator[Instruction]:
        uid, namespace, new_rates = change.pod.metadata.uid, change.pod.metadata.namespace, change.new_rates
        assigned_pod = self._cache.assigned(uid)
        if assigned_pod is None or assigned_pod.assignment is None or self._cache.is_writing_rates(uid):
            return
        if self._cache.node(assigned_pod.node) is None:
            # If the node does not come back, its pods are deleted.
            return
        node, rates = assigned_pod.node, assigned_pod.rates
        allocation = rates.rates if rates is not None else assigned_rates(assigned_pod.assignment)
        if isinstance(new_rates, Refused):
            yield from change.report("Refused", new_rates.reason)
        elif new_rates == allocation:
            yield from change.report(*pod_rates.allocation_report(assigned_pod, self._cache))
        elif change.next_write > now:
            self._schedule(node, change.next_write)
        elif not self._writes.room(namespace, now):
            self._schedule(node, now + _WRITE_INTERVAL_S)
        else:
            outcome = pod_rates.judge(assigned_pod, allocation, new_rates, self._cache, self._reservations)
            if isinstance(outcome, Misfit):
                self._schedule(node, now + _REVIEW_S)
                yield from change.report(outcome.reason, outcome.message)
                return
            # From now on, what the rates need is reserved.
            generation = pod_rates.newest_generation(assigned_pod, self._cache) + 1
            new_allocation = PodRates(uid, node, generation, new_rates, outcome.reserved)
            self._cache.write_rates(new_allocation)
            self._writes.begin(uid, namespace, now)
            message = pod_rates.allocation_message(new_allocation)
            yield WriteRates(change.pod, new_allocation, self._annotations(new_allocation), message)

    def _annotations(self, rates: PodRates) -> dict[str, str]:
        text = dump_rates(rates)
        return {names.RATES: text} | ({names.RATES_SIGNATURE: self._sign(text)} if self._sign is not None else {})

"""Rates of running pods that their users change: what is allocated, what waits, and what is reported. Pure.

A user edits the rates in the request of a bound pod. `pod_assigned` records the request. `tick`, which only a leader
calls, decides: rates that fit are written (`WriteRates`), and reserved from that moment; others wait until something
changes on their node. Pods of higher priority come first, then those that have waited longer. Everything that a new
leader needs is in the API: the request, the annotations of pod and node, and since when the condition has been
Deferred.

The edits of one user must not delay others. A pod has at most one write in progress, and at least a second between two
writes. The pods of a node are judged in portions, and nodes take turns.
"""

from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass
from operator import gt
from typing import get_args

from mooring import names
from mooring.annotations.assignment import Assignment
from mooring.annotations.rates import PodRates, VfRates, assigned_rates, dump_rates
from scheduler.cache.assigned_pod import AssignedPod
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
from scheduler.state.due_nodes import DueNodes
from scheduler.state.open_writes import OpenWrites
from scheduler.state.rates import rates_condition
from scheduler.state.rates.feasibility import changes_rates, is_in_force, judge, may_apply, newest_generation
from scheduler.state.rates.new_rates import read_new_rates
from scheduler.state.rates.rates_condition import CONDITION, EVENTS, RatesReport
from scheduler.state.shared_state import SharedState

# Number of pods that one step judges, and maximum number of writes in progress: fewer than a client has connections.
_PORTION, _MAX_WRITES = 32, 8
# Seconds between two writes of one pod, after a conflict (the watch shows what has changed), and after a rejection.
_WRITE_INTERVAL_S, _CONFLICT_S, _REFUSAL_S = 1.0, 0.5, 60.0
# Seconds after which a waiting change is judged again even without an event: a pod that was to come to its node may not
# come.
_REVIEW_S = 60.0

SignRates = Callable[[str], str]


@dataclass(frozen=True, slots=True)
class _LateGeneration:
    """A generation that is not in force: since when, in UNIX seconds."""

    generation: int
    unix_start: float


@dataclass(slots=True)
class _Change:
    """A pod whose rates differ from its request, or whose condition does not show yet that they are equal.

    ``new_rates`` is its request, or why that is rejected. ``pod`` is the part of the pod that a write needs.
    ``late_generation`` is the generation that was not in force when the pod was last received, and since when.
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
    late_generation: _LateGeneration | None = None

    @property
    def order(self) -> tuple[int, float, bool, str, str]:
        return -self.priority, self.start, not self.shown_start, self.shown_start, self.pod.metadata.uid


class RateChanges(Part):
    """The changes that are not settled, by pod uid; each pod is on a node in the cache."""

    def __init__(self, state: SharedState, sign: SignRates | None) -> None:
        self._cache, self._queue, self._reservations = state.cache, state.queue, state.reservations
        self._scheduler_name, self._sign, self._run_times = state.scheduler_name, sign, state.run_times
        self._changes: dict[str, _Change] = {}
        # Pods whose changed rates are in force, and whose condition says so.
        self._uids_in_force: set[str] = set()
        self._due_nodes = DueNodes()
        # Nodes that are judged in portions: the remaining pods, in reverse order.
        self._rest_by_node: dict[str, list[str]] = {}
        # Those of these nodes where something has changed since: their pods are judged once more.
        self._changed_nodes: set[str] = set()
        self._writes = OpenWrites(_MAX_WRITES)

    def pod_assigned(self, change: PodChange, now: float) -> Iterable[Instruction]:
        """Record the request of a bound pod, and that rates that it has released may help others on its node."""
        if ClusterEvent.VFS_FREED in change.event:
            self.touch(change.assigned.node, now)
        self._record(change.pod, change.assigned, now)
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
        new_rates, uid = read_new_rates(pod, assigned_pod, self._cache), pod.metadata.uid
        if new_rates is None:
            self._drop(uid)
            if assigned_pod.rates is not None and pod.metadata.deletion_timestamp is None:
                self._uids_in_force.add(uid)
            return
        condition = pod.condition(CONDITION)
        change = self._changes.get(uid)
        if change is None:
            change = self._open(rates_condition.reference(pod, condition), assigned_pod, new_rates, now)
            change.shown_start = rates_condition.transition_time(condition, "Deferred")
        elif change.new_rates != new_rates:
            change.start, change.shown_start = now, ""
        change.pod, change.new_rates = rates_condition.reference(pod, condition), new_rates
        generation = (
            None
            if assigned_pod.rates is None or is_in_force(assigned_pod, self._cache)
            else assigned_pod.rates.generation
        )
        if generation is None:
            change.late_generation = None
        elif change.late_generation is None or change.late_generation.generation != generation:
            change.late_generation = self._late(
                generation, now, rates_condition.transition_time(condition, "Allocated")
            )
        if condition is not None and change.last_report is None:
            change.last_report = rates_condition.report_of(condition)
        self.touch(assigned_pod.node, now)

    def _open(
        self, pod: Pod, assigned_pod: AssignedPod, new_rates: tuple[VfRates, ...] | Refused, start: float
    ) -> _Change:
        self._uids_in_force.discard(assigned_pod.uid)
        change = self._changes[assigned_pod.uid] = _Change(
            pod, assigned_pod.node, new_rates, assigned_pod.priority, start
        )
        return change

    def node_changed(self, previous: NodeInfo | None, node: NodeInfo, now: float) -> Iterable[Instruction]:
        """Record that a node reports another state: rates that were in force may no longer be."""
        for assigned_pod in self._cache.assigned_pods_on(node.name) if self._uids_in_force else ():
            is_listed = assigned_pod.uid in self._uids_in_force
            if is_listed and assigned_pod.rates is not None and not is_in_force(assigned_pod, self._cache):
                change = self._open(rates_condition.pod_of(assigned_pod), assigned_pod, assigned_pod.rates.rates, now)
                change.last_report = rates_condition.in_force_report(node.name)
                change.late_generation = self._late(assigned_pod.rates.generation, now)
        self.touch(node.name, now)
        return ()

    def _late(self, generation: int, now: float, shown_start: str = "") -> _LateGeneration:
        """Return a generation that is late from now on, or since the API server shows it if that is earlier."""
        start = now + self._run_times.unix_offset_s
        return _LateGeneration(generation, min(start, unix_time(shown_start, start)))

    def _drop(self, uid: str) -> None:
        """Record that a pod is deleted, or that nothing is left to do about it."""
        self._uids_in_force.discard(uid)
        change = self._changes.pop(uid, None)
        if change is not None and not self._has_changes(change.node):
            self._rest_by_node.pop(change.node, None)
            self._changed_nodes.discard(change.node)
            self._due_nodes.drop(change.node)

    def touch(self, node: str, at: float) -> None:
        """Record that something has changed on a node: changes that wait there may fit at that time."""
        if self._has_changes(node):
            self._due_nodes.add(node, at)
            if node in self._rest_by_node:
                self._changed_nodes.add(node)

    def states(self) -> Mapping[RatesReason, int]:
        counts = dict.fromkeys(get_args(RatesReason), 0)
        for change in self._changes.values():
            if change.last_report is not None:
                counts[change.last_report[0]] += 1
        return {reason: count for reason, count in counts.items() if reason != "InForce"}

    def late_start(self) -> float | None:
        """Return since when the oldest allocated rates are not in force, in UNIX seconds; None if none are late.

        Rates on nodes that do not support rate changes do not count: they are reported as infeasible.
        """
        starts = [
            change.late_generation.unix_start
            for uid, change in self._changes.items()
            if change.late_generation is not None
            and (assigned_pod := self._cache.assigned(uid)) is not None
            and may_apply(assigned_pod, self._cache)
        ]
        return min(starts, default=None)

    def next_due(self) -> float | None:
        due = self._due_nodes.next()
        return None if due is None else max(due, self._writes.next_time())

    def tick(self, now: float) -> Iterator[Instruction]:
        """Yield what is due for a portion of the pods of one node."""
        node = self._due_nodes.take(now) if self._writes.next_time() <= now else None
        if node is None:
            return
        uids = self._rest_by_node.pop(node, None) or self._sort_uids(node)
        for _ in range(_PORTION):
            change = self._changes.get(uids.pop()) if uids and self._writes.next_time() <= now else None
            if change is not None:
                yield from self._settle(change, now)
        if uids:
            self._rest_by_node[node] = uids
            self._due_nodes.add(node, now)
        elif node in self._changed_nodes:
            self._changed_nodes.discard(node)
            self._due_nodes.add(node, now)

    def finished(self, order: Order, result: Result, now: float) -> Iterable[Instruction]:
        """Apply the definite result of a write.

        What was reserved for the write alone is free again: the node may also have put lower rates in force.
        """
        if not isinstance(order, WriteRates) or not isinstance(result, WriteRatesResult):
            return ()
        old_pod = self._cache.assigned(order.rates.uid)
        reserved = old_pod.reserved if old_pod is not None else ()
        instructions = list(self._finish(order, result, now))
        new_pod = self._cache.assigned(order.rates.uid)
        if new_pod is not None and any(map(gt, reserved, new_pod.reserved)):
            self._queue.move_on_event(ClusterEvent.VFS_FREED, now)
            self.touch(order.rates.node, now)
        return instructions

    def _finish(self, order: WriteRates, result: WriteRatesResult, now: float) -> Iterator[Instruction]:
        uid, assigned_pod = order.rates.uid, self._cache.assigned(order.rates.uid)
        self._writes.end(uid, order.pod.metadata.namespace)
        self._cache.finish_rates(uid, is_written=result.kind == "written")
        change = self._changes.get(uid)
        if result.kind == "written":
            yield Report(order.pod, "RatesAllocated", order.message)
        if change is None or assigned_pod is None:
            return
        if result.kind == "written":
            change.last_report = "Allocated", order.message
            change.next_write = now + _WRITE_INTERVAL_S
        elif result.kind == "refused":
            change.next_write = now + _REFUSAL_S
            yield from _report(change, ("Deferred", f"the API server rejected the rates: {result.reason}"))
        else:
            change.next_write = now + _CONFLICT_S
        self.touch(assigned_pod.node, change.next_write)

    def _sort_uids(self, node: str) -> list[str]:
        uids = [pod.uid for pod in self._cache.assigned_pods_on(node) if pod.uid in self._changes]
        return sorted(uids, key=lambda uid: self._changes[uid].order, reverse=True)

    def _has_changes(self, node: str) -> bool:
        if not self._changes:
            return False
        return any(pod.uid in self._changes for pod in self._cache.assigned_pods_on(node))

    def _settle(self, change: _Change, now: float) -> Iterator[Instruction]:
        """Yield the next instructions for a change."""
        uid = change.pod.metadata.uid
        assigned_pod = self._cache.assigned(uid)
        if assigned_pod is None or assigned_pod.assignment is None or self._cache.is_writing_rates(uid):
            return
        if self._cache.node(assigned_pod.node) is None:
            # The node may come back; if it does not, its pods are deleted.
            self._due_nodes.add(assigned_pod.node, now + _REVIEW_S)
            return
        yield from self._decide(change, assigned_pod, assigned_pod.assignment, now)

    def _decide(
        self, change: _Change, assigned_pod: AssignedPod, assignment: Assignment, now: float
    ) -> Iterator[Instruction]:
        """Yield the write of a pod's requested rates, or the report in its place."""
        if isinstance(change.new_rates, Refused):
            yield from _report(change, ("Refused", change.new_rates.reason))
            return
        allocated = assigned_pod.rates.rates if assigned_pod.rates is not None else assigned_rates(assignment)
        if change.new_rates == allocated:
            yield from _report(change, self._allocation_report(assigned_pod))
            return
        if change.next_write > now:
            self._due_nodes.add(assigned_pod.node, change.next_write)
            return
        if not self._writes.room(change.pod.metadata.namespace, now):
            self._due_nodes.add(assigned_pod.node, now + _WRITE_INTERVAL_S)
            return
        outcome = judge(assigned_pod, allocated, change.new_rates, self._cache, self._reservations)
        if isinstance(outcome, Misfit):
            self._due_nodes.add(assigned_pod.node, now + _REVIEW_S)
            yield from _report(change, (outcome.reason, outcome.message))
            return
        generation = newest_generation(assigned_pod, self._cache) + 1
        rates = PodRates(assigned_pod.uid, assigned_pod.node, generation, change.new_rates, outcome.reserved)
        yield self._write(change, rates, now)

    def _write(self, change: _Change, rates: PodRates, now: float) -> WriteRates:
        """Reserve what the rates need, and return their write."""
        self._cache.write_rates(rates)
        self._writes.begin(rates.uid, change.pod.metadata.namespace, now)
        return WriteRates(change.pod, rates, self._annotations(rates), rates_condition.allocation_message(rates))

    def _allocation_report(self, assigned_pod: AssignedPod) -> RatesReport:
        if assigned_pod.rates is None:
            return rates_condition.in_force_report(assigned_pod.node)
        if not changes_rates(assigned_pod.node, self._cache):
            return rates_condition.no_change_report(assigned_pod.rates)
        if is_in_force(assigned_pod, self._cache):
            return rates_condition.in_force_report(assigned_pod.node)
        return "Allocated", rates_condition.allocation_message(assigned_pod.rates)

    def _annotations(self, rates: PodRates) -> dict[str, str]:
        text = dump_rates(rates)
        return {names.RATES: text} | ({names.RATES_SIGNATURE: self._sign(text)} if self._sign is not None else {})


def _report(change: _Change, rates_report: RatesReport) -> Iterator[Instruction]:
    """Yield a condition and an event, unless the last report was the same."""
    if change.last_report != rates_report:
        change.last_report = rates_report
        reason, message = rates_report
        yield ReportRates(change.pod, reason, message)
        yield Report(change.pod, EVENTS[reason], message)

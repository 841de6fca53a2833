"""Rates of running pods that their users change: what is allocated, what waits, and what is told. Pure.

A user edits the rates in the request of a bound pod. `pod_assigned` records what is asked; `tick`, which only a leader
calls, decides: rates that fit are written (`WriteRates`), and reserved from that moment; others wait until something
changes on their node, the pods of higher priority and those that wait longer first. All that a new leader needs is in
the API: the request, the annotations of pod and node, and since when the condition says Deferred.

One user's edits must not cost others: a pod has one write under way, and a second between two writes; a node's pods are
looked at in portions, and nodes take turns.
"""

from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from functools import lru_cache
from operator import gt
from typing import get_args

from mooring import names
from mooring.annotations.assignment import Assignment
from mooring.annotations.rates import LAST_GENERATION, PodRates, VfRates, assigned_rates, dump_rates
from mooring.annotations.request import PodRequest, read_request
from mooring.errors import AnnotationError
from scheduler.cache.cache import AssignedPod, Cache
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
from scheduler.kube.objects import Pod
from scheduler.kube.refused import Refused
from scheduler.kube.timestamps import unix_time
from scheduler.pending.nominator import Nominator
from scheduler.pending.part import Part, PodChange
from scheduler.placement import rate_change
from scheduler.placement.rate_change import Fits, Misfit, asks_as_assigned, judge_rates, removed_request, wanted_rates
from scheduler.placement.vf_accounting import FreeVfs
from scheduler.plugins.rdma_vfs import FAULTS
from scheduler.queue.queue import Queue
from scheduler.state.due_nodes import DueNodes
from scheduler.state.open_writes import OpenWrites
from scheduler.state.pods_by_node import PodsByNode
from scheduler.state.rates import rates_condition
from scheduler.state.rates.rates_condition import CONDITION, EVENTS, Told

# Pods that one step looks at, and writes under way at once: fewer than a client has connections.
_PORTION, _MOST_WRITES = 32, 8
# Seconds between two writes of one pod, after a conflict (the watch shows what has changed), and after a refusal.
_APART_S, _CONFLICT_S, _REFUSED_S = 1.0, 0.5, 60.0
# What waits is looked at again after so many seconds whatever happens: a pod that was to come to its node may not come.
_LOOK_AGAIN_S = 60.0
# A condition that the API server shows so long after another one was told has taken its place: it is told again.
_SHOWN_S = 10.0

# Replicas have equal texts, and share one value. Long texts are rare, and must not fill the memory.
_SHORT = 1024
SignRates = Callable[[str], str]


@dataclass(frozen=True, slots=True)
class _Late:
    """A generation that is not in force: since when by our clock, and as the API server shows it, if it does."""

    generation: int
    since: float
    shown_since: str = ""

    def unix_since(self, unix_offset_s: float) -> float:
        seen = self.since + unix_offset_s
        return min(seen, unix_time(self.shown_since, seen))


@dataclass(slots=True)
class _Change:
    """A pod whose rates differ from what it asks for, or whose condition does not say yet that they do not.

    ``wanted`` is what it asks for, or why that is refused. ``pod`` is as much of the pod as a write needs. ``late`` is
    the generation that was not in force when the pod was last seen, and since when. ``shown_since`` is since when an
    earlier leader has shown it as deferred, an RFC 3339 time: it orders those that a new leader sees together.
    ``unsigned``: it has no signature of ours. ``conflicts``: so many writes have met one, without another result since.
    """

    pod: Pod
    node: str
    wanted: tuple[VfRates, ...] | Refused
    priority: int
    since: float
    shown_since: str = ""
    not_before: float = 0.0
    told: Told | None = None
    told_at: float = 0.0
    late: _Late | None = None
    unsigned: bool = False
    conflicts: int = 0

    @property
    def order(self) -> tuple[int, float, bool, str, str]:
        return -self.priority, self.since, not self.shown_since, self.shown_since, self.pod.metadata.uid

    def goes_first(self, now: float) -> bool:
        """Return whether nobody after it may take what it has just been given, and not got because of a conflict.

        Once in a row: whoever changes his pod all the time holds up nobody.
        """
        return self.conflicts == 1 and self.not_before > now


class RateChanges(Part):
    """The changes that are not settled, by pod uid."""

    def __init__(
        self,
        cache: Cache,
        queue: Queue,
        nominator: Nominator,
        scheduler_name: str,
        sign: SignRates | None,
    ) -> None:
        self._cache, self._queue, self._nominator = cache, queue, nominator
        self._scheduler_name, self._sign = scheduler_name, sign
        self._changes: dict[str, _Change] = {}
        self._on: dict[str, set[str]] = {}
        # Pods whose changed rates are in force, and whose condition says so.
        self._settled = PodsByNode()
        self._due = DueNodes()
        # Of nodes that are looked at in portions: the pods that are left, in reverse order.
        self._left: dict[str, list[str]] = {}
        # Of these, nodes where something has changed since: their pods are looked at once more.
        self._again: set[str] = set()
        self._writes = OpenWrites(_MOST_WRITES)

    def pod_assigned(self, change: PodChange, now: float) -> Iterable[Instruction]:
        """Record what a bound pod asks for, and that what it has given back may serve others on its node."""
        if ClusterEvent.VFS_FREED in change.event:
            self.touch(change.assigned.node, now)
        self._record(change.pod, change.assigned, now)
        return ()

    def pod_unreadable(self, uid: str) -> None:
        self._drop(uid)

    def pod_deleted(self, uid: str, assigned: AssignedPod | None, now: float) -> None:
        self._drop(uid)
        if assigned is not None:
            self.touch(assigned.node, now)

    def _record(self, pod: Pod, assigned: AssignedPod, now: float) -> None:
        if pod.spec.scheduler_name != self._scheduler_name:
            return
        wanted, uid = self._wanted(pod, assigned), pod.metadata.uid
        if wanted is None:
            self._drop(uid)
            if assigned.rates is not None and pod.metadata.deletion_timestamp is None:
                self._settled.add(uid, assigned.node)
            return
        shown = pod.condition(CONDITION)
        change = self._changes.get(uid)
        if change is None:
            change = self._open(rates_condition.reference(pod, shown), assigned, wanted, now)
            change.shown_since = rates_condition.shown_since(shown, "Deferred")
        elif change.wanted != wanted:
            change.since, change.shown_since = now, ""
        change.pod, change.wanted = rates_condition.reference(pod, shown), wanted
        change.unsigned = self._is_unsigned(pod, assigned)
        generation = None if assigned.rates is None or self._is_in_force(assigned) else assigned.rates.generation
        if generation is None:
            change.late = None
        elif change.late is None or change.late.generation != generation:
            change.late = _Late(generation, now, rates_condition.shown_since(shown, "Allocated"))
        if shown is not None and (change.told is None or change.told_at + _SHOWN_S < now):
            change.told = rates_condition.told(shown)
        self.touch(assigned.node, now)

    def _open(self, pod: Pod, assigned: AssignedPod, wanted: tuple[VfRates, ...] | Refused, since: float) -> _Change:
        uid, node = assigned.uid, assigned.node
        self._settled.drop(uid)
        change = self._changes[uid] = _Change(pod, node, wanted, assigned.priority, since)
        self._on.setdefault(node, set()).add(uid)
        return change

    def node_changed(self, previous: NodeInfo | None, node: NodeInfo, now: float) -> Iterable[Instruction]:
        """Record that a node says something else: what was in force may not be so any more."""
        for uid in self._settled.on(node.name):
            assigned = self._cache.assigned(uid)
            if assigned is not None and assigned.rates is not None and not self._is_in_force(assigned):
                change = self._open(rates_condition.pod_of(assigned), assigned, assigned.rates.rates, now)
                change.told, change.late = rates_condition.in_force(node.name), _Late(assigned.rates.generation, now)
        self.touch(node.name, now)
        return ()

    def _drop(self, uid: str) -> None:
        """Record that a pod is gone, or that nothing is left to do about it."""
        self._settled.drop(uid)
        change = self._changes.pop(uid, None)
        if change is None:
            return
        uids = self._on[change.node]
        uids.discard(uid)
        if not uids:
            del self._on[change.node]
            self._left.pop(change.node, None)
            self._again.discard(change.node)
            self._due.drop(change.node)

    def touch(self, node: str, at: float) -> None:
        """Record that something has changed on a node: what waits there may fit at that time."""
        if node in self._on:
            self._due.add(node, at)
            if node in self._left:
                self._again.add(node)

    def states(self) -> Mapping[RatesReason, int]:
        """Return how many pods have an edit that is not in force, by what was told of it last."""
        counts = dict.fromkeys(get_args(RatesReason), 0)
        for change in self._changes.values():
            if change.told is not None:
                counts[change.told[0]] += 1
        return {reason: count for reason, count in counts.items() if reason != "InForce"}

    def late_since(self, unix_offset_s: float) -> float | None:
        """Return since when the oldest allocated rates are not in force, in UNIX time; None if none are late.

        ``unix_offset_s`` is UNIX time minus our clock. What an earlier leader allocated counts from the time that the
        API server shows, if that is before this leader saw it. Rates of nodes that change none do not count: they are
        reported as infeasible.
        """
        late = (self._late(uid, change) for uid, change in self._changes.items())
        return min((one.unix_since(unix_offset_s) for one in late if one is not None), default=None)

    def _late(self, uid: str, change: _Change) -> _Late | None:
        assigned = self._cache.assigned(uid)
        return change.late if assigned is not None and self._may_apply(assigned) else None

    def next_due(self) -> float | None:
        due = self._due.next()
        return None if due is None else max(due, self._writes.next_at())

    def tick(self, now: float) -> Iterator[Instruction]:
        """Yield what is due about a portion of the pods of one node."""
        node = self._due.take(now) if self._writes.next_at() <= now else None
        if node is None or node not in self._on:
            return
        left = self._left.pop(node, None) or self._ordered(node)
        for _ in range(_PORTION):
            change = self._changes.get(left.pop()) if left and self._writes.next_at() <= now else None
            if change is not None and change.goes_first(now):
                self._due.add(node, change.not_before)
                return
            if change is not None:
                yield from self._settle(change, now)
        if left:
            self._left[node] = left
            self._due.add(node, now)
        elif node in self._again:
            self._again.discard(node)
            self._due.add(node, now)

    def finished(self, order: Order, result: Result, now: float) -> Iterable[Instruction]:
        """Apply the definite result of a write.

        What was reserved for it alone is free again: the node may have put in force what it lowered, too.
        """
        if not isinstance(order, WriteRates) or not isinstance(result, WriteRatesResult):
            return ()
        before = self._cache.assigned(order.rates.uid)
        reserved = before.reserved if before is not None else ()
        instructions = list(self._finish(order, result, now))
        after = self._cache.assigned(order.rates.uid)
        if after is not None and any(map(gt, reserved, after.reserved)):
            self._queue.move_on_event(ClusterEvent.VFS_FREED, now)
            self.touch(order.rates.node, now)
        return instructions

    def _finish(self, order: WriteRates, result: WriteRatesResult, now: float) -> Iterator[Instruction]:
        uid, assigned = order.rates.uid, self._cache.assigned(order.rates.uid)
        self._writes.end(uid)
        self._cache.finish_rates(uid, is_written=result.kind == "written")
        change = self._changes.get(uid)
        if result.kind == "written":
            yield Report(order.pod, "RatesAllocated", order.message)
        if change is None or assigned is None:
            return
        change.conflicts = change.conflicts + 1 if result.kind == "changed" else 0
        if result.kind == "written":
            change.told, change.told_at, change.not_before = ("Allocated", order.message), now, now + _APART_S
        elif result.kind == "refused":
            change.not_before = now + _REFUSED_S
            yield from _tell(change, ("Deferred", f"the API server refuses the rates: {result.reason}"), now)
        else:
            change.not_before = now + _CONFLICT_S
        self.touch(assigned.node, change.not_before)

    def _wanted(self, pod: Pod, assigned: AssignedPod) -> tuple[VfRates, ...] | Refused | None:
        """Return the rates that a pod asks for, or why they are refused; None if nothing is to be done or told."""
        assignment, text = assigned.assignment, pod.annotations.get(names.REQUEST)
        if assignment is None or pod.metadata.deletion_timestamp is not None or not (assignment.vfs or text):
            return None
        allocated, shown = assigned.rates.rates if assigned.rates is not None else None, pod.condition(CONDITION)
        try:
            if text is None and names.RIT_REQUEST not in pod.annotations:
                return Refused(removed_request(assignment))
            request = _read(text) if text is not None else None
            if allocated is None and (request is None or asks_as_assigned(request.interfaces, assignment.vfs)):
                return assigned_rates(assignment) if rates_condition.is_open(shown) else None
            wanted = wanted_rates(request, assignment) if request is not None else allocated
        except AnnotationError as refused:
            return Refused(str(refused))
        is_settled = wanted == allocated and self._is_in_force(assigned) and rates_condition.is_told(shown)
        return None if is_settled else wanted

    def _ordered(self, node: str) -> list[str]:
        """Return a node's pods, those to look at first at the end."""
        return sorted(self._on[node], key=lambda uid: self._changes[uid].order, reverse=True)

    def _settle(self, change: _Change, now: float) -> Iterator[Instruction]:
        """Yield what becomes of a change now."""
        uid = change.pod.metadata.uid
        assigned = self._cache.assigned(uid)
        if assigned is None or assigned.assignment is None or self._cache.is_writing_rates(uid):
            return
        if self._cache.node(assigned.node) is None:
            # It may come back; its pods are deleted if it does not.
            self._due.add(assigned.node, now + _LOOK_AGAIN_S)
            return
        if change.unsigned and assigned.rates is not None and self._may_apply(assigned):
            if change.not_before <= now and self._writes.room(change.pod.metadata.namespace, now):
                yield self._write(change, assigned.rates, now)
                return
            self._due.add(assigned.node, max(change.not_before, now + _APART_S))
        yield from self._decide(change, assigned, assigned.assignment, now)

    def _decide(
        self, change: _Change, assigned: AssignedPod, assignment: Assignment, now: float
    ) -> Iterator[Instruction]:
        """Yield the write of what a pod asks for, or what is to be told instead."""
        if isinstance(change.wanted, Refused):
            yield from _tell(change, ("Refused", change.wanted.reason), now)
            return
        allocated = assigned.rates.rates if assigned.rates is not None else assigned_rates(assignment)
        if change.wanted == allocated:
            yield from _tell(change, self._followed(assigned), now)
            return
        if change.not_before > now:
            self._due.add(assigned.node, change.not_before)
            return
        if not self._writes.room(change.pod.metadata.namespace, now):
            self._due.add(assigned.node, now + _APART_S)
            return
        found = self._judge(change.wanted, allocated, assigned)
        if isinstance(found, Misfit):
            self._due.add(assigned.node, now + _LOOK_AGAIN_S)
            yield from _tell(change, (found.reason, found.message), now)
            return
        generation = self._generation(assigned) + 1
        rates = PodRates(assigned.uid, assigned.node, generation, change.wanted, found.reserved)
        yield self._write(change, rates, now)

    def _write(self, change: _Change, rates: PodRates, now: float) -> WriteRates:
        """Reserve what rates need, and return their write."""
        self._cache.write_rates(rates)
        self._writes.begin(rates.uid, change.pod.metadata.namespace, now)
        return WriteRates(change.pod, rates, self._annotations(rates), rates_condition.allocated(rates))

    def _followed(self, assigned: AssignedPod) -> Told:
        """Return what is to be told of rates that are allocated."""
        if assigned.rates is None:
            return rates_condition.in_force(assigned.node)
        if not self._changes_rates(assigned.node):
            return rates_condition.not_known(assigned.rates)
        if self._is_in_force(assigned):
            return rates_condition.in_force(assigned.node)
        return "Allocated", rates_condition.allocated(assigned.rates)

    def _changes_rates(self, node: str) -> bool:
        """Return whether a node changes rates of running pods."""
        known = self._cache.node(node)
        return known is not None and known.rates_in_force is not None

    def _may_apply(self, assigned: AssignedPod) -> bool:
        """Return whether a pod's node has not put in force what is allocated, and may yet."""
        return self._changes_rates(assigned.node) and not self._is_in_force(assigned)

    def _is_unsigned(self, pod: Pod, assigned: AssignedPod) -> bool:
        """Return whether what is allocated is not signed by this scheduler's key.

        Signatures may have been turned on, or the key replaced, since it was written: a node with keys refuses it.
        """
        if self._sign is None or assigned.rates is None or self._is_in_force(assigned):
            return False
        text = dump_rates(assigned.rates)
        # A watch that is behind shows an earlier generation.
        is_shown = pod.annotations.get(names.RATES) == text
        return is_shown and pod.annotations.get(names.RATES_SIGNATURE) != self._sign(text)

    def _judge(
        self, wanted: tuple[VfRates, ...], allocated: tuple[VfRates, ...], assigned: AssignedPod
    ) -> Fits | Misfit:
        assert assigned.assignment is not None, "only a pod with VFs has rates"
        if not self._changes_rates(assigned.node):
            return Misfit("Infeasible", rates_condition.changes_none(assigned.node))
        if self._generation(assigned) >= LAST_GENERATION:
            return Misfit("Infeasible", f"node {assigned.node} says that the last generation is in force")
        limited = assigned.resources.get(names.RESERVED_MBPS)
        if limited is not None and (why := rate_change.contradicts_limit(limited, wanted)):
            return Misfit("Infeasible", why)
        reserved = assigned.reserved
        with _nominated(self._cache, self._nominator, assigned) as free_vfs:
            found = judge_rates(assigned.assignment, allocated, wanted, reserved, free_vfs)
        fault = self._cache.nodes.offers[self._cache.nodes.row_of[assigned.node]][0]
        if isinstance(found, Fits) and found.reserved != reserved and fault is not None:
            return Misfit("Deferred", f"node {assigned.node}: {FAULTS[fault]}")
        return found

    def _is_in_force(self, assigned: AssignedPod) -> bool:
        """Return whether a pod's node has put in force what is allocated."""
        return assigned.rates is None or self._in_force(assigned) == assigned.rates.generation

    def _in_force(self, assigned: AssignedPod) -> int | None:
        node = self._cache.node(assigned.node)
        return (node.rates_in_force or {}).get(assigned.uid) if node is not None else None

    def _generation(self, assigned: AssignedPod) -> int:
        known = assigned.rates.generation if assigned.rates is not None else 0
        return max(known, self._in_force(assigned) or 0)

    def _annotations(self, rates: PodRates) -> dict[str, str]:
        text = dump_rates(rates)
        return {names.RATES: text} | ({names.RATES_SIGNATURE: self._sign(text)} if self._sign is not None else {})


def _read(text: str) -> PodRequest | None:
    return read_request({names.REQUEST: text}) if len(text) > _SHORT else _read_short(text)


@lru_cache(maxsize=1024)
def _read_short(text: str) -> PodRequest | None:
    return read_request({names.REQUEST: text})


def _tell(change: _Change, told: Told, now: float) -> Iterator[Instruction]:
    """Yield a condition and an event, unless that was told last."""
    if change.told != told:
        change.told, change.told_at = told, now
        reason, message = told
        yield ReportRates(change.pod, reason, message)
        yield Report(change.pod, EVENTS[reason], message)


@contextmanager
def _nominated(cache: Cache, nominator: Nominator, assigned: AssignedPod) -> Iterator[FreeVfs]:
    """Give what is left on a pod's node beside the pods that wait there for room, those below its priority excepted."""
    accounting = cache.vf_accounting(assigned.node)
    waiting = nominator.on(assigned.node) if nominator else []
    claims = [claim for one in waiting if one.priority >= assigned.priority and (claim := one.claim) is not None]
    for claim in claims:
        accounting.add(claim)
    try:
        yield accounting.free_vfs
    finally:
        for claim in claims:
            accounting.remove(claim)

"""Rates of running pods that their users change: what is allocated, what waits, and what is told. Pure.

A user edits the rates in the request of a bound pod. `see` records what is asked; `overdue`, which only a leader calls,
decides: rates that fit are written (`WriteRates`), and reserved from that moment; others wait until something changes
on their node, the pods of higher priority and those that wait longer first. All that a new leader needs is in the API:
the request, the annotations of pod and node, and since when the condition says Deferred.

One user's edits must not cost others: a pod has one write under way, and a second between two writes; a node's pods are
looked at in portions, and nodes take turns.
"""

import heapq
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from datetime import datetime
from functools import lru_cache
from typing import Literal, get_args

from mooring import names
from mooring.errors import AnnotationError
from mooring.rates import LAST_GENERATION, PodRates, VfRates, assigned_rates, dump_rates
from mooring.request import PodRequest, read_request
from scheduler.cache.cache import AssignedPod, Cache
from scheduler.cycle.instructions import (
    Instruction,
    RatesReason,
    Report,
    ReportRates,
    WriteRates,
    WriteRatesResult,
)
from scheduler.kube.objects import Condition, OwnedMetadata, Pod, PodStatus
from scheduler.pending.nominator import Nominator
from scheduler.placement.rate_change import Fits, Misfit, asks_as_assigned, judge_rates, wanted_rates
from scheduler.placement.vf_accounting import FreeVfs
from scheduler.plugins.rdma_vfs import FAULTS

CONDITION = "MooringRates"
# Pods that one step looks at, and writes under way at once: fewer than a client has connections.
_PORTION, _MOST_WRITES = 32, 8
# Seconds between two writes of one pod, after a conflict (the watch shows what has changed), and after a refusal.
_APART_S, _CONFLICT_S, _REFUSED_S = 1.0, 0.5, 60.0
# What waits is looked at again after so many seconds whatever happens: a pod that was to come to its node may not come.
_LOOK_AGAIN_S = 60.0
# A condition that the API server shows so long after another one was told has taken its place: it is told again.
_SHOWN_S = 10.0

# Entries of the heap that do not count any more, beyond as many as do.
_STALE = 64
# Replicas have equal texts, and share one value. Long texts are rare, and must not fill the memory.
_SHORT = 1024
_EVENTS: Mapping[
    RatesReason, Literal["RatesRefused", "RatesDeferred", "RatesInfeasible", "RatesAllocated", "RatesInForce"]
] = {
    "Refused": "RatesRefused",
    "Deferred": "RatesDeferred",
    "Infeasible": "RatesInfeasible",
    "Allocated": "RatesAllocated",
    "InForce": "RatesInForce",
}
SignRates = Callable[[str], str]
_Told = tuple[RatesReason, str]


@dataclass(slots=True)
class _Change:
    """A pod whose rates differ from what it asks for, or whose condition does not say yet that they do not.

    ``wanted`` is what it asks for, or why that is refused. ``pod`` is as much of the pod as a write needs.
    """

    pod: Pod
    node: str
    wanted: tuple[VfRates, ...] | str
    priority: int
    since: float
    not_before: float = 0.0
    told: _Told | None = None
    told_at: float = 0.0

    @property
    def order(self) -> tuple[int, float, str]:
        return -self.priority, self.since, self.pod.metadata.uid


@dataclass(slots=True)
class _Due:
    """When each node is looked at next, the earliest first; a node is there once."""

    _at: dict[str, float] = field(default_factory=dict)
    _heap: list[tuple[float, str]] = field(default_factory=list)

    def add(self, node: str, at: float) -> None:
        if self._at.get(node, at + 1.0) > at:
            self._at[node] = at
            heapq.heappush(self._heap, (at, node))
            if len(self._heap) > 2 * len(self._at) + _STALE:
                self._heap = [(at, node) for node, at in self._at.items()]
                heapq.heapify(self._heap)

    def drop(self, node: str) -> None:
        self._at.pop(node, None)

    def next(self) -> float | None:
        while self._heap and self._at.get(self._heap[0][1]) != self._heap[0][0]:
            heapq.heappop(self._heap)
        return self._heap[0][0] if self._heap else None

    def take(self, now: float) -> str | None:
        """Return a node that is due; None for none."""
        at = self.next()
        if at is None or at > now:
            return None
        _, node = heapq.heappop(self._heap)
        del self._at[node]
        return node


class RateChanges:
    """The changes that are not settled, by pod uid."""

    def __init__(self, cache: Cache, nominator: Nominator, scheduler_name: str, sign: SignRates | None) -> None:
        self._cache, self._nominator = cache, nominator
        self._scheduler_name, self._sign = scheduler_name, sign
        self._changes: dict[str, _Change] = {}
        self._on: dict[str, set[str]] = {}
        self._due = _Due()
        # Of nodes that are looked at in portions: the pods that are left, in reverse order.
        self._left: dict[str, list[str]] = {}
        # Of these, nodes where something has changed since: their pods are looked at once more.
        self._again: set[str] = set()
        self._writes = 0

    def see(self, pod: Pod, assigned: AssignedPod, now: float) -> None:
        """Record what a bound pod asks for."""
        if pod.spec.scheduler_name != self._scheduler_name:
            return
        wanted = self._wanted(pod, assigned)
        if wanted is None:
            if self._changes:
                self.drop(pod.metadata.uid)
            return
        uid, shown = pod.metadata.uid, shown_condition(pod)
        change = self._changes.get(uid)
        if change is None:
            change = _Change(pod, assigned.node, wanted, assigned.priority, _since(shown, now))
            self._changes[uid] = change
            self._on.setdefault(assigned.node, set()).add(uid)
        elif change.wanted != wanted:
            change.since = now
        change.pod, change.wanted = _reference(pod, shown), wanted
        if shown is not None and (change.told is None or change.told_at + _SHOWN_S < now):
            change.told = _told(shown)
        self.touch(assigned.node, now)

    def drop(self, uid: str) -> None:
        """Record that a pod is gone, or that nothing is left to do about it."""
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

    def next_due(self) -> float | None:
        return None if self._writes >= _MOST_WRITES else self._due.next()

    def overdue(self, now: float) -> Iterator[Instruction]:
        """Yield what is due about a portion of the pods of one node."""
        node = self._due.take(now) if self._writes < _MOST_WRITES else None
        if node is None or node not in self._on:
            return
        left = self._left.pop(node, None) or self._ordered(node)
        for _ in range(_PORTION):
            change = self._changes.get(left.pop()) if left and self._writes < _MOST_WRITES else None
            if change is not None:
                yield from self._settle(change, now)
        if left:
            self._left[node] = left
            self._due.add(node, now)
        elif node in self._again:
            self._again.discard(node)
            self._due.add(node, now)

    def finish(self, order: WriteRates, result: WriteRatesResult, now: float) -> Iterator[Instruction]:
        """Apply the definite result of a write."""
        uid, assigned = order.rates.uid, self._cache.assigned(order.rates.uid)
        self._writes -= 1
        self._cache.finish_rates(uid, written=result.kind == "written")
        change = self._changes.get(uid)
        if result.kind == "written":
            yield Report(order.pod, "RatesAllocated", order.message)
        if change is None or assigned is None:
            return
        if result.kind == "written":
            change.told, change.told_at, change.not_before = ("Allocated", order.message), now, now + _APART_S
        elif result.kind == "refused":
            change.not_before = now + _REFUSED_S
            yield from _tell(change, "Deferred", f"the API server refuses the rates: {result.reason}", now)
        else:
            change.not_before = now + _CONFLICT_S
        self.touch(assigned.node, change.not_before)

    def _wanted(self, pod: Pod, assigned: AssignedPod) -> tuple[VfRates, ...] | str | None:
        """Return the rates that a pod asks for, or why they are refused; None if nothing is to be done or told."""
        assignment, text = assigned.assignment, pod.annotations.get(names.REQUEST)
        if assignment is None or not assignment.vfs or pod.metadata.deletion_timestamp is not None:
            return None
        allocated = assigned.rates.rates if assigned.rates is not None else None
        try:
            request = _read(text) if text is not None else None
            if allocated is None and (request is None or asks_as_assigned(request.interfaces, assignment.vfs)):
                return assigned_rates(assignment) if _is_open(shown_condition(pod)) else None
            wanted = wanted_rates(request, assignment) if request is not None else allocated
        except AnnotationError as refused:
            return str(refused)
        is_settled = wanted == allocated and self._is_in_force(assigned) and _is_told(shown_condition(pod))
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
        if isinstance(change.wanted, str):
            yield from _tell(change, "Refused", change.wanted, now)
            return
        allocated = assigned.rates.rates if assigned.rates is not None else assigned_rates(assigned.assignment)
        if change.wanted == allocated:
            yield from self._follow(change, assigned, now)
            return
        if change.not_before > now:
            self._due.add(assigned.node, change.not_before)
            return
        found = self._judge(change.wanted, allocated, assigned)
        if isinstance(found, Misfit):
            self._due.add(assigned.node, now + _LOOK_AGAIN_S)
            yield from _tell(change, found.reason, found.message, now)
            return
        rates = PodRates(uid, assigned.node, self._generation(assigned) + 1, change.wanted, found.reserved)
        self._cache.write_rates(rates)
        self._writes += 1
        yield WriteRates(change.pod, rates, self._annotations(rates), _allocated(rates))

    def _follow(self, change: _Change, assigned: AssignedPod, now: float) -> Iterator[Instruction]:
        """Yield whether what is allocated is in force."""
        if self._is_in_force(assigned) or assigned.rates is None:
            yield from _tell(change, "InForce", f"in force on node {assigned.node}", now)
        else:
            yield from _tell(change, "Allocated", _allocated(assigned.rates), now)

    def _judge(
        self, wanted: tuple[VfRates, ...], allocated: tuple[VfRates, ...], assigned: AssignedPod
    ) -> Fits | Misfit:
        assert assigned.assignment is not None, "only a pod with VFs has rates"
        node = self._cache.node(assigned.node)
        if node is None or node.rates_in_force is None:
            return Misfit("Infeasible", f"node {assigned.node} changes no rates of running pods")
        if self._generation(assigned) >= LAST_GENERATION:
            return Misfit("Infeasible", f"node {assigned.node} says that the last generation is in force")
        if (why := _contradicts_limit(assigned, wanted)) is not None:
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


def shown_condition(pod: Pod) -> Condition | None:
    """Return the condition about its rates that a pod's status shows."""
    for one in pod.status.conditions or ():
        if one.type == CONDITION:
            return one
    return None


def _tell(change: _Change, reason: RatesReason, message: str, now: float) -> Iterator[Instruction]:
    """Yield a condition and an event, unless that was told last."""
    if change.told != (reason, message):
        change.told, change.told_at = (reason, message), now
        yield ReportRates(change.pod, reason, message)
        yield Report(change.pod, _EVENTS[reason], message)


def _allocated(rates: PodRates) -> str:
    return f"allocated as generation {rates.generation}: node {rates.node} has not put it in force yet"


def _is_told(shown: Condition | None) -> bool:
    """Return whether a condition says that what the pod asks for is in force."""
    return shown is not None and shown.reason == "InForce"


def _is_open(shown: Condition | None) -> bool:
    """Return whether a condition says of what the pod asked for before that it is not in force."""
    return shown is not None and shown.reason != "InForce"


def _told(shown: Condition | None) -> _Told | None:
    """Return what a condition says."""
    reason = next((one for one in get_args(RatesReason) if shown is not None and one == shown.reason), None)
    return None if shown is None or reason is None else (reason, shown.message or "")


def _since(shown: Condition | None, now: float) -> float:
    """Return since when a change waits, in UNIX time: a leader before may have deferred it."""
    if shown is None or shown.reason != "Deferred":
        return now
    try:
        return datetime.fromisoformat(shown.last_transition_time or "").timestamp()
    except ValueError:
        return now


def _reference(pod: Pod, shown: Condition | None) -> Pod:
    """Return as much of a pod as writes about it need: the pod object itself is not kept."""
    known = pod.metadata
    metadata = OwnedMetadata(known.name, known.namespace, known.uid, known.resource_version)
    return Pod(metadata, status=PodStatus(conditions=[shown] if shown is not None else None))


def _contradicts_limit(assigned: AssignedPod, wanted: tuple[VfRates, ...]) -> str | None:
    """Return why rates contradict the containers' limit of Mb/s, which a quota counts and which cannot change."""
    limited, sum_mbps = assigned.resources.get(names.RESERVED_MBPS), sum(one.min_tx_rate or 0 for one in wanted)
    if limited is None or limited == sum_mbps:
        return None
    return f"the containers' limits of {names.RESERVED_MBPS!r} are {limited}, and the pod would reserve {sum_mbps} Mb/s"


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

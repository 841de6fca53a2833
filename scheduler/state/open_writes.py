"""Orders that have no result yet. Pure.

Writes: the API server may wait for a webhook of one namespace, up to 30 s for each write, and then reject it. Such a
namespace gets few writes at once until one succeeds. Its other pods wait in the queue and reserve nothing meanwhile, so
that it delays no other namespace.

Removals: between an order and the watch event that confirms it, other preemptions are decided. Pods in deletion do not
count for their groups; otherwise, two preemptions could each take the one member that a group can spare.
"""

from collections.abc import Iterable
from itertools import islice

from scheduler.cache.assigned_pod import AssignedPod
from scheduler.cycle.decisions import Bind
from scheduler.cycle.instructions import DeleteVictims, DeleteVictimsResult, Evict, Instruction, Order, PreBind, Result
from scheduler.kube.group import GroupKey
from scheduler.kube.objects import Metadata
from scheduler.kube.outcomes import Outcome
from scheduler.pending.part import Part
from scheduler.state.shared_state import SharedState

# Seconds. API servers answer most writes within milliseconds: a later answer indicates trouble in its namespace, and
# such a write delays no other namespace.
_SLOW_S = 1.0
# Seconds after which a write without a definite answer no longer delays others of its namespace. For a pod that the
# write makes too large for etcd, the answer is 500 for as long as the pod exists (kubernetes/kubernetes issue 112152).
_ABANDON_S = 10.0
# Maximum number of writes in progress in a namespace in trouble.
_TROUBLE_LIMIT = 4
_NO_LIMIT = 1 << 30


class OpenWrites:
    """Pods with a write in progress by its start, the earliest first; at most ``limit`` at once that are not slow."""

    def __init__(self, limit: int = _NO_LIMIT) -> None:
        self._limit = limit
        self._begin_times: dict[str, float] = {}
        self._times_by_namespace: dict[str, dict[str, float]] = {}
        self._time = float("-inf")
        # Namespaces whose last write was denied.
        self._denied_namespaces: set[str] = set()

    def begin(self, uid: str, namespace: str, now: float) -> None:
        self.end(uid, namespace)
        self._begin_times[uid] = self._times_by_namespace.setdefault(namespace, {})[uid] = now

    def end(self, uid: str, namespace: str) -> None:
        self._begin_times.pop(uid, None)
        begin_times = self._times_by_namespace.get(namespace, {})
        begin_times.pop(uid, None)
        if not begin_times:
            self._times_by_namespace.pop(namespace, None)

    def note(self, namespace: str, *, is_denied: bool) -> None:
        """Record whether admission denied the most recently ended write of a namespace."""
        (self._denied_namespaces.add if is_denied else self._denied_namespaces.discard)(namespace)

    def next_time(self) -> float:
        """Return from when another write may start."""
        excess = len(self._begin_times) - self._limit
        return 0.0 if excess < 0 else next(islice(self._begin_times.values(), excess, None)) + _SLOW_S

    def has_trouble(self, now: float) -> bool:
        return bool(self._denied_namespaces) or next(iter(self._begin_times.values()), now) < now - _SLOW_S

    def room(self, namespace: str, now: float) -> int:
        """Return how many more writes of a namespace may start now."""
        self._time = max(self._time, now)
        begin_times, is_denied = self._times_by_namespace.get(namespace, {}), namespace in self._denied_namespaces
        if not is_denied and next(iter(begin_times.values()), now) >= now - _SLOW_S:
            return _NO_LIMIT
        return max(_TROUBLE_LIMIT - sum(begin_time > now - _ABANDON_S for begin_time in begin_times.values()), 0)

    def full_until(self, namespace: str) -> float:
        """Return when a full namespace may have room even if none of its writes ends."""
        begin_times, abandon_time = self._times_by_namespace.get(namespace, {}), self._time - _ABANDON_S
        return next(
            (begin_time + _ABANDON_S for begin_time in begin_times.values() if begin_time > abandon_time), self._time
        )


class OpenOrders(Part):
    """The Binds, and the writes before them, that have no result yet; and the removals (``SharedState.removals``)."""

    def __init__(self, state: SharedState) -> None:
        self._state, self._removals = state, state.removals
        self._writes = OpenWrites()

    def begin(self, instructions: Iterable[Instruction], now: float) -> None:
        for instruction in instructions:
            if isinstance(instruction, Bind | PreBind):
                metadata = _pod(instruction)
                self._writes.begin(metadata.uid, metadata.namespace, now)
            elif isinstance(instruction, Evict | DeleteVictims):
                self._removals.update(_removals(instruction))

    def finished(self, order: Order, result: Result, now: float) -> Iterable[Instruction]:
        """Record a result; pods stay if the API server has rejected their removal."""
        if isinstance(order, Bind | PreBind):
            metadata = _pod(order)
            self._writes.end(metadata.uid, metadata.namespace)
            if isinstance(order, Bind) and isinstance(result, Outcome) and result.kind in ("bound", "denied"):
                self._writes.note(metadata.namespace, is_denied=result.kind == "denied")
        elif isinstance(result, DeleteVictimsResult):
            self._removals -= _removals(order) - {assigned_pod.uid for assigned_pod in result.deleted}
        elif isinstance(order, Evict) and result != "evicted":
            self._removals -= _removals(order)
        return ()

    def pod_deleted(self, uid: str, assigned_pod: AssignedPod | None, now: float) -> None:
        self._removals.discard(uid)

    def block_full_namespaces(self, now: float) -> None:
        """Block the next queue entries while their namespaces may have no more writes in progress."""
        self.tick(now)
        while self._writes.has_trouble(now) and (entry := self._state.queue.first(now)) is not None:
            uid, key = entry.uid, GroupKey.of_entry(entry.uid)
            namespace = self._state.pending_pods[uid].pod.metadata.namespace if key is None else key.namespace
            if self._writes.room(namespace, now):
                return
            self._state.queue.block(uid, namespace)

    def tick(self, now: float) -> Iterable[Instruction]:
        for namespace in self._state.queue.blocked_namespaces():
            if room := self._writes.room(namespace, now):
                self._state.queue.unblock(namespace, room)
        return ()

    def next_due(self) -> float | None:
        return min(map(self._writes.full_until, self._state.queue.blocked_namespaces()), default=None)


def _pod(order: Bind | PreBind) -> Metadata:
    decision = order if isinstance(order, Bind) else order.decision
    return decision.pod_info.pod.metadata


def _removals(order: Order) -> set[str]:
    if isinstance(order, DeleteVictims):
        return {assigned_pod.uid for assigned_pod in order.victims}
    return {order.pod.metadata.uid} if isinstance(order, Evict) else set()

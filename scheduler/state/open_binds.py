"""Binds under way, by namespace: pods of one in trouble wait in the queue, and reserve nothing meanwhile. Pure."""

from dataclasses import dataclass, field

from scheduler.cycle.decisions import Bind
from scheduler.cycle.instructions import Instruction, Order, PreBind, Result
from scheduler.kube.binding_outcome import Outcome
from scheduler.kube.objects import Metadata
from scheduler.pending.groups.pending_groups import PendingGroups
from scheduler.pending.pending_pods import PendingPods
from scheduler.queue.queue import Queue
from scheduler.state.open_writes import OpenWrites


@dataclass(slots=True)
class OpenBinds:
    """The Binds, and the writes before them, that have no result yet."""

    queue: Queue
    pending_pods: PendingPods
    pending_groups: PendingGroups
    _writes: OpenWrites = field(default_factory=OpenWrites)

    def begin(self, instructions: list[Instruction], now: float) -> list[Instruction]:
        """Record which of these begin; return them all."""
        for one in instructions:
            if isinstance(one, Bind | PreBind):
                self._writes.begin(_pod(one).uid, _pod(one).namespace, now)
        return instructions

    def end(self, order: Order, result: Result) -> None:
        """Record the result of one."""
        if isinstance(order, Bind | PreBind):
            self._writes.end(_pod(order).uid)
        if isinstance(order, Bind) and isinstance(result, Outcome) and result.kind in ("bound", "denied"):
            self._writes.note(_pod(order).namespace, is_denied=result.kind == "denied")

    def hold(self, now: float) -> None:
        """Let come again what may, and set aside what is next while its namespace may have no more under way."""
        self.release(now)
        while self._writes.has_trouble(now) and (uid := self.queue.first(now)) is not None:
            namespace = self._namespace(uid)
            if self._writes.room(namespace, now):
                return
            self.queue.hold(uid, namespace)

    def release(self, now: float) -> None:
        """Let what was set aside come again as far as its namespace has room."""
        for namespace in self.queue.held():
            if room := self._writes.room(namespace, now):
                self.queue.release(namespace, room)

    def next_due(self) -> float | None:
        """Return when `release` has work though no write ends; None for never."""
        return min((self._writes.full_until(one) for one in self.queue.held()), default=None)

    def _namespace(self, uid: str) -> str:
        """Return the namespace of an entry of the queue: of a pod, or of a group."""
        key = self.pending_groups.key_of(uid)
        return self.pending_pods[uid].pod.metadata.namespace if key is None else key.namespace


def _pod(order: Bind | PreBind) -> Metadata:
    decision = order if isinstance(order, Bind) else order.decision
    return decision.pod_info.pod.metadata

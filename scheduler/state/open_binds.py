"""Binds in progress, by namespace: pods of a namespace in trouble wait in the queue, and reserve nothing meanwhile.
Pure.
"""

from collections.abc import Iterable
from dataclasses import dataclass, field

from scheduler.cycle.decisions import Bind
from scheduler.cycle.instructions import Instruction, Order, PreBind, Result
from scheduler.kube.group_membership import GroupKey
from scheduler.kube.objects import Metadata
from scheduler.kube.outcomes import Outcome
from scheduler.pending.part import Part
from scheduler.state.open_writes import OpenWrites
from scheduler.state.shared_state import SharedState


@dataclass(slots=True)
class OpenBinds(Part):
    """The Binds, and the writes before them, that have no result yet."""

    state: SharedState
    _writes: OpenWrites = field(default_factory=OpenWrites)

    def note_begun(self, instructions: list[Instruction], now: float) -> list[Instruction]:
        """Record the instructions that start a write; return them all."""
        for instruction in instructions:
            if isinstance(instruction, Bind | PreBind):
                self._writes.begin(_pod(instruction).uid, _pod(instruction).namespace, now)
        return instructions

    def finished(self, order: Order, result: Result, now: float) -> Iterable[Instruction]:
        if isinstance(order, Bind | PreBind):
            self._writes.end(_pod(order).uid)
        if isinstance(order, Bind) and isinstance(result, Outcome) and result.kind in ("bound", "denied"):
            self._writes.note(_pod(order).namespace, is_denied=result.kind == "denied")
        return ()

    def set_aside_blocked(self, now: float) -> None:
        """Requeue what may continue, and set the next entry aside while its namespace may have no more writes in
        progress.
        """
        self.tick(now)
        while self._writes.has_trouble(now) and (entry := self.state.queue.first(now)) is not None:
            namespace = self._namespace(entry.uid)
            if self._writes.room(namespace, now):
                return
            self.state.queue.hold(entry.uid, namespace)

    def tick(self, now: float) -> Iterable[Instruction]:
        """Requeue what was set aside, as far as its namespace has room."""
        for namespace in self.state.queue.held_namespaces():
            if room := self._writes.room(namespace, now):
                self.state.queue.release(namespace, room)
        return ()

    def next_due(self) -> float | None:
        return min(map(self._writes.full_until, self.state.queue.held_namespaces()), default=None)

    def _namespace(self, uid: str) -> str:
        """Return the namespace of a queue entry: of a pod, or of a group."""
        key = GroupKey.of_entry(uid)
        return self.state.pending_pods[uid].pod.metadata.namespace if key is None else key.namespace


def _pod(order: Bind | PreBind) -> Metadata:
    decision = order if isinstance(order, Bind) else order.decision
    return decision.pod_info.pod.metadata

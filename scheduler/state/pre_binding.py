"""Pods that wait for their volumes before their Bind: the results of the writes and of the wait. Pure."""

from collections.abc import Iterable
from dataclasses import dataclass

from scheduler.cache.node_info import NodeInfo
from scheduler.cycle.decisions import Bind, validate_annotations
from scheduler.cycle.instructions import Instruction, Order, PreBind, PreBindResult, Result
from scheduler.pending.part import Part
from scheduler.state.groups.group_scheduling import GroupScheduling
from scheduler.state.shared_state import SharedState


@dataclass(slots=True)
class PreBinding(Part):
    """Binds pods whose volumes are bound, and releases the others, with their group if they have one."""

    state: SharedState
    group_scheduling: GroupScheduling

    def node_changed(self, previous: NodeInfo | None, node: NodeInfo, now: float) -> Iterable[Instruction]:
        if previous is not None and previous.labels != node.labels:
            self.state.volume_waits.touch_node(node.name)
        return ()

    def node_removed(self, name: str, now: float) -> None:
        self.state.volume_waits.touch_node(name)

    def finished(self, order: Order, result: Result, now: float) -> Iterable[Instruction]:
        if not isinstance(order, PreBind) or not isinstance(result, PreBindResult):
            return ()
        waits = self.state.volume_waits
        if not result.fault:
            waits.written(order.decision, result.versions)
            return ()
        return self._settle(order.decision, result.fault, now) if waits.failed(order.decision) else ()

    def tick(self, now: float) -> Iterable[Instruction]:
        """Bind the pods whose volumes are bound, and remove from their nodes those whose volumes never will be."""
        outcomes = self.state.volume_waits.settled(now) if self.state.volume_waits else ()
        return [instruction for bind, fault in outcomes for instruction in self._settle(bind, fault, now)]

    def next_due(self) -> float | None:
        return self.state.volume_waits.next_due()

    def check(self) -> None:
        self.state.volume_waits.check()

    def _settle(self, decision: Bind, fault: str, now: float) -> list[Instruction]:
        uid = decision.pod_info.uid
        if uid in self.group_scheduling.held_binds:
            return self.group_scheduling.settle(decision, fault, now)
        # Minutes may have passed since the Binding's annotations were checked against the pod's own.
        reason = fault or validate_annotations(self.state.pending_pods[uid].pod.annotations, decision.annotations)
        return self._requeue(decision, reason, now) if reason else [decision]

    def _requeue(self, decision: Bind, reason: str, now: float) -> list[Instruction]:
        """Remove a pod whose volumes were not bound from its node, and requeue it."""
        uid, pending_pods = decision.pod_info.uid, self.state.pending_pods
        pending_pods.forget_all_assumed([uid], now)
        pending_pods.give_up_volumes(now)
        self.state.queue.retry(uid)
        return pending_pods.report_unschedulable(pending_pods[uid], "Unschedulable", f"binding volumes: {reason}")

"""Process the result of a Binding or of an eviction. Pure."""

from collections.abc import Iterable
from dataclasses import dataclass

from scheduler.cycle.decisions import Bind
from scheduler.cycle.instructions import Evict, Instruction, Notice, Order, Report, Result
from scheduler.kube.cluster_event import NO_EVENT
from scheduler.kube.outcomes import Outcome
from scheduler.pending.part import Part
from scheduler.state.shared_state import SharedState


class EvictionReports(Part):
    """Reports each eviction to the owner of the pod."""

    def finished(self, order: Order, result: Result, now: float) -> Iterable[Instruction]:
        if isinstance(order, Evict) and result == "evicted":
            return [Report(order.pod, order.cause, f"evicted: {order.reason}")]
        return ()


@dataclass(slots=True)
class BindResults(Part):
    """Processes a definite result: the pod is bound, or waits again, or the watch will show its state."""

    state: SharedState

    def finished(self, order: Order, result: Result, now: float) -> Iterable[Instruction]:
        return self._finish(order, result, now) if isinstance(order, Bind) and isinstance(result, Outcome) else ()

    def _finish(self, decision: Bind, outcome: Outcome, now: float) -> list[Instruction]:
        uid = decision.pod_info.uid
        if outcome.kind != "bound":
            self.state.pending_pods.forget_assumed(uid, now)
            return self._handle_failure(decision, outcome, now)
        self.state.cache.finish_binding(uid)
        self.state.pending_groups.end_backoff(uid)
        self.state.pending_pods.delete(uid, now)
        message = f"Successfully assigned {decision.pod_info.pod.key} to {decision.assigned.node}"
        report = Report(decision.pod_info.pod, "Scheduled", message, decision.why)
        return [report, *self._bound_to_deleted_node(decision)]

    def _bound_to_deleted_node(self, decision: Bind) -> list[Instruction]:
        """Report a Binding to a deleted node, which the API server allows; the garbage collector removes such pods."""
        if self.state.cache.node(decision.assigned.node) is not None:
            return []
        fields = {"node": decision.assigned.node, "pod": decision.pod_info.pod.key, "uid": decision.pod_info.uid}
        return [Notice("node", "pod bound to a node that was deleted meanwhile", fields)]

    def _handle_failure(self, decision: Bind, outcome: Outcome, now: float) -> list[Instruction]:
        state, uid = self.state, decision.pod_info.uid
        pending = state.pending_pods.get(uid)
        if pending is None:
            return []
        if pending.pod.metadata.deletion_timestamp is not None:
            state.pending_pods.delete(uid, now)
            return []
        if outcome.kind in ("changed", "forbidden", "denied"):
            state.queue.retry(uid)
            state.pending_groups.back_off(uid, now)
            if outcome.kind == "changed":
                return []
            is_denied, reason = outcome.kind == "denied", outcome.reason
            message = f"binding denied: {reason}" if is_denied else f"binding forbidden: {reason}"
            return state.pending_pods.report_unschedulable(pending, "Unschedulable", message)
        if outcome.kind == "refused":
            state.queue.add_unschedulable(uid, NO_EVENT)
            state.pending_groups.back_off(uid, now)
            message = f"the API server rejected the binding: {outcome.reason}"
            return state.pending_pods.report_unschedulable(pending, "Unschedulable", message)
        # Bound, gated, deleting, gone: the watch shows the next state, as a change of this pod or its end.
        state.pending_pods.delete(uid, now)
        return []

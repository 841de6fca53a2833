"""What the result of a write leads to: a Binding, an eviction, the deletion of victims, the writes of PreBind. Pure."""

from dataclasses import dataclass
from operator import gt

from scheduler.cache.assigned_pod import pod_reference
from scheduler.cache.cache import Cache
from scheduler.cycle.decisions import Bind
from scheduler.cycle.instructions import (
    DeleteVictims,
    DeleteVictimsResult,
    Evict,
    EvictionResult,
    Instruction,
    Notice,
    Order,
    PreBind,
    PreBindResult,
    Report,
    Result,
    WriteRates,
    WriteRatesResult,
)
from scheduler.kube.binding_outcome import Outcome
from scheduler.kube.cluster_event import NO_EVENT, ClusterEvent
from scheduler.pending.groups.conditions import PodGroupConditions
from scheduler.pending.groups.marked_members import MarkedMembers
from scheduler.pending.groups.member_messages import MemberMessages
from scheduler.pending.groups.pending_groups import PendingGroups
from scheduler.pending.nominator import Nominator
from scheduler.pending.pending_pods import PendingPods
from scheduler.queue.queue import Queue
from scheduler.state.pre_binding import PreBinding
from scheduler.state.rates.rate_changes import RateChanges
from scheduler.state.vfs.lost_vfs import LostVfs
from scheduler.state.vfs.vf_disputes import VfDisputes


@dataclass(frozen=True, slots=True)
class WriteResults:
    """A result is definite: the pod is bound, or waits again, or the watch shows what became of it."""

    cache: Cache
    queue: Queue
    pending_pods: PendingPods
    pending_groups: PendingGroups
    group_conditions: PodGroupConditions
    group_messages: MemberMessages
    nominator: Nominator
    vf_disputes: VfDisputes
    lost_vfs: LostVfs
    rate_changes: RateChanges
    marked_members: MarkedMembers
    pre_binding: PreBinding

    def apply(self, order: Order, result: Result, now: float) -> list[Instruction]:
        """Apply the result of a write; raise TypeError if the result is of another kind of write."""
        match order, result:
            case Bind(), Outcome():
                return self._finish_bind(order, result, now)
            case PreBind(), PreBindResult():
                return self.pre_binding.finish(order, result, now)
            case Evict(), str():
                return self._finish_evict(order, result, now)
            case DeleteVictims(), DeleteVictimsResult():
                return self._finish_delete_victims(order, result, now)
            case WriteRates(), WriteRatesResult():
                return self._finish_rates(order, result, now)
            case _:
                raise TypeError(f"{type(result).__name__} is not the result of {type(order).__name__}")

    def _finish_bind(self, decision: Bind, outcome: Outcome, now: float) -> list[Instruction]:
        uid = decision.pod_info.uid
        if outcome.kind == "bound":
            self.cache.finish_binding(uid)
            self.pending_groups.bound(uid)
            self.pending_pods.delete(uid, now)
            message = f"Successfully assigned {decision.pod_info.pod.key} to {decision.assigned.node}"
            report = Report(decision.pod_info.pod, "Scheduled", message, decision.why)
            return [report, *self._bound_to_deleted_node(decision)]
        self.pending_pods.forget_assumed(uid, now)
        return self._bind_failed(decision, outcome, now)

    def _finish_evict(self, order: Evict, ending: EvictionResult, now: float) -> list[Instruction]:
        """Try an eviction again later if the API server did not accept it."""
        self.lost_vfs.finish(order.pod.metadata.uid, ending, now)
        if ending == "refused":
            self.vf_disputes.retry(order.pod.metadata.uid, now)
            self.marked_members.refused(order.pod.metadata.uid, now)
        return [Report(order.pod, order.cause, f"evicted: {order.reason}")] if ending == "evicted" else []

    def _finish_delete_victims(
        self, order: DeleteVictims, ending: DeleteVictimsResult, now: float
    ) -> list[Instruction]:
        """Decide again about a pod for which not all victims could be deleted."""
        # A group's victims are on several nodes.
        by = f"Preempted by pod {order.pod.metadata.uid} on node"
        found: list[Instruction] = [
            Report(pod_reference(one), "Preempted", f"{by} {one.node}", related=order.pod) for one in ending.deleted
        ]
        uid = order.pod.metadata.uid
        nomination = self.nominator.of(uid)
        if not ending.refused or nomination is None or nomination.node != order.node:
            return found
        self.nominator.reject(uid, now)
        message = f"preemption refused: {ending.refused}"
        if nomination.group is not None:
            self.pending_groups.back_off(uid, now)
            # Told to some now and to others later: a group may have any number of members.
            self.group_conditions.refuse(nomination.group, message, now)
            self.group_messages.put(
                nomination.group, self.pending_groups.members(nomination.group).of("waiting"), message
            )
            return found
        return [*found, *self.pending_pods.report_unschedulable(self.pending_pods[uid], "Unschedulable", message)]

    def _finish_rates(self, order: WriteRates, result: WriteRatesResult, now: float) -> list[Instruction]:
        """What was reserved for a write alone is free again: the node may have put in force what it lowered, too."""
        before = self.cache.assigned(order.rates.uid)
        reserved = before.reserved if before is not None else ()
        found = list(self.rate_changes.finish(order, result, now))
        after = self.cache.assigned(order.rates.uid)
        if after is not None and any(map(gt, reserved, after.reserved)):
            self.queue.move_on_event(ClusterEvent.VFS_FREED, now)
            self.rate_changes.touch(order.rates.node, now)
        return found

    def _bound_to_deleted_node(self, decision: Bind) -> list[Instruction]:
        """Report a bind to a deleted node, which the API server allows; the garbage collector removes such pods."""
        if self.cache.node(decision.assigned.node) is not None:
            return []
        about = {"node": decision.assigned.node, "pod": decision.pod_info.pod.key, "uid": decision.pod_info.uid}
        return [Notice("node", "pod bound to a node that was deleted meanwhile", about)]

    def _bind_failed(self, decision: Bind, outcome: Outcome, now: float) -> list[Instruction]:
        uid, pending = decision.pod_info.uid, self.pending_pods.get(decision.pod_info.uid)
        if pending is None:
            return []
        if pending.pod.metadata.deletion_timestamp is not None:
            self.pending_pods.delete(uid, now)
            return []
        if outcome.kind in ("changed", "forbidden", "denied"):
            self.queue.retry(uid)
            self.pending_groups.back_off(uid, now)
            if outcome.kind == "changed":
                return []
            is_denied, reason = outcome.kind == "denied", outcome.reason
            why = f"binding denied: {reason}" if is_denied else f"binding forbidden: {reason}"
            return self.pending_pods.report_unschedulable(pending, "Unschedulable", why)
        if outcome.kind == "refused":
            self.queue.add_unschedulable(uid, NO_EVENT)
            self.pending_groups.back_off(uid, now)
            return self.pending_pods.report_unschedulable(
                pending, "Unschedulable", f"the API server refuses the binding: {outcome.reason}"
            )
        # Bound, gated, deleting, gone: the watch shows the next state, as a change of this pod or its end.
        self.pending_pods.delete(uid, now)
        return []

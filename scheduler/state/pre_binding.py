"""Pods that wait for their volumes before their Bind: what the writes and the waiting lead to. Pure."""

from dataclasses import dataclass

from scheduler.cycle.decisions import Bind, validate_annotations
from scheduler.cycle.instructions import Instruction, PreBind, PreBindResult
from scheduler.pending.groups.held_binds import HeldBinds
from scheduler.pending.pending_pods import PendingPods
from scheduler.pending.volume_waits import VolumeWaits
from scheduler.queue.queue import Queue
from scheduler.state.groups.group_scheduling import GroupScheduling


@dataclass(slots=True)
class PreBinding:
    """Binds whose volumes are bound leave; the others are given back, with their group if they are in one."""

    queue: Queue
    pending_pods: PendingPods
    volume_waits: VolumeWaits
    held_binds: HeldBinds
    group_scheduling: GroupScheduling

    def finish(self, order: PreBind, outcome: PreBindResult, now: float) -> list[Instruction]:
        """Apply the result of the writes."""
        if not outcome.fault:
            self.volume_waits.written(order.decision, outcome.versions)
            return []
        return self._settle(order.decision, outcome.fault, now) if self.volume_waits.failed(order.decision) else []

    def tick(self, now: float) -> list[Instruction]:
        """Bind the pods whose volumes are bound, and remove those from their nodes whose volumes never will be."""
        return [
            one for decision, unbound in self.volume_waits.settled(now) for one in self._settle(decision, unbound, now)
        ]

    def _settle(self, decision: Bind, unbound: str, now: float) -> list[Instruction]:
        uid = decision.pod_info.uid
        if uid in self.held_binds:
            return self.group_scheduling.settle(decision, unbound, now)
        # Minutes may have passed since the Binding's annotations were checked against the pod's own.
        why = unbound or validate_annotations(self.pending_pods[uid].pod.annotations, decision.annotations)
        return self._requeue(decision, why, now) if why else [decision]

    def _requeue(self, decision: Bind, why: str, now: float) -> list[Instruction]:
        """Remove a pod whose volumes were not bound from its node, and requeue it."""
        uid = decision.pod_info.uid
        self.pending_pods.forget_all_assumed([uid], now)
        self.pending_pods.give_up_volumes(now)
        self.queue.retry(uid)
        return self.pending_pods.report_unschedulable(
            self.pending_pods[uid], "Unschedulable", f"binding volumes: {why}"
        )

"""Nominations whose pods wait for victims to leave, and the end of this wait. Pure."""

from collections.abc import Iterable
from dataclasses import dataclass, replace

from scheduler.cache.assigned_pod import pod_reference
from scheduler.cycle.instructions import (
    DeleteVictims,
    DeleteVictimsResult,
    Instruction,
    Order,
    Report,
    Result,
)
from scheduler.cycle.nominations import Nomination
from scheduler.cycle.preemption.preemption import Preemption
from scheduler.pending.part import Part
from scheduler.state.shared_state import SharedState


@dataclass(slots=True)
class NominationWaits(Part):
    """Deletes a nomination if its node is deleted, a victim is not deleted, or VFs are not released in time."""

    state: SharedState
    preemption: Preemption

    def node_removed(self, name: str, now: float) -> None:
        self.state.nominator.delete_node(name, now)

    def finished(self, order: Order, result: Result, now: float) -> Iterable[Instruction]:
        if isinstance(order, DeleteVictims) and isinstance(result, DeleteVictimsResult):
            return self._finish(order, result, now)
        return ()

    def tick(self, now: float) -> Iterable[Instruction]:
        return [
            instruction
            for nomination in self.state.nominator.overdue(now)
            for instruction in self._stop_waiting(nomination, now)
        ]

    def next_due(self) -> float | None:
        return self.state.nominator.next_due()

    def _finish(self, order: DeleteVictims, result: DeleteVictimsResult, now: float) -> Iterable[Instruction]:
        """Schedule a pod again for which not all victims could be deleted."""
        state, uid = self.state, order.pod.metadata.uid
        # A group's victims are on several nodes.
        by = f"Preempted by pod {uid} on node"
        reports: list[Instruction] = [
            Report(pod_reference(victim), "Preempted", f"{by} {victim.node}", related=order.pod)
            for victim in result.deleted
        ]
        nomination = state.nominator.of(uid)
        if not result.refused or nomination is None or nomination.node != order.node:
            return reports
        state.nominator.reject(uid, now)
        message = f"the API server rejected the preemption: {result.refused}"
        if nomination.group is not None:
            state.pending_groups.back_off(uid, now)
            # Report to some members now and to others later: a group may have any number of members.
            state.group_conditions.refuse(nomination.group, message, now)
            uids = state.pending_groups.members(nomination.group).of("waiting")
            state.member_messages.put(nomination.group, uids, message)
            return reports
        return [*reports, *state.pending_pods.report_unschedulable(state.pending_pods[uid], "Unschedulable", message)]

    def _stop_waiting(self, nomination: Nomination, now: float) -> list[Instruction]:
        """Reject a pod's nomination if the VFs that it waits for are not released."""
        nominator, uid = self.state.nominator, nomination.assigned.uid
        if nomination.group is not None and not self.preemption.awaits_vf(nomination.node):
            # Another member of the group waits for VFs, and its nomination ends with that one; or none waits any more.
            if nominator.of(uid) is nomination:
                nominator.add(replace(nomination, until=None))
            return []
        reason = self.preemption.stop_waiting(nomination)
        nominator.reject(uid, now)
        return self.state.pending_pods.report_unschedulable(
            self.state.pending_pods[uid], "Unschedulable", f"nomination withdrawn: {reason}"
        )

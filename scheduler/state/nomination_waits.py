"""When reservations end before their owners are scheduled. Pure."""

from collections.abc import Iterable
from dataclasses import dataclass
from math import inf

from scheduler.cache.assigned_pod import pod_reference
from scheduler.cycle.instructions import (
    DeleteVictims,
    DeleteVictimsResult,
    Instruction,
    Order,
    Report,
    Result,
)
from scheduler.cycle.preemption.preemption import Preemption
from scheduler.cycle.reservations import Reservation
from scheduler.kube.group_membership import GroupKey
from scheduler.pending.part import Part
from scheduler.state.shared_state import SharedState

# Seconds for which room stays reserved for a group that is not complete, because a member may be made again.
_ABSENT_S = 30.0


@dataclass(slots=True)
class NominationWaits(Part):
    """Ends a reservation if its node is deleted, a victim is not deleted, VFs are not released in time, or its group is
    not complete again in time.
    """

    state: SharedState
    preemption: Preemption

    def node_removed(self, name: str, now: float) -> None:
        self.state.reservations.delete_node(name, now)

    def finished(self, order: Order, result: Result, now: float) -> Iterable[Instruction]:
        if isinstance(order, DeleteVictims) and isinstance(result, DeleteVictimsResult):
            return self._finish(order, result, now)
        return ()

    def tick(self, now: float) -> Iterable[Instruction]:
        for key, due in self._lapses().items():
            if due <= now:
                self.state.reservations.end(key, now)
        return [
            instruction
            for reservation in self.state.reservations.overdue(now)
            for instruction in self._stop_waiting(reservation, now)
        ]

    def next_due(self) -> float | None:
        due = self.state.reservations.next_due()
        return min([*self._lapses().values(), *([] if due is None else [due])], default=None)

    def _lapses(self) -> dict[GroupKey, float]:
        """Return when reservations end whose groups are not in the queue: at once if no member waits."""
        groups = [(key, self.state.pending_groups.get(key)) for key in self.state.reservations.groups()]
        return {
            key: -inf if group is None else group.since + _ABSENT_S
            for key, group in groups
            if group is None or group.message
        }

    def _finish(self, order: DeleteVictims, result: DeleteVictimsResult, now: float) -> Iterable[Instruction]:
        state, uid = self.state, order.pod.metadata.uid
        # A group's victims are on several nodes.
        by = f"Preempted by pod {uid} on node"
        reports: list[Instruction] = [
            Report(pod_reference(victim), "Preempted", f"{by} {victim.node}", related=order.pod)
            for victim in result.deleted
        ]
        reservation = state.reservations.of(uid)
        if not result.refused or reservation is None or reservation.rooms[uid].node != order.node:
            return reports
        state.reservations.reject(reservation, now)
        message = f"the API server rejected the preemption: {result.refused}"
        if (key := reservation.group) is not None:
            state.pending_groups.back_off(uid, now)
            # Report to some members now and to others later: a group may have any number of members.
            state.group_reports.put(key, state.pending_groups.members(key).of("waiting"), message, now)
            return reports
        return [*reports, *state.pending_pods.report_unschedulable(state.pending_pods[uid], "Unschedulable", message)]

    def _stop_waiting(self, reservation: Reservation, now: float) -> list[Instruction]:
        """Reject a reservation if the VFs that its owner waits for are not released."""
        state = self.state
        stuck = [
            room
            for room in reservation.rooms.values()
            if reservation.group is None or self.preemption.awaits_vf(room.node)
        ]
        if not stuck:
            state.reservations.wait_no_more(reservation)
            return []
        reasons = {room.uid: self.preemption.end_wait(room.node) for room in stuck}
        state.reservations.reject(reservation, now)
        return [
            report
            for uid, reason in reasons.items()
            if (pending := state.pending_pods.get(uid)) is not None
            for report in state.pending_pods.report_unschedulable(
                pending, "Unschedulable", f"nomination withdrawn: {reason}"
            )
        ]

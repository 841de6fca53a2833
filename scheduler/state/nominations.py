"""Nominations: keep those of the previous leader, and end those whose owners wait in vain. Pure.

Before the next decision, pods whose status names a node are nominated there; all such members of a group together. No
other pod of the same or a lower priority then takes the room for which pods were already preempted, or which is
reserved for a group. The reservation includes exact VFs, also those of pods that are leaving.

Correctness: this is done only for pods that are in the queue and were never tried here, so a decision about them
follows soon, and replaces or deletes these nominations. If only some members of a group have a node in their status,
room is reserved for these: that of the others was not written yet, or there was none. A group that is rejected reserves
none, and one that is incomplete only for `_ABSENT_S`.

Cost: a dry run for each such pod, on its node alone, in portions.
"""

from collections import defaultdict, deque
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace
from math import inf

from scheduler.cache.assigned_pod import AssignedPod, pod_reference
from scheduler.cycle.groups.rails import on_rails
from scheduler.cycle.instructions import DeleteVictims, DeleteVictimsResult, Instruction, Order, Report, Result
from scheduler.cycle.node_dry_run import DryRuns
from scheduler.cycle.preemption.preemption import Preemption
from scheduler.cycle.reserved_room import Owner, Reservation
from scheduler.kube.group import GroupKey
from scheduler.kube.objects import Pod
from scheduler.kube.pod_info import PodInfo
from scheduler.pending.groups.promises import read_promise
from scheduler.pending.part import Part
from scheduler.pending.pending_pods import PendingPod
from scheduler.placement.steps import Steps
from scheduler.state.shared_state import SharedState

# Number of pods that are processed in one step, about 0.2 ms each; moving this many other pods on its node takes as
# long.
_PORTION, _MOVES_PER_POD = 64, 8
_VICTIMS_AT_ONCE = 256
# Seconds for which room stays reserved for a group that is not complete, because a member may be made again.
_ABSENT_S = 30.0
_Rooms = defaultdict[str, list[AssignedPod]]


@dataclass(slots=True)
class Nominations(Part):
    """Ends a reservation whose node is deleted, whose victims or VFs do not leave, or whose group stays incomplete."""

    state: SharedState
    preemption: Preemption
    # Each with the pod for which it was preempted, until that is reported.
    _deleted_victims: deque[tuple[AssignedPod, Pod]] = field(default_factory=deque)

    def take_over(self, now: float) -> bool:
        """Take over some nominations; return whether that was a step by itself, after which others may remain."""
        uids, pod_count = self.state.pending_pods.nominated_in_status, 0
        if not uids:
            return False
        rooms_by_node = _Rooms(list)
        for reservation in self.state.reservations.all():
            for room in reservation.rooms.values():
                rooms_by_node[room.node].append(room)
        # By owner the pods that have been processed, each with its room if it has any.
        changes = dict[Owner, dict[str, AssignedPod | None]]()
        is_soon = dict[Owner, bool]()
        while uids and pod_count < _PORTION:
            uid = next(iter(uids))
            # A pod that fails because of a bug is not processed again.
            del uids[uid]
            pending = self.state.pending_pods[uid]
            owner = pending.pod_info.owner if isinstance(pending.pod_info, PodInfo) else uid
            if owner not in is_soon:
                is_soon[owner] = self._is_decided_soon(owner)
            if is_soon[owner]:
                changes.setdefault(owner, {})[uid], move_count = self._room(owner, pending, rooms_by_node)
                pod_count += 1 + move_count // _MOVES_PER_POD
        for owner, rooms in changes.items():
            self._reserve(owner, rooms, now)
        return bool(changes)

    def _is_decided_soon(self, owner: Owner) -> bool:
        if not isinstance(owner, GroupKey):
            return True
        groups, pods = self.state.pending_groups, self.state.pending_pods
        waiting_group = groups.get(owner)
        if waiting_group is None or waiting_group.group is None:
            return False
        return not any(pods[uid].attempts for uid in groups.members(owner).of("waiting"))

    def _room(self, owner: Owner, pending: PendingPod, rooms_by_node: _Rooms) -> tuple[AssignedPod | None, int]:
        """Return what a pod reserves on its node once leaving pods are gone, and how many pods were moved for that."""
        pod_info, node = pending.pod_info, pending.pod.status.nominated_node_name or ""
        row = self.state.cache.nodes.row_of.get(node)
        if row is None or not isinstance(pod_info, PodInfo):
            return None, 0
        priority = pod_info.priority
        if isinstance(owner, GroupKey):
            # It is reserved against all pods that the group precedes, whatever its members' own priorities.
            group, priority = self.state.pending_groups.group(owner), self.state.pending_groups.priority(owner)
            (pod_info,) = on_rails([pod_info], group, ()) if group.rails == "index" else (pod_info,)
        rivals = [room for room in rooms_by_node[node] if room.priority >= priority and room.uid != pod_info.uid]
        leaving_pods = [
            assigned_pod
            for assigned_pod in self.state.cache.assigned_pods_on(node)
            if assigned_pod.affinity_info is not None and assigned_pod.affinity_info.is_terminating
        ]
        dry_runs = DryRuns(pod_info, self.state.cache, Steps(), reserves_only=True)
        with dry_runs.on(row, rivals, off=leaving_pods) as dry_run:
            room = replace(dry_run.assigned_pod(), priority=priority)
        rooms_by_node[node].append(room)
        return room, len(rivals) + len(leaving_pods)

    def _reserve(self, owner: Owner, changes: Mapping[str, AssignedPod | None], now: float) -> None:
        previous, pods = self.state.reservations.of_owner(owner), self.state.pending_pods.pending
        all_rooms = {**(previous.rooms if previous is not None else {}), **changes}
        rooms = {uid: room for uid, room in all_rooms.items() if room is not None and uid in pods}
        if not rooms:
            self.state.reservations.end(owner, now)
            return
        reservation = Reservation(owner, rooms) if previous is None else replace(previous, rooms=rooms)
        self.state.reservations.put(self._from_promise(reservation), now)

    def _from_promise(self, reservation: Reservation) -> Reservation:
        """Reserve the room of a group from its promised start on if the last leader has written one."""
        pods, offset_s = self.state.pending_pods, self.state.run_times.unix_offset_s
        promises = (read_promise(pods[uid].condition_message, offset_s) for uid in reservation.rooms)
        promise = next(filter(None, promises), None) if reservation.group is not None else None
        if promise is None:
            return reservation
        run_times = [room.runs_s for room in reservation.rooms.values()]
        ends = [promise.at + runs_s for runs_s in run_times if runs_s is not None]
        until = max(ends) if len(ends) == len(run_times) else None
        return replace(reservation, cause="backfill", since=promise.at, until=until)

    def node_removed(self, name: str, now: float) -> None:
        self.state.reservations.delete_node(name, now)

    def tick(self, now: float) -> Iterable[Instruction]:
        for key, due in self._lapses().items():
            if due <= now:
                self.state.reservations.end(key, now)
        overdue_reservations = self.state.reservations.overdue(now)
        reports = [report for reservation in overdue_reservations for report in self._withdraw(reservation, now)]
        return [*self._report_victims(), *reports]

    def next_due(self) -> float | None:
        if self._deleted_victims:
            return 0.0
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

    def finished(self, order: Order, result: Result, now: float) -> Iterable[Instruction]:
        if not isinstance(order, DeleteVictims) or not isinstance(result, DeleteVictimsResult):
            return ()
        state, uid = self.state, order.pod.metadata.uid
        self._deleted_victims.extend((victim, order.pod) for victim in result.deleted)
        reports = self._report_victims()
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

    def _report_victims(self) -> list[Instruction]:
        """Report some victims now and others later: those of a group may be thousands, on several nodes."""
        count = min(len(self._deleted_victims), _VICTIMS_AT_ONCE)
        victims = [self._deleted_victims.popleft() for _ in range(count)]
        return [
            Report(
                pod_reference(victim),
                "Preempted",
                f"Preempted by pod {pod.metadata.uid} on node {victim.node}",
                related=pod,
            )
            for victim, pod in victims
        ]

    def _withdraw(self, reservation: Reservation, now: float) -> list[Instruction]:
        pods, rooms = self.state.pending_pods, reservation.rooms.values()
        stuck_rooms = [room for room in rooms if self.preemption.holds_vf(room.node)]
        if not stuck_rooms:
            self.state.reservations.end_vf_wait(reservation)
            return []
        reasons = {room.uid: self.preemption.end_wait(room.node) for room in stuck_rooms}
        self.state.reservations.reject(reservation, now)
        return [
            report
            for uid, reason in reasons.items()
            if (pending := pods.get(uid)) is not None
            for report in pods.report_unschedulable(pending, "Unschedulable", f"nomination withdrawn: {reason}")
        ]

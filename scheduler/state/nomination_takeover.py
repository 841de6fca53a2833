"""Keep the nominations of the previous leader until this leader has scheduled their pods. Pure.

Method: before the next decision, pods whose status names a node are nominated there; all such members of a group
together. No other pod of the same or a lower priority then takes the room for which pods were already preempted, or
which is reserved for a group. The reservation includes exact VFs, also those of pods that are leaving.

Correctness: this is done only for pods that are in the queue and were never tried here, so a decision about them
follows soon, and replaces or deletes these nominations. If only some members of a group have a node in their status,
room is reserved for these: that of the others was not written yet, or there was none. A group that is rejected reserves
none, and one that is incomplete only for a while (`scheduler.state.nomination_waits`).

Cost: a dry run for each such pod, on its node alone, in portions.
"""

from collections import defaultdict
from collections.abc import Mapping
from dataclasses import dataclass, replace

from scheduler.cache.assigned_pod import AssignedPod
from scheduler.cycle.groups.rails import on_rails
from scheduler.cycle.node_dry_run import DryRuns
from scheduler.cycle.reservations import Owner, Reservation, reserve
from scheduler.kube.group_membership import GroupKey
from scheduler.kube.pod_info import PodInfo
from scheduler.pending.groups.promises import read_promise
from scheduler.pending.pending_pod import PendingPod
from scheduler.placement.steps import Steps
from scheduler.state.shared_state import SharedState

# Number of pods that are processed in one step, about 0.2 ms each; moving this many other pods on its node takes as
# long.
_PORTION, _MOVES_PER_POD = 64, 8
_Rooms = defaultdict[str, list[AssignedPod]]


@dataclass(slots=True)
class NominationTakeover:
    """Processes the pods that `PendingPods` has recorded."""

    state: SharedState

    @property
    def is_under_way(self) -> bool:
        """Return whether pods are to be processed."""
        return bool(self.state.pending_pods.nominated_in_status)

    def proceed(self, now: float) -> bool:
        """Take over some nominations; return whether that was a step by itself, after which others may remain."""
        uids, pod_count = self.state.pending_pods.nominated_in_status, 0
        if not uids:
            return False
        rooms_by_node = self._rooms_by_node()
        # By owner the pods that have been processed, each with its room if it has any.
        rooms = dict[Owner, dict[str, AssignedPod | None]]()
        is_soon = dict[Owner, bool]()
        while uids and pod_count < _PORTION:
            uid = next(iter(uids))
            # A pod that fails because of a bug is not processed again.
            del uids[uid]
            pending = self.state.pending_pods[uid]
            owner = _owner_of(pending)
            if owner not in is_soon:
                is_soon[owner] = self._is_decided_soon(owner, pending)
            if is_soon[owner]:
                room, move_count = self._room(owner, pending, rooms_by_node)
                rooms.setdefault(owner, {})[uid] = room
                pod_count += 1 + move_count // _MOVES_PER_POD
        for owner, owner_rooms in rooms.items():
            self._reserve(owner, owner_rooms, now)
        return bool(rooms)

    def _rooms_by_node(self) -> _Rooms:
        rooms_by_node = _Rooms(list)
        for reservation in self.state.reservations.all():
            for room in reservation.rooms.values():
                rooms_by_node[room.node].append(room)
        return rooms_by_node

    def _is_decided_soon(self, owner: Owner, pending: PendingPod) -> bool:
        if not isinstance(owner, GroupKey):
            return not pending.attempts
        groups, pods = self.state.pending_groups, self.state.pending_pods
        waiting = groups.get(owner)
        if waiting is None or waiting.group is None:
            return False
        return not any(pods[uid].attempts for uid in groups.members(owner).of("waiting"))

    def _room(self, owner: Owner, pending: PendingPod, rooms_by_node: _Rooms) -> tuple[AssignedPod | None, int]:
        """Return what a pod reserves on its node, with the VFs that it gets when the leaving pods are gone; and how
        many pods were moved for that.
        """
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
            if assigned_pod.affinity_info is not None and assigned_pod.affinity_info.terminating
        ]
        with DryRuns(pod_info, self.state.cache, Steps(), reserves_only=True).on(
            row, rivals, off=leaving_pods
        ) as dry_run:
            room = replace(dry_run.assigned_pod(), priority=priority)
        rooms_by_node[node].append(room)
        return room, len(rivals) + len(leaving_pods)

    def _reserve(self, owner: Owner, changes: Mapping[str, AssignedPod | None], now: float) -> None:
        """Reserve the room of processed pods beside that of the group's other members."""
        previous = self.state.reservations.of_owner(owner)
        rooms_before, pods = previous.rooms if previous is not None else {}, self.state.pending_pods.pending
        all_rooms = {**rooms_before, **changes}
        rooms = {uid: room for uid, room in all_rooms.items() if room is not None and uid in pods}
        if not rooms:
            self.state.reservations.end(owner, now)
            return
        reservation = reserve(owner, rooms.values()) if previous is None else replace(previous, rooms=rooms)
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


def _owner_of(pending: PendingPod) -> Owner:
    membership = pending.pod_info.membership if isinstance(pending.pod_info, PodInfo) else None
    return membership.key if membership is not None else pending.pod.metadata.uid

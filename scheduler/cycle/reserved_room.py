"""Reserved room, as decisions read it. Pure.

A reservation keeps room for a pod or a group: while victims leave for it, as it becomes free for the group that has
first call, or from a later time on. For pods of the same or a lower priority it counts as if the owner were already
there, including VFs and rates; except for a pod that ends before. `scheduler.pending.reservations` keeps all of them.

A pod that does not end in time may be on a node where room is reserved from a later time: now it needs room beside the
pods that are there; from then on beside the owner of the reservation, when the pods that end by then have left. Its
exact VFs must be free now and not reserved, and the rates of each PF must hold at both times. With other kinds of
resource the pods that end count as if they stayed.
"""

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Literal

from mooring.annotations.assignment import Assignment
from scheduler.cache.assigned_pod import AssignedPod
from scheduler.cache.cache import Cache
from scheduler.cycle.node_dry_run import DryRuns
from scheduler.kube.group import GroupKey
from scheduler.kube.pod_info import PodInfo
from scheduler.placement.steps import Steps
from scheduler.placement.vf_accounting import Claim, reserve_rates
from scheduler.plugins.interface import Texts

# The uid of a pod without a group, or a group.
Owner = str | GroupKey
# An owner, and whether the room is for its spares: a group has these beside the room of its members.
ReservationKey = tuple[Owner, bool]
# victims: pods leave for the owner. hold: nothing leaves for it, it gets what becomes free. backfill: pods that
# declare their run time end before. spare: kept for further members of a group that runs.
Cause = Literal["victims", "hold", "backfill", "spare"]
# Seconds from a Binding until a pod is Running: its images are pulled and its VFs set up.
START_S = 30.0
# Returns when a pod on a node is expected to end, at the earliest now (monotonic seconds); None for never.
EndOf = Callable[[AssignedPod, float], float | None]


@dataclass(frozen=True, slots=True)
class Reservation:
    """Room for ``owner``: by uid each pod of it with its node, and what it needs there. Its own pods ignore it.

    It is reserved from ``since`` on, and until ``until`` if the owner then ends (monotonic seconds). ``victims`` are
    the uids of the pods that leave for it. If ``vfs_by`` is set, these have left, and the owner waits until then for
    their VFs.
    """

    owner: Owner
    rooms: Mapping[str, AssignedPod]
    cause: Cause = "victims"
    victims: frozenset[str] = frozenset()
    vfs_by: float | None = None
    since: float = 0.0
    until: float | None = None

    @property
    def key(self) -> ReservationKey:
        return self.owner, self.cause == "spare"

    @property
    def group(self) -> GroupKey | None:
        return self.owner if isinstance(self.owner, GroupKey) else None


def rooms_of(assigned_pods: Iterable[AssignedPod]) -> dict[str, AssignedPod]:
    return {assigned_pod.uid: assigned_pod for assigned_pod in assigned_pods}


class ReservedRoom:
    """The reservations, few enough that a search checks all of them; ``now`` is the time of decisions."""

    def __init__(self, end_of: EndOf) -> None:
        self._by_key: dict[ReservationKey, Reservation] = {}
        self._by_uid: dict[str, Reservation] = {}
        self._end_of, self.now = end_of, 0.0
        # Only in virtual time is the end of a reservation that is reviewed as time passes.
        self._is_virtual = False

    def advance(self, to: float) -> None:
        """Let a time to come be the time of decisions, on a snapshot."""
        self.now, self._is_virtual = to, True

    def snapshot(self) -> "ReservedRoom":
        snapshot = ReservedRoom(self._end_of)
        snapshot._by_key, snapshot._by_uid, snapshot.now = self._by_key.copy(), self._by_uid.copy(), self.now
        return snapshot

    def __len__(self) -> int:
        return len(self._by_uid)

    def all(self) -> list[Reservation]:
        return list(self._by_key.values())

    def drop(self, reservation: Reservation) -> None:
        """Release room, without an event."""
        self._by_key.pop(reservation.key, None)
        for uid in reservation.rooms:
            self._by_uid.pop(uid, None)

    def of(self, uid: str) -> Reservation | None:
        return self._by_uid.get(uid)

    def of_owner(self, owner: Owner) -> Reservation | None:
        """Return the room of a pod or of a group's members, without its spares."""
        return self._by_key.get((owner, False))

    def spares_of(self, key: GroupKey) -> Reservation | None:
        return self._by_key.get((key, True))

    def room_of(self, uid: str) -> AssignedPod | None:
        """Return where a pod has reserved room, and what it needs there."""
        reservation = self._by_uid.get(uid)
        return None if reservation is None else reservation.rooms[uid]

    def node_of(self, uid: str) -> str:
        """Return the node on which a pod has reserved room; empty if none."""
        room = self.room_of(uid)
        return room.node if room is not None else ""

    def counting_for(self, pod_info: PodInfo) -> Mapping[str, list[AssignedPod]]:
        """Return by node the other pods of the same or a higher priority that have reserved room.

        Pods of the pod's own group do not count, because they are placed together with it. Members have their group's
        priority here.
        """
        if not self._by_key:
            return {}
        priority = pod_info.priority if pod_info.group_priority is None else pod_info.group_priority
        return self.counting_for_owner(pod_info.owner, priority, pod_info.runs_s)

    def counting_for_owner(
        self, owner: Owner, priority: int, runs_s: float | None = None
    ) -> Mapping[str, list[AssignedPod]]:
        """Return by node the room of other owners of the same or a higher priority.

        Room that is reserved from a time on does not count for an owner that starts now and ends before.
        """
        pods_by_node: dict[str, list[AssignedPod]] = {}
        end = None if runs_s is None else self.now + START_S + runs_s
        for reservation in self._by_key.values():
            is_over = self._is_virtual and reservation.until is not None and reservation.until <= self.now
            if reservation.owner == owner or is_over or (end is not None and end <= reservation.since):
                continue
            for room in reservation.rooms.values():
                if room.priority >= priority:
                    pods_by_node.setdefault(room.node, []).append(room)
        return pods_by_node

    def since_of(self, uid: str) -> float:
        reservation = self.of(uid)
        return 0.0 if reservation is None else reservation.since

    def is_later(self, room: AssignedPod) -> bool:
        return self.since_of(room.uid) > self.now

    def ends_by(self, assigned_pod: AssignedPod, time: float) -> bool:
        end = self._end_of(assigned_pod, self.now)
        return end is not None and end <= time


class RoomCheck:
    """Whether one pod may be on a row beside the room that is reserved there, and its devices then."""

    def __init__(self, pod_info: PodInfo, cache: Cache, reserved_room: ReservedRoom, steps: Steps) -> None:
        self._pod_info, self._cache, self._reserved_room, self._steps = pod_info, cache, reserved_room, steps
        self._rooms_by_node = reserved_room.counting_for(pod_info)
        self._dry_runs: DryRuns | None = None

    def refusal(self, row: int) -> Texts:
        """Return why reserved room excludes the pod on a row; empty if it does not."""
        rooms = self._rooms_on(row)
        refusal = self._refusal(row, rooms) if rooms else ()
        return () if refusal and self._fits_until_later(row, rooms)[0] else refusal

    def assignment(self, row: int) -> Assignment | None:
        """Return the pod's devices on a row that are not reserved; None if no reserved room counts there."""
        rooms = self._rooms_on(row)
        if not rooms:
            return None
        return self._assignment(row, rooms) or self._fits_until_later(row, rooms)[1]

    def _rooms_on(self, row: int) -> Sequence[AssignedPod]:
        return self._rooms_by_node.get(self._cache.nodes.names[row], ()) if self._rooms_by_node else ()

    def _refusal(self, row: int, rooms: Sequence[AssignedPod], off: Sequence[AssignedPod] = ()) -> Texts:
        self._dry_runs = self._dry_runs or DryRuns(self._pod_info, self._cache, self._steps)
        with self._dry_runs.on(row, rooms, off=off) as dry_run:
            return dry_run.refusal()

    def _assignment(self, row: int, rooms: Sequence[AssignedPod]) -> Assignment | None:
        with DryRuns(self._pod_info, self._cache, self._steps, reserves_only=True).on(row, rooms) as dry_run:
            return dry_run.assigned_pod().assignment

    def _fits_until_later(self, row: int, rooms: Sequence[AssignedPod]) -> tuple[bool, Assignment | None]:
        """Return whether the pod fits now, and still when room that is reserved from later on is used; and its VFs."""
        reserved_room, pod_info = self._reserved_room, self._pod_info
        later_rooms = [room for room in rooms if reserved_room.is_later(room)]
        if not later_rooms or pod_info.wishes or any(room.assignment and room.assignment.ext for room in rooms):
            return False, None
        since = min(reserved_room.since_of(room.uid) for room in later_rooms)
        node_pods = self._cache.assigned_pods_on(self._cache.nodes.names[row])
        ending_pods = [pod for pod in node_pods if reserved_room.ends_by(pod, since)]
        present_rooms = [room for room in rooms if not reserved_room.is_later(room)]
        if not ending_pods or self._refusal(row, rooms, ending_pods) or self._refusal(row, present_rooms):
            return False, None
        if not pod_info.interfaces:
            return True, None
        without_rates = [_without_rates(room) if reserved_room.is_later(room) else room for room in rooms]
        for counted_rooms in (rooms, without_rates):
            assignment = self._assignment(row, counted_rooms)
            if assignment is not None and self._has_vfs(ending_pods, rooms, assignment):
                return True, assignment
        return False, None

    def _has_vfs(
        self, ending_pods: Iterable[AssignedPod], rooms: Iterable[AssignedPod], assignment: Assignment
    ) -> bool:
        """Return whether the VFs of an assignment and those of the reserved room are enough when pods have ended."""
        accounting = self._cache.vf_accounting(assignment.node).copy()
        for claim in filter(None, (pod.claim for pod in ending_pods)):
            accounting.remove(claim)
        own_claim = Claim(self._pod_info.uid, assignment, self._pod_info.pod.key)
        for claim in filter(None, (own_claim, *(room.claim for room in rooms))):
            accounting.add(claim)
        free_vfs = accounting.free_vfs
        is_within_shares = all(
            count <= share.max_vfs for share in free_vfs.shares for count in share.vfs_by_namespace.values()
        )
        has_rates = all(capacity.mbps >= 0 for capacity in free_vfs.capacities)
        return is_within_shares and has_rates


def _without_rates(room: AssignedPod) -> AssignedPod:
    assignment = room.assignment
    if assignment is None:
        return room
    return replace(room, assignment=reserve_rates(assignment, [0] * len(assignment.vfs)))

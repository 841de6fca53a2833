"""Reserved room, as decisions read it. Pure.

A reservation keeps room for a pod or a group: while victims leave for it, as it becomes free for the group that has
first call, or from a later time on. For pods of the same or a lower priority it counts as if the owner were already
there, including VFs and rates; except for a pod that ends before. `scheduler.pending.reservations` keeps all of them.
"""

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from typing import Literal

from scheduler.cache.assigned_pod import AssignedPod
from scheduler.kube.group_membership import GroupKey
from scheduler.kube.pod_info import PodInfo

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
    victims: frozenset[str] = field(default=frozenset())
    vfs_by: float | None = None
    since: float = 0.0
    until: float | None = None

    @property
    def key(self) -> ReservationKey:
        return self.owner, self.cause == "spare"

    @property
    def group(self) -> GroupKey | None:
        """The group that owns the room; None if a single pod does."""
        return self.owner if isinstance(self.owner, GroupKey) else None


def reserve(
    owner: Owner,
    assigned_pods: Iterable[AssignedPod],
    cause: Cause = "victims",
    *,
    victims: frozenset[str] = frozenset(),
    vfs_by: float | None = None,
) -> Reservation:
    rooms = {assigned_pod.uid: assigned_pod for assigned_pod in assigned_pods}
    return Reservation(owner, rooms, cause, victims, vfs_by)


class ReservedRoom:
    """The reservations by key and by uid; they are few, so a search checks all of them. ``now`` is the time of
    decisions.
    """

    def __init__(
        self, by_key: dict[ReservationKey, Reservation], by_uid: dict[str, Reservation], end_of: EndOf
    ) -> None:
        self._by_key, self._by_uid, self._end_of = by_key, by_uid, end_of
        self.now = 0.0
        # Only in virtual time is the end of a reservation that is reviewed as time passes.
        self._looks_ahead = False

    def look_ahead(self, at: float) -> None:
        """Let a time to come be the time of decisions, on a snapshot."""
        self.now, self._looks_ahead = at, True

    def snapshot(self) -> "ReservedRoom":
        """Return a copy of the current reservations."""
        snapshot = ReservedRoom(self._by_key.copy(), self._by_uid.copy(), self._end_of)
        snapshot.now = self.now
        return snapshot

    def all(self) -> list[Reservation]:
        return list(self._by_key.values())

    def drop(self, reservation: Reservation) -> None:
        """Release room, without an event."""
        self._by_key.pop(reservation.key, None)
        for uid in reservation.rooms:
            self._by_uid.pop(uid, None)

    def of(self, uid: str) -> Reservation | None:
        """Return the reservation with room for a pod; None if it has none."""
        return self._by_uid.get(uid)

    def of_owner(self, owner: Owner) -> Reservation | None:
        """Return the room of a pod or of a group's members; None if it has none."""
        return self._by_key.get((owner, False))

    def spares_of(self, key: GroupKey) -> Reservation | None:
        """Return the room of a group's spares; None if it has none."""
        return self._by_key.get((key, True))

    def room_of(self, uid: str) -> AssignedPod | None:
        """Return where a pod has reserved room, and what it needs there; None if it has none."""
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
        owner = pod_info.membership.key if pod_info.membership is not None else pod_info.uid
        priority = pod_info.priority if pod_info.group_priority is None else pod_info.group_priority
        return self.counting_for_owner(owner, priority, pod_info.runs_s)

    def counting_for_owner(
        self, owner: Owner, priority: int, runs_s: float | None = None
    ) -> Mapping[str, list[AssignedPod]]:
        """Return by node the pods of the same or a higher priority that have reserved room of other owners.

        Room that is reserved from a time on does not count for an owner that starts now and ends before.
        """
        pods_by_node: dict[str, list[AssignedPod]] = {}
        for reservation in self._by_key.values():
            if reservation.owner == owner or self._is_over(reservation) or self._ends_before(reservation, runs_s):
                continue
            for room in reservation.rooms.values():
                if room.priority >= priority:
                    pods_by_node.setdefault(room.node, []).append(room)
        return pods_by_node

    def _is_over(self, reservation: Reservation) -> bool:
        return self._looks_ahead and reservation.until is not None and reservation.until <= self.now

    def _ends_before(self, reservation: Reservation, runs_s: float | None) -> bool:
        return runs_s is not None and self.now + START_S + runs_s <= reservation.since

    def is_later(self, room: AssignedPod) -> bool:
        """Return whether room is reserved from a later time on."""
        return self.since_of(room.uid) > self.now

    def since_of(self, uid: str) -> float:
        """Return from when on room is reserved for a pod."""
        reservation = self.of(uid)
        return 0.0 if reservation is None else reservation.since

    def first_since(self, rooms: Iterable[AssignedPod]) -> float | None:
        """Return from when on the first of these rooms is reserved that is not yet; None if all are."""
        return min((self.since_of(room.uid) for room in rooms if self.is_later(room)), default=None)

    def has_left(self, assigned_pod: AssignedPod, at: float) -> bool:
        end = self._end_of(assigned_pod, self.now)
        return end is not None and end <= at

"""Reserved room, as decisions read it. Pure.

A reservation keeps room for a pod or a group: while victims leave for it, or as it becomes free for the group that has
first call. For pods of the same or a lower priority it counts as if the owner were already there, including VFs and
rates. `scheduler.pending.reservations` keeps all of them.
"""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Literal

from scheduler.cache.assigned_pod import AssignedPod
from scheduler.kube.group_membership import GroupKey
from scheduler.kube.pod_info import PodInfo

# The uid of a pod without a group, or a group.
Owner = str | GroupKey
# victims: pods leave for the owner. first call: nothing leaves for it, it gets what becomes free.
Cause = Literal["victims", "first call"]


@dataclass(frozen=True, slots=True)
class Reservation:
    """Room for ``owner``: by uid each pod of it with its node, and what it needs there. Its own pods ignore it.

    ``victims`` are the uids of the pods that leave for it. If ``until`` is set, these have left, and the owner waits
    until then (monotonic seconds) for their VFs.
    """

    owner: Owner
    rooms: Mapping[str, AssignedPod]
    cause: Cause = "victims"
    victims: frozenset[str] = field(default=frozenset())
    until: float | None = None

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
    until: float | None = None,
) -> Reservation:
    """Return a reservation of the room of these pods."""
    rooms = {assigned_pod.uid: assigned_pod for assigned_pod in assigned_pods}
    return Reservation(owner, rooms, cause, victims, until)


class ReservedRoom:
    """The reservations by owner; they are few, so a search checks all of them."""

    def __init__(self, by_owner: dict[Owner, Reservation], owner_of: dict[str, Owner]) -> None:
        self._by_owner, self._owner_of = by_owner, owner_of

    def snapshot(self) -> "ReservedRoom":
        """Return a copy of the current reservations."""
        return ReservedRoom(self._by_owner.copy(), self._owner_of.copy())

    def of(self, uid: str) -> Reservation | None:
        """Return the reservation with room for a pod; None if it has none."""
        owner = self._owner_of.get(uid)
        return None if owner is None else self._by_owner[owner]

    def of_owner(self, owner: Owner) -> Reservation | None:
        return self._by_owner.get(owner)

    def room_of(self, uid: str) -> AssignedPod | None:
        """Return where a pod has reserved room, and what it needs there; None if it has none."""
        reservation = self.of(uid)
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
        if not self._by_owner:
            return {}
        owner = pod_info.membership.key if pod_info.membership is not None else pod_info.uid
        priority = pod_info.priority if pod_info.group_priority is None else pod_info.group_priority
        return self.counting_for_owner(owner, priority)

    def counting_for_owner(self, owner: Owner, priority: int) -> Mapping[str, list[AssignedPod]]:
        """Return by node the pods of the same or a higher priority that have reserved room of other owners."""
        pods_by_node: dict[str, list[AssignedPod]] = {}
        for reservation in self._by_owner.values():
            if reservation.owner == owner:
                continue
            for room in reservation.rooms.values():
                if room.priority >= priority:
                    pods_by_node.setdefault(room.node, []).append(room)
        return pods_by_node

"""All reservations, and which pods to requeue when one ends. Pure.

Of single pods it is the same map as kube-scheduler's nominator.
"""

from collections.abc import Iterator
from dataclasses import replace

from scheduler.cache.assigned_pod import AssignedPod
from scheduler.cycle.reservations import Cause, EndOf, Owner, Reservation, ReservedRoom
from scheduler.kube.group_membership import GroupKey
from scheduler.pending.event_hints import of_leaving
from scheduler.queue.queue import Queue


def _never(_: AssignedPod, __: float) -> None:
    """Let no pod end by itself."""


class Reservations(ReservedRoom):
    """The current reservations, one for each owner; the end of one requeues the pods that its room can help."""

    def __init__(self, queue: Queue, end_of: EndOf = _never) -> None:
        super().__init__({}, {}, {}, end_of)
        self._queue = queue

    def __len__(self) -> int:
        return len(self._owner_of)

    def __iter__(self) -> Iterator[str]:
        return iter(self._owner_of)

    def on(self, node: str) -> list[AssignedPod]:
        """Return the pods that have reserved room on a node."""
        return [room for one in self.all() for room in one.rooms.values() if room.node == node]

    def all(self) -> list[Reservation]:
        """Return all reservations, those of spares last."""
        return [*self._by_owner.values(), *self._spares.values()]

    def put_spares(self, reservation: Reservation, now: float) -> None:
        """Keep room for the spares of a group, in place of the earlier room; without rooms, end that."""
        key = reservation.group
        assert key is not None, "only groups have spares"
        previous = self._spares.pop(key, None)
        if reservation.rooms:
            self._spares[key] = reservation
        for uid, room in previous.rooms.items() if previous is not None else ():
            if uid not in reservation.rooms or reservation.rooms[uid].node != room.node:
                self._queue.move_on_event(of_leaving(room), now)

    def groups(self) -> list[GroupKey]:
        """Return the groups that have reserved room."""
        return [owner for owner in self._by_owner if isinstance(owner, GroupKey)]

    def add(self, reservation: Reservation) -> None:
        """Reserve room for its owner, in place of the earlier room."""
        self._drop(reservation.owner)
        self._by_owner[reservation.owner] = reservation
        self._owner_of |= dict.fromkeys(reservation.rooms, reservation.owner)

    def put(self, reservation: Reservation, now: float) -> None:
        """Reserve room for its owner, in place of the earlier room; reject less important reservations on its nodes."""
        owner, rooms = reservation.owner, reservation.rooms
        for uid in rooms:
            if self._owner_of.get(uid, owner) != owner:
                self.delete(uid, now)
        previous = self._by_owner.get(owner)
        if previous is not None and (
            reservation.since > previous.since
            or any(uid not in rooms or rooms[uid].node != room.node for uid, room in previous.rooms.items())
        ):
            self.end(owner, now)
        self.add(reservation)
        priorities: dict[str, int] = {}
        for room in rooms.values():
            priorities[room.node] = max(room.priority, priorities.get(room.node, room.priority))
        # The room of one group is shared as its decision says, whatever its members' priorities.
        rivals = [one for one in self._by_owner.values() if one.owner != owner]
        for rival in rivals:
            if any(room.priority < priorities.get(room.node, room.priority) for room in rival.rooms.values()):
                self.reject(rival, now)

    def delete(self, uid: str, now: float) -> None:
        """End the reservation that has room for a pod, if there is one; others may take the room."""
        owner = self._owner_of.get(uid)
        if owner is not None:
            self.end(owner, now)

    def end(self, owner: Owner, now: float, cause: Cause | None = None) -> None:
        """End an owner's reservation, if it has one, and of this cause if given."""
        reservation = self._by_owner.get(owner)
        if reservation is None or cause not in (None, reservation.cause):
            return
        self._drop(owner)
        for room in reservation.rooms.values():
            self._queue.move_on_event(of_leaving(room), now)

    def _drop(self, owner: Owner) -> None:
        reservation = self._by_owner.pop(owner, None)
        for uid in reservation.rooms if reservation is not None else ():
            self._owner_of.pop(uid, None)

    def reject(self, reservation: Reservation, now: float) -> None:
        """End a reservation and requeue its owner, so that it is scheduled again."""
        self.end(reservation.owner, now)
        for uid in reservation.rooms:
            self._queue.requeue(uid)

    def delete_node(self, node: str, now: float) -> None:
        """Reject all reservations with room on a deleted node."""
        for reservation in list(self._by_owner.values()):
            if any(room.node == node for room in reservation.rooms.values()):
                self.reject(reservation, now)
        for reservation in list(self._spares.values()):
            rooms = {uid: room for uid, room in reservation.rooms.items() if room.node != node}
            if len(rooms) < len(reservation.rooms):
                self.put_spares(replace(reservation, rooms=rooms), now)

    def overdue(self, now: float) -> list[Reservation]:
        """Return the reservations that have waited too long for VFs."""
        return [one for one in self._by_owner.values() if one.vfs_by is not None and one.vfs_by <= now]

    def wait_no_more(self, reservation: Reservation) -> None:
        """Record that an owner waits for no VFs any more."""
        self.add(replace(reservation, vfs_by=None))

    def next_due(self) -> float | None:
        """Return when the first of them is overdue; None if none waits for VFs."""
        return min((one.vfs_by for one in self._by_owner.values() if one.vfs_by is not None), default=None)

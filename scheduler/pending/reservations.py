"""All reservations, and which pods to requeue when one ends. Pure.

Of single pods it is the same map as kube-scheduler's nominator.
"""

from dataclasses import replace

from scheduler.cache.assigned_pod import AssignedPod
from scheduler.cycle.reserved_room import Cause, EndOf, Owner, Reservation, ReservedRoom
from scheduler.kube.group import GroupKey
from scheduler.pending.event_hints import of_departure
from scheduler.queue.queue import Queue


class Reservations(ReservedRoom):
    """The current reservations; the end of one requeues the pods that its room can help."""

    def __init__(self, queue: Queue, end_of: EndOf = lambda _, __: None) -> None:
        super().__init__(end_of)
        self._queue = queue

    def on(self, node: str) -> list[AssignedPod]:
        """Return the pods that have reserved room on a node."""
        return [room for reservation in self.all() for room in reservation.rooms.values() if room.node == node]

    def groups(self) -> list[GroupKey]:
        """Return the groups whose members have reserved room."""
        return [owner for owner, is_spare in self._by_key if isinstance(owner, GroupKey) and not is_spare]

    def add(self, reservation: Reservation) -> None:
        """Reserve room for its owner, in place of the earlier room."""
        if (previous := self._by_key.get(reservation.key)) is not None:
            self.drop(previous)
        if reservation.rooms:
            self._by_key[reservation.key] = reservation
            self._by_uid |= dict.fromkeys(reservation.rooms, reservation)

    def put(self, reservation: Reservation, now: float) -> None:
        """Reserve room for its owner, in place of the earlier room; reject less important reservations on its nodes.

        Spares are not rejected: they keep room as long as nobody takes it.
        """
        rooms, previous = reservation.rooms, self._by_key.get(reservation.key)
        for uid in rooms:
            if (rival := self.of(uid)) is not None and rival.key != reservation.key:
                self._end(rival, now)
        if previous is not None and (
            reservation.since > previous.since
            or any(uid not in rooms or rooms[uid].node != room.node for uid, room in previous.rooms.items())
        ):
            self._end(previous, now)
        self.add(reservation)
        priorities: dict[str, int] = {}
        for room in rooms.values():
            priorities[room.node] = max(room.priority, priorities.get(room.node, room.priority))
        # The room of one group is shared as its decision says, whatever its members' priorities.
        for rival in self.all():
            is_less = any(room.priority < priorities.get(room.node, room.priority) for room in rival.rooms.values())
            if is_less and rival.owner != reservation.owner and rival.cause != "spare":
                self.reject(rival, now)

    def delete(self, uid: str, now: float) -> None:
        """End the reservation that has room for a pod, if there is one; others may take the room."""
        if (reservation := self.of(uid)) is not None:
            self._end(reservation, now)

    def end(self, owner: Owner, now: float, cause: Cause | None = None) -> None:
        """End an owner's reservation, if it has one, and of this cause if given."""
        reservation = self._by_key.get((owner, cause == "spare"))
        if reservation is not None and cause in (None, reservation.cause):
            self._end(reservation, now)

    def _end(self, reservation: Reservation, now: float) -> None:
        self.drop(reservation)
        for room in reservation.rooms.values():
            self._queue.move_on_event(of_departure(room), now)

    def reject(self, reservation: Reservation, now: float) -> None:
        """End a reservation and requeue its owner, so that it is scheduled again."""
        self._end(reservation, now)
        for uid in reservation.rooms:
            self._queue.requeue(uid)

    def delete_node(self, node: str, now: float) -> None:
        """Reject all reservations with room on a deleted node; other spares stay."""
        for reservation in self.all():
            rooms = {uid: room for uid, room in reservation.rooms.items() if room.node != node}
            if len(rooms) == len(reservation.rooms):
                continue
            if reservation.cause == "spare":
                self.put(replace(reservation, rooms=rooms), now)
            else:
                self.reject(reservation, now)

    def overdue(self, now: float) -> list[Reservation]:
        """Return those that have waited too long for VFs."""
        return [
            reservation for reservation in self.all() if reservation.vfs_by is not None and reservation.vfs_by <= now
        ]

    def end_vf_wait(self, reservation: Reservation) -> None:
        """Record that an owner waits for no VFs any more."""
        self.add(replace(reservation, vfs_by=None))

    def next_due(self) -> float | None:
        """Return when the first of them is overdue; None if none waits for VFs."""
        times = [reservation.vfs_by for reservation in self.all() if reservation.vfs_by is not None]
        return min(times, default=None)

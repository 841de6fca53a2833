"""Room for further members of groups that run (``spares`` of the group): kept until no member is left. Pure.

Each decision that places members of such a group also places spare members, on the group's domain and rails; these stay
a reservation. The Binding of the first member records them. A new leader, and a standby, read the newest record of each
group. A spare on a node that is deleted is placed again with the next decision about the group.
"""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field, replace

from mooring import names
from mooring.annotations.assignment import Assignment
from mooring.annotations.spares import dump_spares, read_spares
from mooring.errors import AnnotationError
from scheduler.cache.assigned_pod import AssignedPod
from scheduler.cycle.decisions import Bind, with_annotation
from scheduler.cycle.groups.members import is_spare
from scheduler.cycle.instructions import Instruction, Notice
from scheduler.cycle.reservations import reserve
from scheduler.kube.group_membership import GroupKey, membership_if_readable
from scheduler.pending.part import Part, PodChange
from scheduler.state.shared_state import SharedState

# Later than each time of the API server.
_NOW = "~"


@dataclass(slots=True)
class Spares(Part):
    """The records of spares by group: when the member was bound that has it, and its uid."""

    state: SharedState
    _records: dict[GroupKey, tuple[str, str]] = field(default_factory=dict)

    def keep(
        self, key: GroupKey, binds: Sequence[Bind], rooms: Sequence[AssignedPod], priority: int, now: float
    ) -> tuple[Bind, ...]:
        """Keep the room of spares that a decision has placed; return the Binds, the first with the record."""
        self.state.reservations.put_spares(
            reserve(key, (replace(room, priority=priority) for room in rooms), "spare"), now
        )
        first, *others = binds
        self._records[key] = _NOW, first.pod_info.uid
        assignments = (room.assignment or Assignment(room.uid, room.node, ()) for room in rooms)
        return (with_annotation(first, names.SPARES, dump_spares(assignments)), *others)

    def pod_assigned(self, change: PodChange, now: float) -> Iterable[Instruction]:
        if names.SPARES not in change.pod.annotations or change.pod.metadata.deletion_timestamp is not None:
            return ()
        uid, pod = change.assigned.uid, change.pod
        membership = membership_if_readable(pod)
        asked = membership.asked.spares if membership is not None else None
        if membership is not None and self._records.get(membership.key, ("", ""))[1] == uid:
            self._shrink(membership.key, asked or 0, now)
            return ()
        if membership is None or not asked:
            return ()
        condition = pod.condition("PodScheduled")
        record = (condition.last_transition_time or "" if condition is not None else "", uid)
        known = self._records.get(membership.key)
        if known is not None and known >= record:
            return ()
        try:
            assignments = read_spares(pod.annotations)[:asked]
        except AnnotationError as unreadable:
            fields = {"pod": pod.key, "reason": str(unreadable)}
            return [Notice("assignment", "invalid spares ignored", fields)]
        self._records[membership.key] = record
        vf_count = len(change.assigned.assignment.vfs) if change.assigned.assignment is not None else 0
        rooms = [
            replace(change.assigned, uid=one.uid, node=one.node, assignment=one, reservation=None, annotation="")
            for one in assignments
            if len(one.vfs) == vf_count and is_spare(one.uid)
        ]
        self.state.reservations.put_spares(reserve(membership.key, rooms, "spare"), now)
        return ()

    def _shrink(self, key: GroupKey, count: int, now: float) -> None:
        """Release room if the annotation of the member with the record asks for less."""
        for reservation in self.state.reservations.all():
            if reservation.cause == "spare" and reservation.owner == key and len(reservation.rooms) > count:
                rooms = list(reservation.rooms.values())[:count]
                self.state.reservations.put_spares(reserve(key, rooms, "spare"), now)

    def tick(self, now: float) -> Iterable[Instruction]:
        for key in list(self._records):
            members = self.state.groups_by_pod.get(key)
            if members is None or not members.counts["placed"]:
                self.state.reservations.put_spares(reserve(key, (), "spare"), now)
                self._records.pop(key, None)
        return ()

"""Room for further members of groups that run (``spares`` of the group): kept until no member is left. Pure.

Each decision that places members of such a group also places spare members, on the group's domain and rails; these stay
a reservation. The Binding of each member records them, so that the record is lost only with the last one. A new leader,
and a standby, read the newest record of each group, and of those that name one VF the newest. A spare whose node is
deleted, or whose VFs a pod of a higher priority takes, is placed again with the next decision about the group.
"""

from collections.abc import Iterable, Set
from dataclasses import dataclass, field, replace

from mooring import names
from mooring.annotations.assignment import Assignment
from mooring.annotations.spares import dump_spares, read_spares
from mooring.errors import AnnotationError
from scheduler.cache.assigned_pod import AssignedPod
from scheduler.cycle.decisions import Bind, GroupPlacement, with_annotation
from scheduler.cycle.groups.group_demand import GroupDemand, is_spare
from scheduler.cycle.instructions import Instruction, Notice
from scheduler.cycle.reserved_room import Reservation, rooms_of
from scheduler.kube.group import GroupKey, membership_if_readable
from scheduler.pending.part import Part, PodChange
from scheduler.state.shared_state import SharedState

# Later than each time of the API server.
_NOW = "~"
_CHECK_S = 1.0


@dataclass(slots=True)
class Spares(Part):
    """When the record of each group's spares was written."""

    state: SharedState
    _times: dict[GroupKey, str] = field(default_factory=dict)
    _next_check: float = 0.0

    def keep(self, demand: GroupDemand, placement: GroupPlacement, now: float) -> tuple[Bind, ...]:
        """Keep the room of spares that a decision has placed, or an earlier one; return the Binds with the record."""
        key, rooms = demand.group.key, placement.spares
        if not demand.group.spares:
            return placement.binds
        if not demand.spares and (reservation := self.state.reservations.spares_of(key)) is not None:
            rooms = tuple(reservation.rooms.values())
        self._put(key, (replace(room, priority=demand.priority) for room in rooms), now)
        self._times[key] = _NOW
        record = dump_spares(room.assignment or Assignment(room.uid, room.node, ()) for room in rooms)
        return tuple(with_annotation(bind, names.SPARES, record) for bind in placement.binds)

    def pod_assigned(self, change: PodChange, now: float) -> Iterable[Instruction]:
        pod, assigned_pod = change.pod, change.assigned_pod
        is_bearer = names.SPARES in pod.annotations and pod.metadata.deletion_timestamp is None
        membership = membership_if_readable(pod) if is_bearer else None
        condition = pod.condition("PodScheduled")
        time = (condition.last_transition_time or "") if condition is not None else ""
        if membership is None or (membership.key in self._times and time <= self._times[membership.key]):
            return ()
        try:
            assignments = read_spares(pod.annotations)[: membership.request.spares or 0]
        except AnnotationError as error:
            return [Notice("assignment", "invalid spares ignored", {"pod": pod.key, "reason": str(error)})]
        # Spares are as large as the largest members, which have the same record.
        if all(len(spare.vfs) == assigned_pod.vf_count for spare in assignments):
            self._times[membership.key] = time
            rooms = (
                replace(assigned_pod, uid=spare.uid, node=spare.node, assignment=spare, claim_assignment=None)
                for spare in assignments
                if is_spare(spare.uid)
            )
            self._put(membership.key, rooms, now)
        return ()

    def _put(self, key: GroupKey, rooms: Iterable[AssignedPod], now: float) -> None:
        self.state.reservations.put(Reservation(key, rooms_of(rooms), "spare"), now)

    def pod_deleted(self, uid: str, assigned_pod: AssignedPod | None, now: float) -> None:
        # A standby has no ticks, and would keep the room of every group that it has seen.
        self.tick(now)

    def tick(self, now: float) -> Iterable[Instruction]:
        if now < self._next_check:
            return ()
        self._next_check = now + _CHECK_S
        vfs = set[tuple[str, str]]()
        for key in sorted(self._times, key=self._times.__getitem__, reverse=True):
            members, reservation = self.state.group_cache.get(key), self.state.reservations.spares_of(key)
            if members is None or not members.count("placed"):
                del self._times[key]
                self._put(key, (), now)
            elif reservation is not None:
                # Members may ask for less by now.
                memberships = filter(None, map(self.state.group_cache.of, members.of("placed")))
                limit = max(membership.request.spares or 0 for membership in memberships)
                rooms = [room for room in reservation.rooms.values() if not self._has_lost_vf(room, vfs)][:limit]
                self._put(key, rooms, now)
                vfs.update(vf for room in rooms for vf in _vfs(room))
        return ()

    def next_due(self) -> float | None:
        return self._next_check if self._times else None

    def _has_lost_vf(self, room: AssignedPod, vfs: Set[tuple[str, str]]) -> bool:
        """Return whether another group has a VF of a spare by a newer record, or a pod has one."""
        claim = room.claim if self.state.cache.node(room.node) is not None else None
        is_taken = claim is not None and self.state.cache.vf_accounting(room.node).is_taken(claim)
        return is_taken or not vfs.isdisjoint(_vfs(room))


def _vfs(room: AssignedPod) -> list[tuple[str, str]]:
    return [(room.node, vf.pci) for vf in room.assignment.vfs] if room.assignment is not None else []

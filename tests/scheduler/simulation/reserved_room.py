"""What must hold of a leader's reservations after each step, with a few seconds for what it does at intervals."""

import math
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any

from scheduler.cycle.reserved_room import Reservation
from scheduler.kube.group import GroupKey
from scheduler.kube.pod_info import run_time_of
from scheduler.pending.groups.promises import Promise
from scheduler.state.machine import Machine

# A leader looks at spares each second, and its decisions take their turns.
_GRACE_S = 5.0
# A promise that is later by less is the same.
_SAME_S = 1.0


@dataclass
class ReservedRooms:
    """Since when each leader's reservations are wrong, and whether any spares or promises ever had room."""

    since: dict[tuple[str, str], float] = field(default_factory=dict)
    has_spares: bool = False
    has_promises: bool = False
    # When each preempting owner's room was first seen.
    _begins: dict[str, float] = field(default_factory=dict)
    # By leader and group, one step ago: spares with the placed members, and a promise with the nodes it began with.
    _spares: dict[tuple[str, GroupKey], tuple[Reservation, set[str]]] = field(default_factory=dict)
    _promises: dict[tuple[str, GroupKey], tuple[Promise, Mapping[str, Any]]] = field(default_factory=dict)

    def check(self, process: str, machine: Machine) -> None:
        """Raise AssertionError if room is reserved twice, has outlived its owner, or is lost without a cause."""
        reservations, now = machine.reservations.all(), machine.reservations.now
        if not now:
            # Before its first tick a leader has what it read while it stood by.
            return
        names = {f"{process} {_name(one)}": one for one in reservations if one.cause == "victims"}
        self._begins = {name: self._begins.get(name, now) for name in names}
        begins = {_name(one): self._begins[name] for name, one in names.items()}
        twice = list(_twice(reservations, machine, begins))
        assert not twice, f"{process}: {twice}"
        spares = [one for one in reservations if one.cause == "spare"]
        self.has_spares |= bool(spares)
        wrongs = {(process, wrong) for one in spares for wrong in _wrongs(one, machine)}
        self.since = {wrong: self.since.get(wrong, now) for wrong in wrongs}
        late = [wrong for wrong, since in self.since.items() if now - since > _GRACE_S]
        assert not late, late
        self._check_losses(process, machine, spares)
        self._check_promises(process, machine)

    def _check_losses(self, process: str, machine: Machine, spares: list[Reservation]) -> None:
        """Check that no room of spares is lost while its group runs, unless somebody has it."""
        for (name, key), (before, members) in list(self._spares.items()):
            placed, kept = machine.group_cache.placed(key), machine.reservations.spares_of(key)
            if name == process and placed and members.issuperset(placed):
                rooms = kept.rooms if kept is not None else {}
                lost = [uid for uid in before.rooms.keys() - rooms if not _is_taken(before, uid, machine)]
                assert not lost, f"{process}: room is lost for {lost}"
        self._spares = {
            (process, one.group): (one, set(machine.group_cache.placed(one.group))) for one in spares if one.group
        }

    def _check_promises(self, process: str, machine: Machine) -> None:
        """Check that a promise moves to a later time only with a cause, and that nodes are none while all are equal."""
        promises, cache = machine.group_scheduling.backfill._promises, machine.cache
        nodes, befores = {name: cache.node(name) for name in cache.node_names()}, self._promises
        self._promises = {}
        self.has_promises |= bool(promises)
        for key, promise in promises.items():
            before, old_nodes = befores.get((process, key), (promise, nodes))
            is_later, is_vague = promise.at > before.at + _SAME_S, promise.cause in ("", "nodes have changed")
            assert not (is_later and is_vague and nodes == old_nodes), f"{process}: {before} moves to {promise}"
            is_same = abs(promise.at - before.at) <= _SAME_S
            self._promises[process, key] = promise, old_nodes if is_same else nodes


def _is_taken(spares: Reservation, uid: str, machine: Machine) -> bool:
    """Return whether a spare's node is gone, it has other room, or somebody has a VF of it."""
    room, others = spares.rooms[uid], [one for one in machine.reservations.all() if one.key != spares.key]
    if machine.cache.node(room.node) is None or any(uid in one.rooms for one in others):
        return True
    rooms = [room for one in others for room in one.rooms.values()]
    holders = [*machine.cache.assigned_pods_on(room.node), *(one for one in rooms if one.node == room.node)]
    held = {vf.pci for one in holders if one.assignment is not None for vf in one.assignment.vfs}
    return room.assignment is not None and not held.isdisjoint(vf.pci for vf in room.assignment.vfs)


def nodes_of_spares(machine: Machine) -> set[str]:
    return {room.node for one in machine.reservations.all() if one.cause == "spare" for room in one.rooms.values()}


def _twice(reservations: list[Reservation], machine: Machine, begins: Mapping[str, float]) -> Iterator[str]:
    """Yield VFs that are reserved for two owners of one priority at one time: spares are gone when a promise begins.

    A group's members may wait for the room of its own spares.
    """
    starts = [one.since for one in reservations if one.cause == "backfill"]
    first_start = min(starts, default=0.0)
    owners = dict[tuple[str, str, int], Reservation]()
    for one in reservations:
        if one.cause == "victims" and begins[_name(one)] + _runs_s(one, machine) <= first_start:
            # It may use promised room before; if its victims are late, it is decided about again when they are gone.
            continue
        for room in one.rooms.values():
            for vf in room.assignment.vfs if room.assignment is not None else ():
                other = owners.setdefault((room.node, vf.pci, room.priority), one)
                first, second = sorted((one, other), key=lambda promise: promise.since)
                is_over = first.until is not None and first.until <= second.since
                is_own = other is one or (one.group is not None and one.group == other.group)
                if not is_over and not is_own and {one.cause, other.cause} != {"spare", "backfill"}:
                    yield f"{vf.pci} of {room.node} is reserved for {other.key} and {one.key}"


def _name(reservation: Reservation) -> str:
    return f"{reservation.key} {sorted(reservation.rooms)}"


def _runs_s(reservation: Reservation, machine: Machine) -> float:
    """Return how long the pods of a reservation run at most."""
    waiting = [machine.pending_pods.get(uid) for uid in reservation.rooms]
    pods = [one.pod for one in waiting if one is not None]
    runs = [run_time_of(pod, machine.group_cache.of(pod.metadata.uid)) for pod in pods]
    return max((math.inf if run_s is None else run_s for run_s in runs), default=math.inf)


def _wrongs(spares: Reservation, machine: Machine) -> Iterator[str]:
    key = spares.group
    members = machine.group_cache.get(key) if key is not None else None
    if members is None or not members.count("placed"):
        yield f"spares of {spares.owner} outlive it"
    taken = {(pod.node, vf.pci) for pod in machine.cache.assigned_pods() if pod.assignment for vf in pod.assignment.vfs}
    for room in spares.rooms.values():
        for vf in room.assignment.vfs if room.assignment is not None else ():
            if (room.node, vf.pci) in taken:
                yield f"{vf.pci} of {room.node} is reserved for a spare of {spares.owner} and used"

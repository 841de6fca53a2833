"""Find the earliest start of a group that declared ends of running pods allow (EASY backfill). Pure.

The group is placed on private snapshots in virtual time, from which the pods that end by then are gone. Fewer pods
never leave less room, so the earliest time is found by bisection. Room that is promised already is tried first, on its
nodes: what was promised stays if it still holds and no earlier start is found.
"""

from bisect import bisect_left
from dataclasses import dataclass, field

from scheduler.cache.assigned_pod import AssignedPod
from scheduler.cache.groups.group_cache import GroupCache
from scheduler.cycle.groups.domains import Target
from scheduler.cycle.groups.group_budget import GroupBudget, Turns
from scheduler.cycle.groups.group_cycle import place_group
from scheduler.cycle.groups.group_demand import GroupDemand
from scheduler.cycle.groups.group_snapshot import GroupSnapshot, LiveCluster
from scheduler.cycle.reservations import EndOf, Reservation

# Enough for the bisection of 65,536 times.
_MOST_PROBES = 17
_MOST_ROUNDS = 3
# Pods read between two checks whether the turn is over.
_POD_PORTION = 1024


@dataclass(frozen=True, slots=True)
class Start:
    """When and where a group starts; ``domain`` is the domain's text, ``last_pod`` the last pod that ends for it."""

    at: float
    rooms: tuple[AssignedPod, ...]
    domain: str = ""
    last_pod: AssignedPod | None = None


@dataclass(slots=True)
class EarliestStart:
    """One search; ``end_of`` returns when a pod is expected to end, at the earliest now."""

    live: LiveCluster
    end_of: EndOf
    group_cache: GroupCache
    demand: GroupDemand
    budget: GroupBudget
    # The pods that end, with the time.
    _ends: list[tuple[float, AssignedPod]] = field(default_factory=list)

    def run(self, now: float, promise: Reservation | None, *, seeks_earlier: bool) -> Turns[Start | None]:
        """Return the earliest start; None if no declared end makes room.

        Without ``seeks_earlier``, a ``promise`` that still holds is returned. Nodes may change in each round: the
        caller reviews the start when they have changed.
        """
        start, nodes = None, self.live.cache.nodes
        for _ in range(_MOST_ROUNDS):
            begin = nodes.changes.end
            yield from self._read_ends(now)
            start = yield from self._search(now, promise, seeks_earlier=seeks_earlier)
            changed_nodes = {nodes.names[row] for row in nodes.changes.since(begin) if row < len(nodes.names)}
            if start is None or changed_nodes.isdisjoint(room.node for room in start.rooms):
                break
        return start

    def _read_ends(self, now: float) -> Turns[None]:
        self._ends = []
        for number, assigned_pod in enumerate(list(self.live.cache.assigned_pods()), 1):
            if (end := self.end_of(assigned_pod, now)) is not None:
                self._ends.append((end, assigned_pod))
            if number % _POD_PORTION == 0:
                self.budget.charge_column(_POD_PORTION)
                yield from self.budget.pause()

    def _search(self, now: float, promise: Reservation | None, *, seeks_earlier: bool) -> Turns[Start | None]:
        reservations = self.live.reserved.all()
        untils = {room.until for room in reservations if room.until is not None and room.until > now}
        times = sorted({end for end, _ in self._ends} | untils)
        best: Start | None = None
        if promise is not None and promise.since > 0.0:
            at = max(promise.since, now)
            best = yield from self.start_at(at, promise)
            if best is not None and not seeks_earlier:
                return best
            times = times[: bisect_left(times, at)] if best is not None else times
        if best is None:
            best = (yield from self.start_at(times[-1])) if times else None
            if best is None:
                return None
        low, high = 0, bisect_left(times, best.at)
        for _ in range(_MOST_PROBES):
            if low >= high:
                break
            middle = (low + high) // 2
            start = yield from self.start_at(times[middle])
            if start is None:
                low = middle + 1
            else:
                best, high = start, middle
        return best

    def start_at(self, at: float, promise: Reservation | None = None) -> Turns[Start | None]:
        """Place the group at a time, on the promised nodes if given; None if too few members fit."""
        domain = ""
        self.budget.renew_placement()
        snapshot = GroupSnapshot(self.live, self.demand, self.budget)
        snapshot.reserved.advance(at)
        past_ends = [(end, pod) for end, pod in self._ends if end <= at]
        yield from self.budget.move_all(snapshot.remove, [pod for _, pod in past_ends])
        self._end_spares(snapshot, frozenset(pod.uid for _, pod in past_ends))
        if promise is not None:
            yield from _put_on_nodes(snapshot, promise)
            if len(snapshot.binds) < self.demand.min_members:
                return None
        else:
            outcome = yield from place_group(snapshot)
            if not isinstance(outcome, Target):
                return None
            domain = outcome.domain.text
        rooms = tuple(bind.assigned for bind in snapshot.binds.values())
        nodes = {room.node for room in rooms}
        own_ends = [(end, pod.pod, pod) for end, pod in past_ends if pod.node in nodes]
        last_pod = max(own_ends, key=lambda end: end[:2])[2] if own_ends else None
        return Start(at, rooms, domain, last_pod)

    def _end_spares(self, snapshot: GroupSnapshot, uids: frozenset[str]) -> None:
        """Release the room of spares whose groups have ended when the pods ``uids`` have."""
        for reservation in snapshot.reserved.all():
            key = reservation.group
            members = self.group_cache.get(key) if key is not None else None
            if reservation.cause == "spare" and (members is None or uids.issuperset(members.of("placed"))):
                snapshot.reserved.drop(reservation)


def _put_on_nodes(snapshot: GroupSnapshot, promise: Reservation) -> Turns[None]:
    """Put members on their promised nodes, as many as still fit there; a member that was made again gets a free one."""
    members = snapshot.demand.members
    uids = {member.uid for member in members}
    free_rooms = iter([room for uid, room in promise.rooms.items() if uid not in uids])
    for member in members:
        room = promise.rooms.get(member.uid) or next(free_rooms, None)
        if room is not None:
            yield from snapshot.place_on(member, room.node)

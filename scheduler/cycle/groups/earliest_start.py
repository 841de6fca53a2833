"""Find the earliest start of a group that declared ends of running pods allow (EASY backfill). Pure.

Method: the group is placed on private snapshots in virtual time. At each time the pods that end by then are gone. Fewer
pods never leave less room, so the earliest time is found by bisection. Room that is promised already is tried first, on
its nodes: what was promised stays if it still holds and no earlier start is found.

Cost: a placement of the group for each time that is tried, at most `_MOST_PROBES`. The search runs in turns, as the
decision does.
"""

from bisect import bisect_left
from collections.abc import Sequence, Set
from dataclasses import dataclass

from scheduler.cache.assigned_pod import AssignedPod
from scheduler.cache.groups.group_cache import GroupCache
from scheduler.cycle.decisions import Bind
from scheduler.cycle.groups.domains import Target
from scheduler.cycle.groups.group_budget import GroupBudget, Turns
from scheduler.cycle.groups.group_cycle import place_group
from scheduler.cycle.groups.group_demand import GroupDemand
from scheduler.cycle.groups.group_snapshot import GroupSnapshot, LiveCluster
from scheduler.cycle.refusals import Among
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


@dataclass(frozen=True, slots=True)
class EarliestStart:
    """Searches on snapshots; ``end_of`` returns when a pod is expected to end, at the earliest now."""

    live: LiveCluster
    end_of: EndOf
    group_cache: GroupCache

    def search(
        self,
        demand: GroupDemand,
        budget: GroupBudget,
        now: float,
        promise: Reservation | None,
        *,
        seeks_earlier: bool = True,
    ) -> Turns[Start | None]:
        """Return the earliest start; None if no declared end makes room.

        Without ``seeks_earlier``, a ``promise`` that still holds is returned.
        If its nodes change in each round, the last start is returned: the caller reviews it when nodes have changed.
        """
        start, nodes = None, self.live.cache.nodes
        for _ in range(_MOST_ROUNDS):
            begin = nodes.changes.end
            ends = yield from self._ends(budget, now)
            search = StartSearch(self, demand, budget, ends)
            start = yield from search.run(now, promise, seeks_earlier=seeks_earlier)
            changed_nodes = {nodes.names[row] for row in nodes.changes.since(begin) if row < len(nodes.names)}
            if start is None or changed_nodes.isdisjoint(room.node for room in start.rooms):
                break
        return start

    def _ends(self, budget: GroupBudget, now: float) -> Turns[list[tuple[float, AssignedPod]]]:
        """Return the pods that end, with the time."""
        ends = list[tuple[float, AssignedPod]]()
        for number, assigned_pod in enumerate(list(self.live.cache.assigned_pods()), 1):
            if (end := self.end_of(assigned_pod, now)) is not None:
                ends.append((end, assigned_pod))
            if number % _POD_PORTION == 0:
                budget.charge_column(_POD_PORTION)
                yield from budget.pause()
        return ends


@dataclass(frozen=True, slots=True)
class StartSearch:
    """One search for the earliest start, with the ``ends`` of pods."""

    earliest_start: EarliestStart
    demand: GroupDemand
    budget: GroupBudget
    ends: Sequence[tuple[float, AssignedPod]]

    def run(self, now: float, promise: Reservation | None, *, seeks_earlier: bool) -> Turns[Start | None]:
        reservations = self.earliest_start.live.reserved.all()
        untils = {room.until for room in reservations if room.until is not None and room.until > now}
        times = sorted({end for end, _ in self.ends} | untils)
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
        demand, domain = self.demand, ""
        self.budget.renew_placement()
        snapshot = GroupSnapshot(self.earliest_start.live, demand, self.budget)
        snapshot.reserved.advance(at)
        past_ends = [(end, assigned_pod) for end, assigned_pod in self.ends if end <= at]
        yield from self.budget.move_all(snapshot.remove, [assigned_pod for _, assigned_pod in past_ends])
        self._end_spares(snapshot, frozenset(assigned_pod.uid for _, assigned_pod in past_ends))
        if promise is not None:
            yield from _put_on_nodes(snapshot, promise)
            if len(snapshot.binds) < demand.min_members:
                return None
        else:
            outcome = yield from place_group(snapshot)
            if not isinstance(outcome, Target):
                return None
            domain = outcome.domain.text
        rooms = tuple(bind.assigned for bind in snapshot.binds.values())
        return Start(at, rooms, domain, _last_pod(past_ends, {room.node for room in rooms}))

    def _end_spares(self, snapshot: GroupSnapshot, ended_uids: frozenset[str]) -> None:
        """Release the room of spares whose groups have ended."""
        for reservation in snapshot.reserved.all():
            key = reservation.group
            members = self.earliest_start.group_cache.get(key) if key is not None else None
            if reservation.cause == "spare" and (members is None or ended_uids.issuperset(members.of("placed"))):
                snapshot.reserved.drop(reservation)


def _put_on_nodes(snapshot: GroupSnapshot, promise: Reservation) -> Turns[None]:
    """Put members on their promised nodes, as many as still fit there; a member that was made again gets a free one."""
    demand, nodes = snapshot.demand, snapshot.nodes
    uids = {member.uid for member in demand.members}
    free_rooms = iter([room for uid, room in promise.rooms.items() if uid not in uids])
    for member in demand.members:
        room = promise.rooms.get(member.uid) or next(free_rooms, None)
        row = nodes.row_of.get(room.node) if room is not None else None
        if row is None:
            continue
        decision = yield from snapshot.place_member(member, Among(nodes.flags([row])))
        if isinstance(decision, Bind):
            snapshot.put_on(decision)


def _last_pod(ends: Sequence[tuple[float, AssignedPod]], nodes: Set[str]) -> AssignedPod | None:
    """Return the pod on these nodes that ends last."""
    ends_there = [(end, assigned_pod.pod, assigned_pod) for end, assigned_pod in ends if assigned_pod.node in nodes]
    return max(ends_there, key=lambda end: end[:2])[2] if ends_there else None

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
from scheduler.cache.cache import Cache
from scheduler.cache.groups.group_cache import GroupCache
from scheduler.cycle.cycle import SchedulingCycle
from scheduler.cycle.decisions import Bind
from scheduler.cycle.groups.group_budget import GroupBudget, Turns
from scheduler.cycle.groups.group_demand import GroupDemand
from scheduler.cycle.groups.group_placement import DomainPlacement, place_group, place_member
from scheduler.cycle.groups.group_snapshot import GroupSnapshot
from scheduler.cycle.refusals import Among
from scheduler.cycle.reservations import EndOf, Reservation, ReservedRoom

# Enough for the bisection of 65,536 times.
_MOST_PROBES = 17
_MOST_ROUNDS = 3
# Pods read between two checks whether the turn is over.
_PODS_AT_ONCE = 1024


@dataclass(frozen=True, slots=True)
class Start:
    """When and where a group starts; ``domain`` is the domain's text, and ``after`` the last pod that ends for it."""

    at: float
    rooms: tuple[AssignedPod, ...]
    domain: str = ""
    after: AssignedPod | None = None


class EarliestStart:
    """Searches on snapshots; ``end_of`` returns when a pod is expected to end, at the earliest now."""

    def __init__(
        self,
        cache: Cache,
        cycle: SchedulingCycle,
        reserved: ReservedRoom,
        end_of: EndOf,
        group_cache: GroupCache,
    ) -> None:
        self._cache, self._cycle, self._reserved, self._end_of = cache, cycle, reserved, end_of
        self._group_cache = group_cache

    def search(
        self,
        demand: GroupDemand,
        budget: GroupBudget,
        now: float,
        promised: Reservation | None,
        *,
        seeks_earlier: bool = True,
    ) -> Turns[Start | None]:
        """Return the earliest start; None if no declared end makes room.

        Without ``seeks_earlier``, a promise that still holds is returned.
        If its nodes change in each round, the last start is returned: the caller reviews it when nodes have changed.
        """
        start = None
        for _ in range(_MOST_ROUNDS):
            begin_changes = self._cache.nodes.changes.end
            start = yield from self._search(demand, budget, now, promised, seeks_earlier=seeks_earlier)
            changes = self._cache.nodes.changes.since(begin_changes)
            names = self._cache.nodes.names
            changed_nodes = {names[row] for row in changes if row < len(names)}
            if start is None or changed_nodes.isdisjoint(room.node for room in start.rooms):
                break
        return start

    def _search(
        self,
        demand: GroupDemand,
        budget: GroupBudget,
        now: float,
        promised: Reservation | None,
        *,
        seeks_earlier: bool,
    ) -> Turns[Start | None]:
        ends = yield from self._ends(budget, now)
        untils = {one.until for one in self._reserved.all() if one.until is not None and one.until > now}
        times = sorted({end for end, _ in ends} | untils)
        best: Start | None = None
        if promised is not None and promised.since > 0.0:
            at = max(promised.since, now)
            best = yield from self._at(demand, budget, ends, at, promised)
            if best is not None and not seeks_earlier:
                return best
            times = times[: bisect_left(times, at)] if best is not None else times
        if best is None:
            best = (yield from self._at(demand, budget, ends, times[-1])) if times else None
            if best is None:
                return None
        low, high = 0, bisect_left(times, best.at)
        for _ in range(_MOST_PROBES):
            if low >= high:
                break
            middle = (low + high) // 2
            start = yield from self._at(demand, budget, ends, times[middle])
            if start is None:
                low = middle + 1
            else:
                best, high = start, middle
        return best

    def _ends(self, budget: GroupBudget, now: float) -> Turns[list[tuple[float, AssignedPod]]]:
        """Return the pods that end, with the time."""
        ends = list[tuple[float, AssignedPod]]()
        for number, assigned_pod in enumerate(list(self._cache.assigned_pods()), 1):
            if (end := self._end_of(assigned_pod, now)) is not None:
                ends.append((end, assigned_pod))
            if number % _PODS_AT_ONCE == 0:
                budget.charge_column(_PODS_AT_ONCE)
                if budget.turn_is_over:
                    yield
        return ends

    def _at(
        self,
        demand: GroupDemand,
        budget: GroupBudget,
        ends: Sequence[tuple[float, AssignedPod]],
        at: float,
        promised: Reservation | None = None,
    ) -> Turns[Start | None]:
        """Place the group at a time, on the promised nodes if given; None if too few members fit."""
        budget.renew_placement()
        snapshot = GroupSnapshot(demand, self._cache, self._cycle, self._reserved)
        snapshot.reserved.advance(at)
        gone = [(end, assigned_pod) for end, assigned_pod in ends if end <= at]
        yield from budget.move_all(snapshot.remove, [assigned_pod for _, assigned_pod in gone])
        self._end_spares(snapshot, frozenset(assigned_pod.uid for _, assigned_pod in gone))
        if promised is not None:
            domain = ""
            yield from _put_on_nodes(snapshot, demand, budget, promised)
            if len(snapshot.binds) < demand.min_members:
                return None
        else:
            outcome = yield from place_group(snapshot, demand, budget)
            if not isinstance(outcome, DomainPlacement):
                return None
            domain = outcome.target.domain.text
        binds = tuple(snapshot.binds.values())
        nodes = {bind.assigned.node for bind in binds}
        return Start(at, tuple(bind.assigned for bind in binds), domain, _last_of(gone, nodes))

    def _end_spares(self, snapshot: GroupSnapshot, gone_uids: frozenset[str]) -> None:
        """Release the room of spares whose groups have ended."""
        for reservation in snapshot.reserved.all():
            key = reservation.group
            members = self._group_cache.get(key) if key is not None else None
            if reservation.cause == "spare" and (members is None or gone_uids.issuperset(members.of("placed"))):
                snapshot.reserved.drop(reservation)


def _put_on_nodes(
    snapshot: GroupSnapshot, demand: GroupDemand, budget: GroupBudget, promised: Reservation
) -> Turns[None]:
    """Put members on their promised nodes, as many as still fit there; a member that was made again gets a free one."""
    nodes, uids = snapshot.cache.nodes, {member.uid for member in demand.members}
    free_rooms = iter([room for uid, room in promised.rooms.items() if uid not in uids])
    for member in demand.members:
        room = promised.rooms.get(member.uid) or next(free_rooms, None)
        row = nodes.row_of.get(room.node) if room is not None else None
        if row is None:
            continue
        decision = yield from place_member(snapshot, member, Among(nodes.flags([row])), budget)
        if isinstance(decision, Bind):
            snapshot.put_on(decision)


def _last_of(gone: Sequence[tuple[float, AssignedPod]], nodes: Set[str]) -> AssignedPod | None:
    """Return the pod on these nodes that ends last."""
    there = [(end, assigned_pod.pod, assigned_pod) for end, assigned_pod in gone if assigned_pod.node in nodes]
    return max(there, key=lambda one: one[:2])[2] if there else None

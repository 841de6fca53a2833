"""The promised start of the first group (`--backfill`): reserve its room from then on, and say when and why. Pure.

The earliest start is the first time for which the group can be placed on a snapshot without the pods whose declared
ends have passed by then (EASY backfill). Fewer pods never leave less room, so it is found by bisection. Room that is
promised already is tried first, on its nodes: what was promised stays if it still holds and no earlier start is found.

A promise moves to a later time only if a node is lost, a pod runs longer than it declared, or a pod of a higher
priority takes the room; the message names the cause.
"""

from bisect import bisect_left
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field, replace

from scheduler.cache.assigned_pod import AssignedPod
from scheduler.cycle.cycle import SchedulingCycle
from scheduler.cycle.groups.domains import Target
from scheduler.cycle.groups.group_cycle import place_group
from scheduler.cycle.groups.group_demand import GroupDemand
from scheduler.cycle.groups.group_snapshot import GroupBudget, GroupSnapshot, Turns
from scheduler.cycle.instructions import Instruction
from scheduler.cycle.reserved_room import Reservation
from scheduler.kube.group import GroupKey
from scheduler.pending.groups.promises import NO_START, Promise, read_promise, rfc3339, some_nodes
from scheduler.pending.part import Part
from scheduler.state.shared_state import SharedState

# Seconds between two reviews, searches for an overdue start, and for an earlier one. A search adds a millisecond for
# each node, so that searches take a small part of the time however many pods leave.
_REVIEW_S, _OVERDUE_S, _EARLIER_S, _NODE_S = 1.0, 30.0, 30.0, 0.001
# A promise that is later by less is the same.
_SAME_S = 1.0
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


class Backfill(Part):
    """The promises by group; one of them has a reservation. ``is_on`` if there are any."""

    def __init__(self, state: SharedState, live: SchedulingCycle, *, is_on: bool) -> None:
        self._state, self._live, self._is_on, self._run_times = state, live, is_on, state.run_times
        self._promises: dict[GroupKey, Promise] = {}
        # The number of node changes up to which the promise was reviewed.
        self._review_changes = 0
        # When the next review is due, and from when on a promise, an earlier or an overdue one may be searched for.
        self._next_review = self._next_search = self._next_earlier = self._next_overdue = 0.0

    def search(self, demand: GroupDemand, budget: GroupBudget) -> Turns[tuple[Reservation | None, str]]:
        """Return the room of the earliest start of a group that does not fit now, and the message about it."""
        if not self._is_on:
            return None, ""
        key, now = demand.group.key, self._state.reservations.now
        promise, reservation = self._promise_of(key), self._state.reservations.of_owner(key)
        is_valid = self._is_valid(reservation, demand)
        if is_valid and now < self._next_search:
            return reservation, self.note(key)
        if reservation is not None and promise is not None:
            # The room that a new leader has kept has no time.
            reservation = replace(reservation, since=promise.at)
        seeks_earlier = not is_valid or now >= self._next_earlier
        search = EarliestStart(self._state, self._live, demand, budget)
        start = yield from search.run(now, reservation, seeks_earlier=seeks_earlier)
        now = self._state.reservations.now
        self._next_search = now + _REVIEW_S + _NODE_S * len(self._state.cache.nodes.row_of)
        self._next_earlier = now + _EARLIER_S if seeks_earlier else self._next_earlier
        if start is None:
            return None, NO_START
        new_promise = self._promises[key] = self._new_promise(start, promise, demand, now)
        rooms = {room.uid: replace(room, priority=demand.priority) for room in start.rooms}
        since = min(new_promise.at, now) if start.at <= now else start.at
        runs_s = demand.members[0].runs_s
        until = None if runs_s is None else max(since, now) + runs_s
        return Reservation(key, rooms, "backfill", since=since, until=until), self.note(key)

    def _is_valid(self, reservation: Reservation | None, demand: GroupDemand) -> bool:
        if reservation is None or reservation.cause != "backfill" or demand.group.key not in self._promises:
            return False
        return sum(member.uid in reservation.rooms for member in demand.members) >= demand.needed_count

    def note(self, key: GroupKey) -> str:
        promise, offset_s = self._promise_of(key), self._run_times.unix_offset_s
        if promise is None:
            return ""
        is_overdue = promise.at <= self._state.reservations.now
        return promise.overdue_text(offset_s) if is_overdue else promise.text(offset_s)

    def tick(self, now: float) -> Iterable[Instruction]:
        """Requeue the first group if nodes of its promise have changed, pods there end later, or it is overdue."""
        if not self._is_on:
            self._run_times.changed_nodes.clear()
        elif now >= self._due:
            self._next_review = now + _REVIEW_S
            self._review(now)
        return ()

    def next_due(self) -> float | None:
        return self._due if self._is_on and self._state.pending_groups.has_any else None

    @property
    def _due(self) -> float:
        return max(self._next_review, self._next_search)

    def _review(self, now: float) -> None:
        groups, reservations, nodes = self._state.pending_groups, self._state.reservations, self._state.cache.nodes
        owners = reservations.groups()
        self._promises = {
            key: promise for key, promise in self._promises.items() if key in owners or groups.in_queue(key) is not None
        }
        changes, self._review_changes = nodes.changes.since(self._review_changes), nodes.changes.end
        late_nodes, self._run_times.changed_nodes = self._run_times.changed_nodes, set()
        key = groups.room_owner
        reservation = reservations.of_owner(key) if key is not None else None
        if key is None or reservation is None or reservation.cause != "backfill":
            return
        changed_nodes = {nodes.names[row] for row in changes if row < len(nodes.names)} | late_nodes
        is_changed = not changed_nodes.isdisjoint(room.node for room in reservation.rooms.values())
        if is_changed or (reservation.since <= now and self._next_overdue <= now):
            self._next_overdue = now + _OVERDUE_S
            self._state.queue.requeue(key.entry)

    def _new_promise(self, start: Start, promise: Promise | None, demand: GroupDemand, now: float) -> Promise:
        """Return the promise of a start: the earlier one if that is valid, or what is promised instead and why."""
        nodes = frozenset(room.node for room in start.rooms)
        where = start.domain or (promise.where if promise is not None and promise.nodes == nodes else "")
        where = where or some_nodes(nodes)
        after = self._after_text(start.last_pod, now) if start.last_pod is not None else ""
        if promise is None or start.at < promise.at - _SAME_S:
            promise = Promise(start.at, where, nodes, after)
        if now < start.at <= promise.at + _SAME_S:
            return replace(promise, where=where, nodes=nodes, after=after)
        cause = next(self._causes(promise, demand.priority, now), "nodes have changed")
        if start.at <= now:
            return replace(promise, where=where, nodes=nodes, after=after, cause=cause)
        return Promise(start.at, where, nodes, after, promise.time(self._run_times.unix_offset_s), cause)

    def _causes(self, promise: Promise, priority: int, now: float) -> Iterator[str]:
        cache, nodes = self._state.cache, sorted(promise.nodes)
        yield from (f"node {node!r} is gone" for node in nodes if cache.node(node) is None)
        pods = sorted((pod for node in nodes for pod in cache.assigned_pods_on(node)), key=lambda pod: pod.pod)
        ends = [(pod, end) for pod in pods if (end := self._run_times.declared_end(pod, now)) is not None]
        yield from (f"{pod.pod} runs longer than it declared" for pod, end in ends if end < now)
        higher_pods = (pod for pod in pods if pod.priority > priority)
        yield from (f"{pod.pod} of a higher priority is on node {pod.node!r}" for pod in higher_pods)
        late_pods = (pod for pod, end in ends if end > promise.at + _SAME_S)
        yield from (f"{pod.pod} began late, or declares a longer run time now" for pod in late_pods)

    def _after_text(self, assigned_pod: AssignedPod, now: float) -> str:
        membership = self._state.group_cache.of(assigned_pod.uid)
        name = f"{membership.key.namespace}/{membership.title}" if membership is not None else assigned_pod.pod
        end = self._run_times.declared_end(assigned_pod, now)
        if end is None:
            return f"{name} (is being deleted)"
        return f"{name} (ends by {rfc3339(end + self._run_times.unix_offset_s)})"

    def _promise_of(self, key: GroupKey) -> Promise | None:
        """Return a group's promise, or that which the last leader has written to a member, with its room's nodes."""
        if key in self._promises:
            return self._promises[key]
        members = [self._state.pending_pods[uid] for uid in self._state.pending_groups.members(key).of("waiting")]
        promises = (read_promise(member.condition_message, self._run_times.unix_offset_s) for member in members)
        promise = next(filter(None, promises), None)
        nodes = frozenset(node for member in members if (node := member.pod.status.nominated_node_name))
        return replace(promise, nodes=nodes) if promise is not None else None


@dataclass(slots=True)
class EarliestStart:
    """One search for the earliest start."""

    state: SharedState
    live: SchedulingCycle
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
            if (end := self.state.run_times.end_of(assigned_pod, now)) is not None:
                self._ends.append((end, assigned_pod))
            if number % _POD_PORTION == 0:
                self.budget.charge_nodes(_POD_PORTION)
                yield from self.budget.checkpoint()

    def _search(self, now: float, promise: Reservation | None, *, seeks_earlier: bool) -> Turns[Start | None]:
        reservations = self.live.reserved_room.all()
        untils = {room.until for room in reservations if room.until is not None and room.until > now}
        times = sorted({end for end, _ in self._ends} | untils)
        best: Start | None = None
        if promise is not None and promise.since > 0.0:
            best = yield from self.start_at(max(promise.since, now), promise)
            if best is not None and not seeks_earlier:
                return best
        if best is None and times:
            best = yield from self.start_at(times[-1])
        if best is None:
            return None
        low, high = 0, bisect_left(times, best.at)
        while low < high:
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
            if len(snapshot.binds) < self.demand.needed_count:
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
            members = self.state.group_cache.get(key) if key is not None else None
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

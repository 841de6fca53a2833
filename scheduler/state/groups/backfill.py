"""The promised start of the first group (`--backfill`): reserve its room from then on, and say when and why. Pure.

A promise moves to a later time only if a node is lost, a pod runs longer than it declared, or a pod of a higher
priority takes the room; the message names the cause.

Cost: when nodes of the promise have changed, one placement shows whether it still holds; an earlier start is sought
each `_EARLIER_S`. Between two searches are at least one second and a millisecond for each node, so that they take a
small part of the time however many pods leave.
"""

from collections.abc import Iterator
from dataclasses import dataclass, field, replace

from scheduler.cache.assigned_pod import AssignedPod
from scheduler.cycle.groups.earliest_start import EarliestStart, Start
from scheduler.cycle.groups.group_budget import GroupBudget, Turns
from scheduler.cycle.groups.group_demand import GroupDemand
from scheduler.cycle.reservations import Reservation
from scheduler.kube.group_membership import GroupKey
from scheduler.pending.groups.promises import NO_START, Promise, read_promise, rfc3339, some_nodes
from scheduler.state.shared_state import SharedState

_REVIEW_S, _OVERDUE_S, _EARLIER_S = 1.0, 30.0, 30.0
_NODE_S = 0.001
# A promise that is later by less is the same.
_SAME_S = 1.0


@dataclass(slots=True)
class Backfill:
    """The promises by group; one of them has a reservation. ``is_on`` if there are any."""

    state: SharedState
    earliest_start: EarliestStart
    is_on: bool
    _promises: dict[GroupKey, Promise] = field(default_factory=dict)
    # The number of node changes up to which the promise was reviewed, and when the next review is due.
    _reviewed_changes: int = 0
    _next_review: float = 0.0
    _next_overdue: float = 0.0
    # When a promise may be searched for again, and when an earlier start.
    _next_search: float = 0.0
    _next_earlier: float = 0.0

    def search(self, demand: GroupDemand, budget: GroupBudget) -> Turns[tuple[Reservation | None, str]]:
        """Return the room of the earliest start of a group that does not fit now, and the message about it."""
        if not self.is_on:
            return None, ""
        key, now = demand.group.key, self.state.reservations.now
        promise, known = self._promises.get(key) or self._recorded(key), self.state.reservations.of_owner(key)
        is_kept = self._is_kept(known, demand)
        if is_kept and now < self._next_search:
            return known, self.note(key)
        if known is not None and promise is not None:
            # The room that a new leader has kept has no time.
            known = replace(known, since=promise.at)
        seeks_earlier = not is_kept or now >= self._next_earlier
        start = yield from self.earliest_start.search(demand, budget, now, known, seeks_earlier=seeks_earlier)
        now = self.state.reservations.now
        self._next_search = now + _REVIEW_S + _NODE_S * len(self.state.cache.nodes.row_of)
        self._next_earlier = now + _EARLIER_S if seeks_earlier else self._next_earlier
        if start is None:
            return None, NO_START
        new_promise = self._promise(start, promise, demand, now)
        self._promises[key] = new_promise
        is_overdue = start.at <= now
        since = min(new_promise.at, now) if is_overdue else start.at
        rooms = {room.uid: replace(room, priority=demand.priority) for room in start.rooms}
        runs_s = demand.members[0].runs_s
        until = None if runs_s is None else max(since, now) + runs_s
        offset_s = self.state.run_times.unix_offset_s
        note = new_promise.overdue_text(offset_s) if is_overdue else new_promise.text(offset_s)
        return Reservation(key, rooms, "backfill", since=since, until=until), note

    def _is_kept(self, known: Reservation | None, demand: GroupDemand) -> bool:
        """Return whether a group has a promise for enough of its present members."""
        if known is None or known.cause != "backfill" or demand.group.key not in self._promises:
            return False
        return sum(member.uid in known.rooms for member in demand.members) >= demand.min_members

    def note(self, key: GroupKey) -> str:
        """Return the message about a group's promise; empty if it has none."""
        promise, offset_s = self._promises.get(key) or self._recorded(key), self.state.run_times.unix_offset_s
        if promise is None:
            return ""
        is_overdue = promise.at <= self.state.reservations.now
        return promise.overdue_text(offset_s) if is_overdue else promise.text(offset_s)

    def review(self, key: GroupKey | None, now: float) -> None:
        """Requeue the first group if nodes of its promise have changed, pods there end later, or it is overdue."""
        if not self.is_on:
            self.state.run_times.changed_nodes.clear()
        if not self.is_on or now < max(self._next_review, self._next_search):
            return
        self._next_review = now + _REVIEW_S
        groups = self.state.pending_groups
        reserved = self.state.reservations.groups()
        for lost_key in [one for one in self._promises if groups.in_queue(one) is None and one not in reserved]:
            del self._promises[lost_key]
        nodes, begin = self.state.cache.nodes, self._reviewed_changes
        self._reviewed_changes = nodes.changes.end
        reservation = self.state.reservations.of_owner(key) if key is not None else None
        late_nodes, self.state.run_times.changed_nodes = self.state.run_times.changed_nodes, set()
        if key is None or reservation is None or reservation.cause != "backfill":
            return
        names = nodes.names
        changed_nodes = {names[row] for row in nodes.changes.since(begin) if row < len(names)} | late_nodes
        is_changed = not changed_nodes.isdisjoint(room.node for room in reservation.rooms.values())
        is_overdue = reservation.since <= now and self._next_overdue <= now
        if is_changed or is_overdue:
            self._next_overdue = now + _OVERDUE_S
            self.state.queue.requeue(key.entry)

    def next_due(self) -> float | None:
        """Return when `review` has to run again; None while no group waits."""
        return self._next_review if self.is_on and self.state.pending_groups.has_waiting else None

    def _promise(self, start: Start, promise: Promise | None, demand: GroupDemand, now: float) -> Promise:
        nodes = frozenset(room.node for room in start.rooms)
        where = start.domain or (promise.where if promise is not None and promise.nodes == nodes else "")
        where = where or some_nodes(nodes)
        after = self._after(start.after, now) if start.after is not None else ""
        if promise is None or start.at < promise.at - _SAME_S:
            promise = Promise(start.at, where, nodes, after)
        if now < start.at <= promise.at + _SAME_S:
            return replace(promise, where=where, nodes=nodes, after=after)
        cause = next(self._causes(promise, demand.priority, now), "nodes have changed")
        if start.at <= now:
            return replace(promise, where=where, nodes=nodes, after=after, cause=cause)
        return Promise(start.at, where, nodes, after, promise.time(self.state.run_times.unix_offset_s), cause)

    def _causes(self, promise: Promise, priority: int, now: float) -> Iterator[str]:
        """Yield why a promise does not hold any more."""
        cache = self.state.cache
        nodes = sorted(promise.nodes)
        yield from (f"node {node!r} is gone" for node in nodes if cache.node(node) is None)
        pods = sorted((pod for node in nodes for pod in cache.assigned_pods_on(node)), key=lambda pod: pod.pod)
        for pod in pods:
            end = self.state.run_times.declared_end(pod, now)
            if end is not None and end < now:
                yield f"{pod.pod} runs longer than it declared"
        higher_pods = (pod for pod in pods if pod.priority > priority)
        yield from (f"{pod.pod} of a higher priority is on node {pod.node!r}" for pod in higher_pods)
        for pod in pods:
            end = self.state.run_times.declared_end(pod, now)
            if end is not None and end > promise.at + _SAME_S:
                yield f"{pod.pod} began late, or declares a longer run time now"

    def _after(self, assigned_pod: AssignedPod, now: float) -> str:
        membership = self.state.group_cache.of(assigned_pod.uid)
        name = f"{membership.key.namespace}/{membership.title}" if membership is not None else assigned_pod.pod
        end = self.state.run_times.declared_end(assigned_pod, now)
        if end is None:
            return f"{name} (is being deleted)"
        return f"{name} (ends by {rfc3339(end + self.state.run_times.unix_offset_s)})"

    def _recorded(self, key: GroupKey) -> Promise | None:
        """Return the promise that the last leader has written to the members: its start, and the nodes in its room."""
        members = [self.state.pending_pods[uid] for uid in self.state.pending_groups.members(key).of("waiting")]
        nodes = frozenset(node for member in members if (node := member.pod.status.nominated_node_name))
        for member in members:
            promise = read_promise(member.condition_message, self.state.run_times.unix_offset_s)
            if promise is not None:
                return replace(promise, nodes=nodes)
        return None

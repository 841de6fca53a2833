"""Choose the group to try when a group is on top of the active queue: the first by priority and age. Pure.

Method: a group's backoff doubles with each attempt. Of two groups that wait for the same room, the older one has the
longer backoff, so the younger one would get the room first. Therefore the turn of one group is the turn of all: it goes
to the group of the highest priority, and among these to the oldest one, that is active or that an event has moved into
backoff. Its backoff then ends.

Correctness: a younger group never goes before an older one that the same event can help, and does not start while the
decision about an older one is paused. Pods without a group do. No group waits for ever: each older group goes before it
at most once after it has become active, and none does when it has been active for longer than any backoff lasts. A
backoff after a failed write does not end early.

Cost: O(log n) per turn, amortized, and decisions before the end of a backoff: at most ten per second in the long run.
They are made one after another, so that room that becomes free between them does not go to a younger group. After that
no turn ends a backoff for a tenth of a second for each of them, and younger groups wait for as long, or until those
backoffs end by themselves.
"""

import heapq
from collections.abc import Set

from scheduler.queue.entry import AgeKey, Entry

# Longer than the longest backoff, which is 10 s.
_PATIENCE_S = 15.0
_EARLY_S = 0.1
# Number of outdated heap entries, in addition to the number of groups.
_STALE = 1024
# The ticket makes it unique.
_Aged = tuple[AgeKey, int]


class GroupTurns:
    """The groups that are active, in backoff or in flight; those that may be tried are also in a heap by age."""

    def __init__(self) -> None:
        self._entries: dict[str, Entry] = {}
        self._by_age: list[_Aged] = []
        # The groups tried since the group with the current turn became active, in the order of their attempts.
        self._passed: list[tuple[int, _Aged]] = []
        self._in_flight: dict[str, Entry] = {}
        # From when on a turn may end backoffs, the active group whose turn does, and the last one that had the turn.
        self.early_at = 0.0
        self._ends_backoffs = 0
        self._due = 0

    def put(self, entry: Entry) -> None:
        """Record a group that has moved to another place than in flight."""
        self.drop(entry.uid)
        if entry.place == "unschedulable":
            return
        self._entries[entry.uid] = entry
        if _may_be_tried(entry):
            heapq.heappush(self._by_age, (entry.age_key, entry.ticket))
        if len(self._by_age) + len(self._passed) > 2 * len(self._entries) + _STALE:
            # A sorted list is a heap.
            self._by_age = sorted(filter(self._is_valid, self._by_age))
            self._passed = sorted(turn for turn in self._passed if self._is_valid(turn[1]))

    def drop(self, uid: str) -> None:
        self._entries.pop(uid, None)
        self._in_flight.pop(uid, None)

    def begin(self, entry: Entry, now: float) -> None:
        """Record that a group is tried: from now on it is in flight."""
        if entry.place == "backoff":
            self.early_at = max(self.early_at, now) + _EARLY_S
            self._ends_backoffs = self._due
        self._in_flight[entry.uid] = entry

    def check(self, groups: Set[str]) -> None:
        """Raise AssertionError unless exactly these groups are here, and those that may be tried are in a heap."""
        assert groups == self._entries.keys(), "the groups that take turns differ"
        uids = [turn[0][-1] for turn in (*self._by_age, *(turn for _, turn in self._passed)) if self._is_valid(turn)]
        ready = [uid for uid, entry in self._entries.items() if _may_be_tried(entry)]
        assert sorted(uids) == sorted(ready), "the groups that may be tried differ"
        in_flight = {uid for uid, entry in self._entries.items() if entry.place == "in_flight"}
        assert in_flight == self._in_flight.keys(), "the groups that are decided about differ"

    def choose(self, due: Entry, now: float) -> Entry | None:
        """Return which group takes the turn of an active group; None while that waits for an older one."""
        if now - due.active_at >= _PATIENCE_S:
            return due
        first = self._oldest(due)
        key = first.age_key
        if any(entry.age_key < key for entry in self._in_flight.values()):
            return None
        self._due = due.ticket
        may_end = now >= self.early_at or self._ends_backoffs == due.ticket
        return first if first.place == "active" or may_end else None

    def _oldest(self, due: Entry) -> Entry:
        """Return the first by priority and age of this group and those not tried since it became active."""
        while self._passed and self._passed[0][0] < due.ticket:
            heapq.heappush(self._by_age, heapq.heappop(self._passed)[1])
        while self._by_age:
            top = heapq.heappop(self._by_age)
            if not self._is_valid(top):
                continue
            entry = self._entries[top[0][-1]]
            if entry.tried < due.ticket:
                heapq.heappush(self._by_age, top)
                return entry
            heapq.heappush(self._passed, (entry.tried, top))
        return due

    def _is_valid(self, heap_entry: _Aged) -> bool:
        entry = self._entries.get(heap_entry[0][-1])
        return entry is not None and entry.ticket == heap_entry[1]


def _may_be_tried(entry: Entry) -> bool:
    return entry.place == "active" or (entry.place == "backoff" and entry.is_awaited)

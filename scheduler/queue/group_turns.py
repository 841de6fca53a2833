"""Which group is tried when the active queue has one on top: the first by priority and age. Pure.

What it is: a group's backoff doubles with each try, so of two groups that wait for the same room the older one has the
longer backoff, and the younger one would get the room first. So the turn of a group is the turn of all: it goes to the
group of the highest priority, of these to the oldest, that is active or that an event has brought into backoff, whose
backoff then ends.

Why it is right:

- A younger group never goes before an older one that the same event can help, and does not begin while the decision
  about an older one is set aside. Pods on their own do.
- None waits for ever: each older one goes before it once at the most after it has become active, and none does when it
  has been active for longer than any backoff lasts.
- A backoff after a failed write does not end early.

What it costs: O(log n) a turn, amortised, and decisions before the end of a backoff: ten a second at the most in the
long run. They are made one after another, so that what happens between them does not go to a younger group. Then no
turn ends a backoff for a tenth of a second each, and younger groups wait for so long, or until those backoffs end by
themselves.
"""

import heapq
from collections.abc import Set

from scheduler.queue.entry import AgeKey, Entry

# Longer than the longest backoff, which is 10 s.
_PATIENCE_S = 15.0
_EARLY_S = 0.1
# Heap entries that are left behind, beyond as many as there are groups.
_STALE = 1024
# The ticket makes it unique.
_Aged = tuple[AgeKey, int]


class GroupTurns:
    """The groups that are active, in backoff or in flight; those that may be tried are also in a heap by age."""

    def __init__(self) -> None:
        self._entries: dict[str, Entry] = {}
        self._by_age: list[_Aged] = []
        # Those that were tried since the group became active whose turn it was, in the order of their tries.
        self._passed: list[tuple[int, _Aged]] = []
        self._in_flight: dict[str, Entry] = {}
        # From when on a turn may end backoffs, the active group whose turn does, and the one whose turn it was last.
        self.early_at = 0.0
        self._ends_backoffs = 0
        self._due = 0

    def put(self, entry: Entry) -> None:
        """Take in a group that has moved to another place than in flight."""
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
        """Raise AssertionError unless these are the groups here, and those that may be tried are in a heap."""
        assert groups == self._entries.keys(), "the groups that take turns differ"
        uids = [turn[0][-1] for turn in (*self._by_age, *(turn for _, turn in self._passed)) if self._is_valid(turn)]
        ready = [uid for uid, entry in self._entries.items() if _may_be_tried(entry)]
        assert sorted(uids) == sorted(ready), "the groups that may be tried differ"
        in_flight = {uid for uid, entry in self._entries.items() if entry.place == "in_flight"}
        assert in_flight == self._in_flight.keys(), "the groups that are decided about differ"

    def choose(self, due: Entry, now: float) -> Entry | None:
        """Return which group takes the turn of one that is active; None while it waits for an older one."""
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
        """Return the first by priority and age of those that were not tried since one became active, or that one."""
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

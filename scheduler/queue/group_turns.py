"""Choose the group to try when a group is on top of the active queue: the first by priority and age. Pure.

Of two groups that wait for the same room, the older one has the longer backoff, so the younger one would get the room
first. Therefore the turn of one group is the turn of all: it goes to the group of the highest priority, and among these
to the oldest one, that is active or that an event has moved into backoff. Its backoff then ends; a backoff after a
failed write does not. A younger group does not start while the decision about an older one is paused; pods without a
group do. No group waits for ever: each older group goes before it at most once after it has become active, and none
does when it has been active for longer than any backoff lasts.

Turns end at most ten backoffs per second in the long run. Such decisions are made one after another, so that room that
becomes free between them does not go to a younger group. After that no turn ends a backoff for a tenth of a second for
each of them, and younger groups wait for as long.
"""

from collections.abc import Mapping
from operator import attrgetter

from scheduler.queue.entry import Entry, EntryHeap

# Longer than the longest backoff, which is 10 s.
_PATIENCE_S = 15.0
_EARLY_S = 0.1


class GroupTurns:
    """The groups among ``entries`` that may be tried, in a heap by age, and those in flight."""

    def __init__(self, entries: Mapping[str, Entry]) -> None:
        self._by_age = EntryHeap(entries, attrgetter("age_key"))
        # The groups tried since the group with the current turn became active, in the order of their attempts.
        self._by_attempt = EntryHeap(entries, lambda entry: (entry.attempt_ticket, entry.uid))
        self._in_flight = EntryHeap(entries, attrgetter("age_key"))
        # From when on a turn may end backoffs, the active group whose turn does, and the last one that had the turn.
        self.early_at = 0.0
        self._ends_backoffs = 0
        self._due = 0

    def put(self, entry: Entry) -> None:
        """Record a group that has moved to another place than in flight."""
        if _may_be_tried(entry):
            self._by_age.push(entry)

    def begin(self, entry: Entry, now: float) -> None:
        """Record that a group is about to be in flight."""
        if entry.place == "backoff":
            self.early_at = max(self.early_at, now) + _EARLY_S
            self._ends_backoffs = self._due
        self._in_flight.push(entry)

    def check(self, groups: Mapping[str, Entry]) -> None:
        """Raise AssertionError unless those of all groups that may be tried are in a heap."""
        uids = sorted([*self._by_age.uids(), *self._by_attempt.uids()])
        ready = sorted(uid for uid, entry in groups.items() if _may_be_tried(entry))
        assert uids == ready, "the groups that may be tried differ"
        in_flight = {uid for uid, entry in groups.items() if entry.place == "in_flight"}
        assert in_flight == set(self._in_flight.uids()), "the groups that are decided about differ"

    def choose(self, due: Entry, now: float) -> Entry | None:
        """Return which group takes the turn of an active group; None while that waits for an older one."""
        if now - due.active_at >= _PATIENCE_S:
            return due
        first, in_flight = self._oldest(due), self._in_flight.first()
        if in_flight is not None and in_flight.age_key < first.age_key:
            return None
        self._due = due.ticket
        may_end = now >= self.early_at or self._ends_backoffs == due.ticket
        return first if first.place == "active" or may_end else None

    def _oldest(self, due: Entry) -> Entry:
        """Return the first by priority and age of this group and those not tried since it became active."""
        while (entry := self._by_attempt.first()) is not None and entry.attempt_ticket < due.ticket:
            self._by_attempt.pop()
            self._by_age.push(entry)
        while (entry := self._by_age.first()) is not None:
            if entry.attempt_ticket < due.ticket:
                return entry
            self._by_age.pop()
            self._by_attempt.push(entry)
        return due


def _may_be_tried(entry: Entry) -> bool:
    return entry.place == "active" or (entry.place == "backoff" and entry.is_awaited)

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

What it costs: a look at each group that is to be tried, in each turn of a group, and decisions before the end of a
backoff: ten a second at the most in the long run. They are made one after another, so that what happens between them
does not go to a younger group; then no turn ends a backoff for a tenth of a second each, and younger groups wait for so
long, or until those backoffs end by themselves.
"""

from collections.abc import Iterable

from scheduler.queue.entry import Entry

# Longer than the longest backoff, which is 10 s.
_PATIENCE_S = 15.0
_EARLY_S = 0.1


class GroupTurns:
    """The groups that are active, in backoff or in flight."""

    def __init__(self) -> None:
        self._entries: dict[str, Entry] = {}
        # From when on a turn may end backoffs, the active group whose turn does, and the one whose turn it was last.
        self.early_at = 0.0
        self._ends_backoffs = 0
        self._due = 0

    def put(self, entry: Entry) -> None:
        """Take in a group that has moved to another place."""
        if entry.place == "unschedulable":
            self._entries.pop(entry.uid, None)
        else:
            self._entries[entry.uid] = entry

    def drop(self, uid: str) -> None:
        self._entries.pop(uid, None)

    def count_early(self, now: float) -> None:
        """Record that a group is tried before the end of its backoff."""
        self.early_at = max(self.early_at, now) + _EARLY_S
        self._ends_backoffs = self._due

    def uids(self) -> Iterable[str]:
        return self._entries.keys()

    def choose(self, due: Entry, now: float) -> Entry | None:
        """Return which group takes the turn of one; None while it waits for an older one."""
        if now - due.active_at >= _PATIENCE_S:
            return due
        others = (one for one in self._entries.values() if _may_precede(one, due))
        first = min(others, key=lambda one: one.age_key, default=due)
        first = min(first, due, key=lambda one: one.age_key)
        key = first.age_key
        if any(one.place == "in_flight" and one.age_key < key for one in self._entries.values()):
            return None
        self._due = due.ticket
        may_end = now >= self.early_at or self._ends_backoffs == due.ticket
        return first if first.place == "active" or may_end else None


def _may_precede(one: Entry, due: Entry) -> bool:
    """Return whether a group is to be tried, and was not since another one became active."""
    is_next = one.place == "active" or (one.place == "backoff" and one.is_awaited)
    return is_next and one.tried < due.ticket

"""Entries of the scheduling queue, each a pod or a group of pods that are scheduled together; their order. Pure."""

import heapq
from collections.abc import Callable, Hashable, Iterator, Mapping
from dataclasses import dataclass
from operator import attrgetter
from typing import Any

from scheduler.kube.cluster_event import ClusterEvent

# Before any time of queueing.
_FIRST = float("-inf")
# Priority (negative), time of queueing, creation time and uid, which makes it unique.
SortKey = tuple[int, float, str, str]
BackoffKey = tuple[float, str]
# Priority (negative), whether it is not urgent, creation time, since when it is complete, and the entry's name.
AgeKey = tuple[int, bool, str, float, str]


@dataclass(slots=True)
class Entry:
    """A pod or group in the queue; its current heap item has the same ``ticket``, outdated items have others.

    ``since`` is since when a group is complete, None for a pod. ``attempt_ticket`` is the ticket of its last attempt.
    ``is_awaited``: an event that may help has moved it here.
    """

    uid: str
    priority: int
    creation: str
    queued_at: float
    attempts: int = 0
    ready_at: float = 0.0
    ticket: int = 0
    state: str = ""
    signature: Hashable = None
    is_urgent: bool = False
    since: float | None = None
    attempt_ticket: int = 0
    active_at: float = 0.0
    is_awaited: bool = False

    @property
    def sort_key(self) -> SortKey:
        return (-self.priority, _FIRST if self.is_urgent else self.queued_at, self.creation, self.uid)

    @property
    def backoff_key(self) -> BackoffKey:
        return (self.ready_at, self.uid)

    @property
    def age_key(self) -> AgeKey:
        """Return the sort key of groups among each other, which attempts do not change."""
        return (-self.priority, not self.is_urgent, self.creation, self.since or 0.0, self.uid)


# The heap is rebuilt if it has this many outdated items more than twice the number of entries.
_STALE = 1024


class EntryHeap:
    """A heap of some of ``entries``, ordered by ``key``, whose last element is the uid.

    An entry gets a new ticket whenever it moves. A heap item is valid only while its ticket is that of its entry, so a
    move needs no search.
    """

    def __init__(self, entries: Mapping[str, Entry], key: Callable[[Entry], tuple[Any, ...]]) -> None:
        self._entries, self._key = entries, key
        # Key and ticket in one flat tuple: nested tuples take twice as long to compare.
        self._items: list[tuple[Any, ...]] = []

    def push(self, entry: Entry) -> None:
        if len(self._items) > 2 * len(self._entries) + _STALE:
            # A sorted list is a heap.
            self._items = sorted(item for item in self._items if self._is_valid(item))
        heapq.heappush(self._items, (*self._key(entry), entry.ticket))

    def first(self) -> Entry | None:
        while self._items:
            entry = self._entries.get(self._items[0][-2])
            if entry is not None and entry.ticket == self._items[0][-1]:
                return entry
            heapq.heappop(self._items)
        return None

    def pop(self) -> Entry | None:
        entry = self.first()
        if entry is not None:
            heapq.heappop(self._items)
        return entry

    def uids(self) -> Iterator[str]:
        """Yield the uids of the entries in the heap, in no particular order."""
        return (item[-2] for item in self._items if self._is_valid(item))

    def _is_valid(self, item: tuple[Any, ...]) -> bool:
        entry = self._entries.get(item[-2])
        return entry is not None and entry.ticket == item[-1]


class EqualPods:
    """Unschedulable pods of one signature, and the event that they wait for, in two heaps.

    Those whose backoff is over are ordered as in the active queue, the others by the end of their backoff.
    """

    def __init__(self, entries: Mapping[str, Entry], waits_for: ClusterEvent) -> None:
        self.waits_for = waits_for
        self.members: set[str] = set()
        # The pod that an event has requeued for all; empty if there is none.
        self.probe = ""
        # The pod whose answer holds for all.
        self.answer_of = ""
        self._ready = EntryHeap(entries, attrgetter("sort_key"))
        self._in_backoff = EntryHeap(entries, attrgetter("backoff_key"))

    def add(self, entry: Entry) -> None:
        self.members.add(entry.uid)
        self._in_backoff.push(entry)

    def take_probe(self, now: float) -> Entry:
        """Remove and return the first pod whose backoff is over, or otherwise the one whose backoff ends first."""
        while (entry := self._in_backoff.first()) is not None and entry.ready_at <= now:
            self._in_backoff.pop()
            self._ready.push(entry)
        probe = self._ready.pop() or self._in_backoff.pop()
        assert probe is not None, "a signature without a pod is not kept"
        self.probe = probe.uid
        self.members.discard(probe.uid)
        return probe

    def check(self, signature: Hashable) -> None:
        """Assert that there are members, and that they are those in the heaps."""
        uids = sorted([*self._ready.uids(), *self._in_backoff.uids()])
        assert uids == sorted(self.members), f"signature {signature!r}: its heaps differ from its members"
        assert uids, f"signature {signature!r} is kept without a pod"


# Longer than the longest backoff, which is 10 s.
_PATIENCE_S = 15.0
_EARLY_S = 0.1


class GroupTurns:
    """The groups among ``entries`` that may be tried, in a heap by age, and those in flight.

    An older group has the longer backoff, so a younger one that waits for the same room would get it first. Therefore
    all groups have one turn: it goes to the group of the highest priority, and of these to the oldest, that is active
    or that an event has moved into backoff. Its backoff then ends; a backoff after a failed write does not. A younger
    group does not start while the decision about an older one is paused; pods without a group do. An older group goes
    before a younger one at most once after it has become active, and not after the longest backoff has passed.

    Turns end at most ten backoffs per second in the long run. After several such decisions, made one after another, no
    turn ends a backoff for a tenth of a second each, and younger groups wait: they take no room that becomes free.
    """

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
        """Record a group that has moved to another state than in flight."""
        if _may_be_tried(entry):
            self._by_age.push(entry)

    def begin(self, entry: Entry, now: float) -> None:
        """Record that a group is about to be in flight."""
        if entry.state == "backoff":
            self.early_at = max(self.early_at, now) + _EARLY_S
            self._ends_backoffs = self._due
        self._in_flight.push(entry)

    def check(self, groups: Mapping[str, Entry]) -> None:
        """Raise AssertionError unless those of all groups that may be tried are in a heap."""
        uids = sorted([*self._by_age.uids(), *self._by_attempt.uids()])
        ready = sorted(uid for uid, entry in groups.items() if _may_be_tried(entry))
        assert uids == ready, "the groups that may be tried differ"
        in_flight = {uid for uid, entry in groups.items() if entry.state == "in_flight"}
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
        return first if first.state == "active" or may_end else None

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
    return entry.state == "active" or (entry.state == "backoff" and entry.is_awaited)

"""Entries of the scheduling queue, each a pod or a group of pods that are scheduled together, and their heaps. Pure."""

import heapq
from collections.abc import Callable, Hashable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any

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

    ``since`` is since when a group is complete, None for a pod. ``tried`` is the ticket of its last attempt, and
    ``is_awaited`` is whether an event that may help has moved it here.
    """

    uid: str
    priority: int
    created: str
    queued_at: float
    attempts: int = 0
    ready_at: float = 0.0
    ticket: int = 0
    place: str = ""
    signature: Hashable = None
    is_urgent: bool = False
    since: float | None = None
    tried: int = 0
    active_at: float = 0.0
    is_awaited: bool = False

    @property
    def sort_key(self) -> SortKey:
        return (-self.priority, _FIRST if self.is_urgent else self.queued_at, self.created, self.uid)

    @property
    def backoff_key(self) -> BackoffKey:
        return (self.ready_at, self.uid)

    @property
    def age_key(self) -> AgeKey:
        """Return the sort key of groups among each other, which attempts do not change."""
        return (-self.priority, not self.is_urgent, self.created, self.since or 0.0, self.uid)


# The heap is rebuilt if it has this many items more than twice the number of entries. Pods that change again and again
# leave so many outdated items.
_STALE = 1024


class EntryHeap:
    """A heap of some of ``entries``, ordered by ``key``, whose last element is the uid.

    An entry gets a new ticket whenever it moves. A heap item is valid only while its ticket is that of its entry, so a
    move needs no search. Outdated items are dropped when they come to the top, or together when there are many.
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

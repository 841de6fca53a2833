"""A heap of queue entries, in which removing an entry needs no search. Pure.

Whenever an entry moves, it gets a new ticket. A heap item is valid only while its ticket is that of its entry, so a
move only outdates the item. Outdated items are dropped when they come to the top, or together when there are many.
"""

import heapq
from collections.abc import Callable, Iterator, Mapping
from typing import Any

from scheduler.queue.entry import Entry

# The heap is rebuilt if it has this many items more than twice the number of entries. Pods that change again and again
# leave so many outdated items.
_STALE = 1024


class EntryHeap:
    """A heap of some of ``entries``, ordered by ``key``, whose last element is the uid."""

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
        """Remove the first entry and return it."""
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

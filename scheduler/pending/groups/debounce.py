"""Keys that change: each is due once it has been quiet for a while, however often it changes after a longer time. Pure.

What it costs: O(log n) for each key that is due, and none while none is. In the heap a key may have an earlier time
than it is due, and keys may be there that were dropped: both are found out when their time has come.
"""

import heapq
from collections.abc import Hashable, Iterator
from dataclasses import dataclass
from itertools import count
from typing import Generic, TypeVar

K = TypeVar("K", bound=Hashable)


@dataclass(slots=True)
class _Change:
    """The first change of a key and when it is due; the ticket is that of its entry in the heap."""

    first_at: float
    due_at: float
    ticket: int


class Debounce(Generic[K]):
    """The keys that have changed and are not due yet: ``quiet_s`` after the last change, ``loud_s`` after the first."""

    def __init__(self, quiet_s: float, loud_s: float) -> None:
        self._quiet_s, self._loud_s = quiet_s, loud_s
        self._changes: dict[K, _Change] = {}
        self._heap: list[tuple[float, int, K]] = []
        self._tickets = count()

    def __contains__(self, key: K) -> bool:
        return key in self._changes

    def change(self, key: K, now: float) -> None:
        """Record that a key changes."""
        change = self._changes.get(key)
        if change is not None:
            change.due_at = min(now + self._quiet_s, change.first_at + self._loud_s)
            return
        change = self._changes[key] = _Change(now, now + min(self._quiet_s, self._loud_s), next(self._tickets))
        heapq.heappush(self._heap, (change.due_at, change.ticket, key))

    def drop(self, key: K) -> None:
        """Forget that a key has changed."""
        self._changes.pop(key, None)

    def take(self, now: float) -> Iterator[K]:
        """Yield the keys that are due, and forget that they have changed."""
        while (due_at := self.next_due()) is not None and due_at <= now:
            key = heapq.heappop(self._heap)[2]
            del self._changes[key]
            yield key

    def next_due(self) -> float | None:
        """Return when the first key is due, if nothing changes before."""
        while self._heap:
            at, ticket, key = self._heap[0]
            change = self._changes.get(key)
            if change is None or change.ticket != ticket:
                heapq.heappop(self._heap)
            elif change.due_at > at:
                heapq.heapreplace(self._heap, (change.due_at, ticket, key))
            else:
                return at
        return None

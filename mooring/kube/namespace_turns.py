"""Queue writes by namespace, and take them from the namespaces in turn. Pure: time is an argument.

A namespace whose last write failed, or waits long for its answer, gets one write at a time; after repeated failures
also a growing pause. So a webhook of one namespace that does not answer does not delay other namespaces. A failed write
goes to the end of its namespace's queue, so that it cannot block the queue, and is dropped after a number of tries.
"""

import sys
from dataclasses import dataclass, field
from typing import Generic, TypeVar

T = TypeVar("T")
# The first and the longest pause of a namespace after a failure, in seconds, as kube-scheduler's backoff of a pod,
# after which it writes the pod's condition again.
_FIRST_PAUSE_S = 1.0
_LONGEST_PAUSE_S = 10.0


@dataclass(slots=True)
class QueuedItem(Generic[T]):
    """An item to write; a newer item with the same key replaces it."""

    namespace: str
    key: str
    item: T
    tries: int = 0


@dataclass(slots=True)
class _Namespace(Generic[T]):
    queue: dict[str, QueuedItem[T]] = field(default_factory=dict)
    under_way: set[str] = field(default_factory=set)
    slow: int = 0
    failures: int = 0
    pause_until: float = 0.0

    def next(self, now: float) -> str | None:
        """Return the key of the next write; keys with a write in progress wait, so that the newest comes last."""
        if now < self.pause_until or (self.under_way and (self.failures or self.slow)):
            return None
        return next((key for key in self.queue if key not in self.under_way), None)

    def is_idle(self) -> bool:
        return not (self.queue or self.under_way or self.failures)


class NamespaceTurns(Generic[T]):
    """The namespaces with waiting or running writes, in the order of their turns."""

    def __init__(self, capacity: int = sys.maxsize, tries: int = 10) -> None:
        self._capacity = capacity
        self._tries = tries
        self._namespaces: dict[str, _Namespace[T]] = {}
        self._count = 0

    def __len__(self) -> int:
        return self._count

    def put(self, namespace: str, key: str, item: T) -> bool:
        """Add an item. At ``capacity`` items, drop the newest of the namespace with the most, and return False."""
        place = self._namespaces.setdefault(namespace, _Namespace())
        if key in place.queue:
            place.queue[key].item = item
            return True
        has_room = self._count < self._capacity
        if not has_room:
            longest = max(self._namespaces.values(), key=lambda namespace: len(namespace.queue))
            if len(longest.queue) <= len(place.queue) + 1:
                return False
            longest.queue.popitem()
            self._count -= 1
        place.queue[key] = QueuedItem(namespace, key, item)
        self._count += 1
        return has_room

    def get(self, namespace: str, key: str) -> T | None:
        """Return the waiting item with that key, None without one."""
        place = self._namespaces.get(namespace)
        entry = place.queue.get(key) if place is not None else None
        return None if entry is None else entry.item

    def drop(self, namespace: str, key: str) -> None:
        """Remove the waiting item with that key."""
        place = self._namespaces.get(namespace)
        if place is not None and place.queue.pop(key, None) is not None:
            self._count -= 1

    def next_at(self, now: float) -> float | None:
        """Return when the next write can start if none ends before: ``now`` or earlier for now, None for never."""
        candidates = (namespace for namespace in self._namespaces.values() if namespace.queue)
        times = [
            namespace.pause_until
            for namespace in candidates
            if namespace.next(max(now, namespace.pause_until)) is not None
        ]
        return min(times, default=None)

    def take(self, now: float) -> QueuedItem[T] | None:
        """Return the next item to write; the caller must call `end` afterwards."""
        begins = (
            (name, key) for name, namespace in self._namespaces.items() if (key := namespace.next(now)) is not None
        )
        namespace, key = next(begins, ("", ""))
        if not key:
            return None
        # Move the namespace to the end of the turns.
        place = self._namespaces[namespace] = self._namespaces.pop(namespace)
        entry = place.queue.pop(key)
        self._count -= 1
        place.under_way.add(key)
        entry.tries += 1
        return entry

    def slow(self, namespace: str) -> None:
        """Record that a write of a namespace is slow."""
        self._namespaces[namespace].slow += 1

    def end(self, entry: QueuedItem[T], now: float, *, has_failed: bool, was_slow: bool) -> bool:
        """Record the end of a write; return False if it has failed too often and is dropped."""
        place = self._namespaces[entry.namespace]
        place.under_way.discard(entry.key)
        place.slow -= was_slow
        place.failures = place.failures + 1 if has_failed else 0
        place.pause_until = now + _pause_s(place.failures)
        is_retried = has_failed and entry.tries < self._tries
        if is_retried and entry.key not in place.queue:
            place.queue[entry.key] = entry
            self._count += 1
        if place.is_idle():
            del self._namespaces[entry.namespace]
        return is_retried or not has_failed


def _pause_s(failures: int) -> float:
    return min(_FIRST_PAUSE_S * 2 ** min(failures - 1, 8), _LONGEST_PAUSE_S) if failures else 0.0

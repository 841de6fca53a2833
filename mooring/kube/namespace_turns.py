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
class Waiting(Generic[T]):
    """An item to write; a newer item with the same key replaces it."""

    namespace: str
    key: str
    item: T
    tries: int = 0


@dataclass(slots=True)
class _Namespace(Generic[T]):
    waiting: dict[str, Waiting[T]] = field(default_factory=dict)
    under_way: set[str] = field(default_factory=set)
    slow: int = 0
    failures: int = 0
    not_before: float = 0.0

    def next(self, now: float) -> str | None:
        """Return the key of the next write; keys with a write in progress wait, so that the newest comes last."""
        if now < self.not_before or (self.under_way and (self.failures or self.slow)):
            return None
        return next((key for key in self.waiting if key not in self.under_way), None)

    def is_idle(self) -> bool:
        return not (self.waiting or self.under_way or self.failures)


class NamespaceTurns(Generic[T]):
    """The namespaces with waiting or running writes, in the order of their turns."""

    def __init__(self, most: int = sys.maxsize, tries: int = 10) -> None:
        self._most = most
        self._tries = tries
        self._namespaces: dict[str, _Namespace[T]] = {}
        self._count = 0

    def __len__(self) -> int:
        return self._count

    def put(self, namespace: str, key: str, item: T) -> bool:
        """Add an item. At ``most`` items, drop the newest of the namespace with the most, and return False."""
        place = self._namespaces.setdefault(namespace, _Namespace())
        if key in place.waiting:
            place.waiting[key].item = item
            return True
        has_room = self._count < self._most
        if not has_room:
            longest = max(self._namespaces.values(), key=lambda one: len(one.waiting))
            if len(longest.waiting) <= len(place.waiting) + 1:
                return False
            longest.waiting.popitem()
            self._count -= 1
        place.waiting[key] = Waiting(namespace, key, item)
        self._count += 1
        return has_room

    def get(self, namespace: str, key: str) -> T | None:
        """Return the waiting item with that key, None without one."""
        place = self._namespaces.get(namespace)
        waiting = place.waiting.get(key) if place is not None else None
        return None if waiting is None else waiting.item

    def drop(self, namespace: str, key: str) -> None:
        """Remove the waiting item with that key."""
        place = self._namespaces.get(namespace)
        if place is not None and place.waiting.pop(key, None) is not None:
            self._count -= 1

    def next_at(self, now: float) -> float | None:
        """Return when the next write can start if none ends before: ``now`` or earlier for now, None for never."""
        waiting = (one for one in self._namespaces.values() if one.waiting)
        times = [one.not_before for one in waiting if one.next(max(now, one.not_before)) is not None]
        return min(times, default=None)

    def take(self, now: float) -> Waiting[T] | None:
        """Return the next item to write; the caller must call `end` afterwards."""
        begins = ((name, key) for name, one in self._namespaces.items() if (key := one.next(now)) is not None)
        namespace, key = next(begins, ("", ""))
        if not key:
            return None
        # Move the namespace to the end of the turns.
        place = self._namespaces[namespace] = self._namespaces.pop(namespace)
        found = place.waiting.pop(key)
        self._count -= 1
        place.under_way.add(key)
        found.tries += 1
        return found

    def slow(self, namespace: str) -> None:
        """Record that a write of a namespace is slow."""
        self._namespaces[namespace].slow += 1

    def end(self, done: Waiting[T], now: float, *, failed: bool, was_slow: bool) -> bool:
        """Record the end of a write; return False if it has failed too often and is dropped."""
        place = self._namespaces[done.namespace]
        place.under_way.discard(done.key)
        place.slow -= was_slow
        place.failures = place.failures + 1 if failed else 0
        place.not_before = now + _pause_s(place.failures)
        is_again = failed and done.tries < self._tries
        if is_again and done.key not in place.waiting:
            place.waiting[done.key] = done
            self._count += 1
        if place.is_idle():
            del self._namespaces[done.namespace]
        return is_again or not failed


def _pause_s(failures: int) -> float:
    return min(_FIRST_PAUSE_S * 2 ** min(failures - 1, 8), _LONGEST_PAUSE_S) if failures else 0.0

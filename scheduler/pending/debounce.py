"""Debounce: changes of a key take effect together, once it has been quiet for some time. Pure."""

from collections import OrderedDict
from collections.abc import Hashable, Iterator
from typing import Generic, TypeVar

K = TypeVar("K", bound=Hashable)


class Debounce(Generic[K]):
    """The changed keys that are not due yet: ``quiet_s`` after the last change, at most ``loud_s`` after the first.

    A change moves a key behind all others unless it is as late as may be, so no operation depends on their number.
    """

    def __init__(self, quiet_s: float, loud_s: float) -> None:
        self._quiet_s, self._loud_s = quiet_s, loud_s
        # By key, in the order of the due times: when it changed first, and when it is due.
        self._times = OrderedDict[K, tuple[float, float]]()

    def __contains__(self, key: K) -> bool:
        return key in self._times

    def change(self, key: K, now: float) -> None:
        """Record a change; ``now`` is not earlier than in the previous call."""
        first_at, _ = self._times.get(key, (now, now))
        if now + self._quiet_s <= first_at + self._loud_s:
            self._times[key] = first_at, now + self._quiet_s
            self._times.move_to_end(key)

    def drop(self, key: K) -> None:
        self._times.pop(key, None)

    def take(self, now: float) -> Iterator[K]:
        """Drop and yield the keys that are due."""
        while (due_at := self.next_due()) is not None and due_at <= now:
            yield self._times.popitem(last=False)[0]

    def next_due(self) -> float | None:
        return next((due_at for _, due_at in self._times.values()), None)

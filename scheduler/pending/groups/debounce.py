"""Keys that change: each is due once it has been quiet for a while, however often it changes after a longer time. Pure.

Keys are in the order of their times: a change puts a key behind all others, unless it has changed for too long. So it
costs the same for any number of keys.
"""

from collections import OrderedDict
from collections.abc import Hashable, Iterator
from typing import Generic, TypeVar

K = TypeVar("K", bound=Hashable)


class Debounce(Generic[K]):
    """The keys that have changed and are not due yet: ``quiet_s`` after the last change, ``loud_s`` after the first.

    The time of a key does not move any more once it would be later than that.
    """

    def __init__(self, quiet_s: float, loud_s: float) -> None:
        self._quiet_s, self._loud_s = quiet_s, loud_s
        # By key, in the order of the second: when it changed first, and when it is due.
        self._times = OrderedDict[K, tuple[float, float]]()

    def __contains__(self, key: K) -> bool:
        return key in self._times

    def change(self, key: K, now: float) -> None:
        """Record that a key changes; ``now`` is no earlier than in the call before."""
        first_at, _ = self._times.get(key, (now, now))
        if now + self._quiet_s <= first_at + self._loud_s:
            self._times[key] = first_at, now + self._quiet_s
            self._times.move_to_end(key)

    def drop(self, key: K) -> None:
        """Forget that a key has changed."""
        self._times.pop(key, None)

    def take(self, now: float) -> Iterator[K]:
        """Yield the keys that are due, and forget that they have changed."""
        while (due_at := self.next_due()) is not None and due_at <= now:
            yield self._times.popitem(last=False)[0]

    def next_due(self) -> float | None:
        """Return when the first key is due, if nothing changes before."""
        return next((due_at for _, due_at in self._times.values()), None)

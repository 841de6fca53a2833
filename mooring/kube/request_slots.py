"""Limit concurrent writes, with fairness between namespaces.

While an API server waits for a namespace's webhook, for up to 30 s, it answers other requests. So a write that waits
long for its answer frees its slot for another write, and keeps its connection. Its namespace gets only few slots until
none of its writes is slow. Waiting namespaces get free slots in turn.
"""

import asyncio
from collections import deque
from dataclasses import dataclass, field

# Seconds after which a write counts as slow; an API server answers most writes within some milliseconds.
_SLOW_S = 1.0
# The number of slow writes per slot that can be in progress beside the others.
_SLOW_PER_SLOT = 3
# A namespace with slow writes can use this fraction of the slots: one in so many.
_SHARE_OF_SLOW = 8


@dataclass(slots=True)
class _Namespace:
    under_way: int = 0
    slow: int = 0
    queue: deque["asyncio.Future[None]"] = field(default_factory=deque)


class RequestSlots:
    """``count`` slots for concurrent writes."""

    def __init__(self, count: int) -> None:
        self._free = count
        self._slow_capacity = count * _SLOW_PER_SLOT
        self._most_of_slow = max(count // _SHARE_OF_SLOW, 1)
        self._queue_length = 0
        # Namespaces with running or waiting writes, in the order of their turns.
        self._namespaces: dict[str, _Namespace] = {}

    async def take(self, namespace: str) -> "Slot":
        """Wait for a slot."""
        place = self._namespaces.setdefault(namespace, _Namespace())
        if place.queue or not self._may_begin(place):
            await self._wait(namespace, place)
        else:
            self._begin(place)
        return Slot(self, namespace)

    def leave(self, namespace: str) -> bool:
        """Free the slot of a slow write for another one; return False if too many writes are slow."""
        if not self._slow_capacity:
            return False
        self._slow_capacity -= 1
        self._free += 1
        self._namespaces[namespace].slow += 1
        self._wake()
        return True

    def end(self, namespace: str, *, was_slow: bool) -> None:
        """Free the slot of a write that has ended."""
        place = self._namespaces[namespace]
        place.under_way -= 1
        if was_slow:
            place.slow -= 1
            self._slow_capacity += 1
        else:
            self._free += 1
        if not place.under_way and not place.queue:
            del self._namespaces[namespace]
        self._wake()

    def _may_begin(self, place: _Namespace) -> bool:
        return self._free > 0 and (not place.slow or place.under_way < self._most_of_slow)

    def _begin(self, place: _Namespace) -> None:
        self._free -= 1
        place.under_way += 1

    async def _wait(self, namespace: str, place: _Namespace) -> None:
        turn: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        place.queue.append(turn)
        self._queue_length += 1
        try:
            await turn
        except asyncio.CancelledError:
            if not turn.cancelled():
                self.end(namespace, was_slow=False)
            elif turn in place.queue:
                place.queue.remove(turn)
                self._queue_length -= 1
            raise

    def _wake(self) -> None:
        """Give the free slots to waiting writes, one namespace after another."""
        while self._queue_length and self._free:
            name = next(
                (
                    name
                    for name, candidate in self._namespaces.items()
                    if candidate.queue and self._may_begin(candidate)
                ),
                None,
            )
            if name is None:
                return
            place = self._namespaces[name] = self._namespaces.pop(name)
            turn = place.queue.popleft()
            self._queue_length -= 1
            if not turn.done():
                self._begin(place)
                turn.set_result(None)


class Slot:
    """The slot of one write, until `end`."""

    def __init__(self, slots: RequestSlots, namespace: str) -> None:
        self._slots = slots
        self._namespace = namespace
        self._is_slow = False
        self._timer = asyncio.get_running_loop().call_later(_SLOW_S, self._become_slow)

    def end(self) -> None:
        """Free the slot."""
        self._timer.cancel()
        self._slots.end(self._namespace, was_slow=self._is_slow)

    def _become_slow(self) -> None:
        self._is_slow = self._slots.leave(self._namespace)
        if not self._is_slow:
            self._timer = asyncio.get_running_loop().call_later(_SLOW_S, self._become_slow)

"""Execute waiting writes: earlier lanes first, in each lane one namespace after another, several concurrently.

A write that waits long for its answer frees its slot for another namespace, as in the client (see
`mooring.kube.request_slots`).
"""

import asyncio
import contextlib
import time
from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Generic, TypeVar

import structlog

from mooring.kube.failures import Denied, KubeError, Throttled, Unknown
from mooring.kube.namespace_turns import NamespaceTurns, QueuedItem

_log = structlog.get_logger()
T = TypeVar("T")
# Seconds after which a write counts as slow; an API server answers most writes within some milliseconds.
_SLOW_S = 1.0


async def _no_wait() -> None:
    """Do not limit the rate of writes."""


@dataclass(frozen=True, slots=True)
class Lane(Generic[T]):
    """A queue of items and how to write one; ``fields`` are its log fields, ``on_drop`` is called for dropped items."""

    turns: NamespaceTurns[T]
    write: Callable[[T], Awaitable[None]]
    fields: Callable[[T], Mapping[str, str]]
    on_drop: Callable[[], None] = lambda: None


class Lanes:
    """Writes at most ``limit`` items concurrently; ``turn`` waits until the next write may start."""

    def __init__(self, lanes: Sequence[Lane[Any]], limit: int, turn: Callable[[], Awaitable[None]] = _no_wait) -> None:
        self._lanes = lanes
        self._free = limit
        self._turn = turn
        self._wake_event = asyncio.Event()
        self._under_way = 0
        self._empty = asyncio.Event()
        self._empty.set()

    def wake(self) -> None:
        """Check the lanes again, because something was added."""
        self._empty.clear()
        self._wake_event.set()

    async def empty(self) -> None:
        """Wait until everything is written."""
        await self._empty.wait()

    async def run(self) -> None:
        """Write items as they arrive; never return."""
        async with asyncio.TaskGroup() as group:
            while True:
                await self._due()
                await self._turn()
                # The item may have been dropped meanwhile.
                now = time.monotonic()
                for lane in self._lanes:
                    if (entry := lane.turns.take(now)) is not None:
                        self._free -= 1
                        self._under_way += 1
                        group.create_task(self._write(lane, entry))
                        break

    async def _due(self) -> None:
        """Wait until an item can be written."""
        while True:
            self._wake_event.clear()
            now = time.monotonic()
            times = [at for lane in self._lanes if (at := lane.turns.next_at(now)) is not None]
            if self._free and times and min(times) <= now:
                return
            if not (self._under_way or any(len(lane.turns) for lane in self._lanes)):
                self._empty.set()
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(min(times) - now if self._free and times else None):
                    await self._wake_event.wait()

    async def _write(self, lane: Lane[T], entry: QueuedItem[T]) -> None:
        slow: list[bool] = []

        def leave() -> None:
            slow.append(True)
            lane.turns.slow(entry.namespace)
            self._free += 1
            self.wake()

        timer = asyncio.get_running_loop().call_later(_SLOW_S, leave)
        failure = ""
        try:
            await lane.write(entry.item)
        except (Denied, Throttled, Unknown) as error:
            failure = str(error)
        except KubeError as error:
            # The object was deleted, or permissions are missing: the write cannot succeed.
            _log.info("report was rejected", **lane.fields(entry.item), reason=str(error))
        finally:
            timer.cancel()
            self._free += not slow
            self._under_way -= 1
        comes_again = lane.turns.end(entry, time.monotonic(), has_failed=bool(failure), was_slow=bool(slow))
        if failure:
            fields = lane.fields(entry.item)
            _log.info("report was not written", **fields, reason=failure, tries=entry.tries, is_dropped=not comes_again)
        if not comes_again:
            lane.on_drop()
        self.wake()

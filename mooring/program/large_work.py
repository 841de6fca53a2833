"""Process large requests, configurations and records one at a time.

A tenant can have one for each pod. Parsing one blocks the interpreter for many milliseconds, which other calls need for
each of their steps.
"""

import asyncio
import heapq
import threading
import time
from collections.abc import Callable, Iterator
from concurrent.futures import Future
from contextlib import contextmanager, suppress
from itertools import count
from typing import ParamSpec, TypeVar

from mooring.program.memory import trim_memory

# The size from which work counts as large: parsing takes some milliseconds. Ordinary documents have some kilobytes.
LARGE_BYTES = 1 << 14
# Seconds after the last large work until its memory is returned to the system.
_REST_S = 1.0

_Result = TypeVar("_Result")
_Parameters = ParamSpec("_Parameters")


class Rest:
    """Returns memory to the system after a while without large work."""

    def __init__(self) -> None:
        self._guard = threading.Lock()
        self._until_s = 0.0
        self._timer: threading.Timer | None = None

    def begin(self) -> None:
        """Restart the waiting time."""
        with self._guard:
            self._until_s = time.monotonic() + _REST_S
            if self._timer is None:
                self._start(_REST_S)

    def _start(self, delay_s: float) -> None:
        self._timer = None
        timer = threading.Timer(delay_s, self._end)
        timer.daemon = True
        # If no thread can be started, the next large work tries again; no call fails because of it.
        with suppress(RuntimeError):
            timer.start()
            self._timer = timer

    def _end(self) -> None:
        with self._guard:
            if (delay_s := self._until_s - time.monotonic()) > 0:
                self._start(delay_s)
                return
            self._timer = None
        trim_memory()


class Turns:
    """Limits concurrent work to ``limit``; the smallest waiting work goes first. Owners must pass their turn on."""

    def __init__(self, limit: int) -> None:
        self.taken_count = 0
        self._limit = limit
        self._guard = threading.Lock()
        self._queue: list[tuple[int, int, Future[None] | asyncio.Future[None]]] = []
        self._numbers = count()

    @property
    def queue_length(self) -> int:
        """The number of waiting callers."""
        return len(self._queue)

    async def take(self, size: int) -> None:
        """Wait for a turn for work of this size; for callers of one event loop."""
        turn = asyncio.get_running_loop().create_future()
        if self._takes(size, turn):
            return
        try:
            await turn
        except asyncio.CancelledError:
            if not turn.cancelled():
                # The turn has come, but the caller was cancelled.
                self.pass_on()
            raise

    def take_in_thread(self, size: int) -> None:
        """Wait for a turn for work of this size; for callers in threads."""
        turn: Future[None] = Future()
        if not self._takes(size, turn):
            turn.result()

    def _takes(self, size: int, turn: Future[None] | asyncio.Future[None]) -> bool:
        """Take a turn now and return True, or complete ``turn`` when it comes."""
        with self._guard:
            if self.taken_count < self._limit:
                self.taken_count += 1
                return True
            heapq.heappush(self._queue, (size, next(self._numbers), turn))
            return False

    def pass_on(self) -> None:
        """Pass a turn on to the next waiting caller."""
        with self._guard:
            while self._queue:
                _, _, turn = heapq.heappop(self._queue)
                if not turn.done():
                    turn.set_result(None)
                    return
            self.taken_count -= 1


class LargeWork:
    """Runs large work one piece at a time, the smallest first, and for at most half of the time.

    So a piece of some kilobytes does not wait for many of some megabytes.
    """

    def __init__(self) -> None:
        self._turns = Turns(1)
        self._from_s = 0.0
        self._rest = Rest()

    @property
    def queue_length(self) -> int:
        """The number of waiting callers."""
        return self._turns.queue_length

    @contextmanager
    def slot(self, size: int) -> Iterator[None]:
        """In a thread: if ``size`` is large, wait for a turn and for a pause as long as the last work took."""
        if size <= LARGE_BYTES:
            yield
            return
        self._turns.take_in_thread(size)
        with self._pass_turn_on():
            time.sleep(self._pause_s())
            with self._measure_pause():
                yield

    async def run(
        self, size: int, act: Callable[_Parameters, _Result], *args: _Parameters.args, **kwargs: _Parameters.kwargs
    ) -> _Result:
        """In an event loop: call ``act``; if ``size`` is large, wait as in `slot` and run it in a thread."""
        if size <= LARGE_BYTES:
            return act(*args, **kwargs)
        await self._turns.take(size)
        with self._pass_turn_on():
            await asyncio.sleep(self._pause_s())
            with self._measure_pause():
                return await asyncio.to_thread(act, *args, **kwargs)

    def _pause_s(self) -> float:
        return max(self._from_s - time.monotonic(), 0.0)

    @contextmanager
    def _measure_pause(self) -> Iterator[None]:
        began_s = time.monotonic()
        try:
            yield
        finally:
            ended_s = time.monotonic()
            self._from_s = ended_s + (ended_s - began_s)

    @contextmanager
    def _pass_turn_on(self) -> Iterator[None]:
        try:
            yield
        finally:
            self._turns.pass_on()
            if not self._turns.taken_count:
                self._rest.begin()

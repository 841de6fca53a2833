"""Large requests, configurations and records, of which a tenant may have one for each pod: one at a time is read.

Reading one keeps the interpreter for many milliseconds, and other calls need it for each of their steps.
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

from mooring.program.memory import give_back

# One of this size takes up to some milliseconds; a usual one has some kilobytes.
LARGE_BYTES = 1 << 14
# When so many seconds have gone without a large one, its memory is given back.
_REST_S = 1.0

_Result = TypeVar("_Result")
_Given = ParamSpec("_Given")


class Rest:
    """Give memory back once nothing large has come for a while."""

    def __init__(self) -> None:
        self._guard = threading.Lock()
        self._until_s = 0.0
        self._timer: threading.Timer | None = None

    def begin(self) -> None:
        """Count from now."""
        with self._guard:
            self._until_s = time.monotonic() + _REST_S
            if self._timer is None:
                self._start(_REST_S)

    def _start(self, delay_s: float) -> None:
        self._timer = None
        timer = threading.Timer(delay_s, self._end)
        timer.daemon = True
        # Where no thread can be had, the next large one begins again; no call fails for it.
        with suppress(RuntimeError):
            timer.start()
            self._timer = timer

    def _end(self) -> None:
        with self._guard:
            if (delay_s := self._until_s - time.monotonic()) > 0:
                self._start(delay_s)
                return
            self._timer = None
        give_back()


class Turns:
    """So many at once, the smallest that waits first. Who has taken a turn passes it on."""

    def __init__(self, at_once: int) -> None:
        self.taken = 0
        self._at_once = at_once
        self._guard = threading.Lock()
        self._waiting: list[tuple[int, int, Future[None] | asyncio.Future[None]]] = []
        self._numbers = count()

    @property
    def waiting(self) -> int:
        """How many wait for their turn."""
        return len(self._waiting)

    async def take(self, size: int) -> None:
        """Return when the turn of one of this size has come; all calls are those of one event loop."""
        turn = asyncio.get_running_loop().create_future()
        if self._takes(size, turn):
            return
        try:
            await turn
        except asyncio.CancelledError:
            if not turn.cancelled():
                # It was this one's turn, and its caller has left.
                self.pass_on()
            raise

    def take_in_thread(self, size: int) -> None:
        """Do so in a thread; all calls are those of threads."""
        turn: Future[None] = Future()
        if not self._takes(size, turn):
            turn.result()

    def _takes(self, size: int, turn: Future[None] | asyncio.Future[None]) -> bool:
        """Take a turn at once and return True, or have ``turn`` done when it comes."""
        with self._guard:
            if self.taken < self._at_once:
                self.taken += 1
                return True
            heapq.heappush(self._waiting, (size, next(self._numbers), turn))
            return False

    def pass_on(self) -> None:
        """End a turn that was taken."""
        with self._guard:
            while self._waiting:
                _, _, turn = heapq.heappop(self._waiting)
                if not turn.done():
                    turn.set_result(None)
                    return
            self.taken -= 1


class LargeWork:
    """Let one large piece of work at a time be done, the smallest that waits first, and at most half of the time.

    What is just large does not wait for a hundred of megabytes.
    """

    def __init__(self) -> None:
        self._turns = Turns(1)
        self._from_s = 0.0
        self._rest = Rest()

    @property
    def waiting(self) -> int:
        """How many wait for their turn."""
        return self._turns.waiting

    @contextmanager
    def slot(self, size: int) -> Iterator[None]:
        """Wait in a thread until the last one has been over for as long as it took, if this one's bytes are many."""
        if size <= LARGE_BYTES:
            yield
            return
        self._turns.take_in_thread(size)
        with self._passed_on():
            time.sleep(self._pause_s())
            with self._timed():
                yield

    async def run(
        self, size: int, act: Callable[_Given, _Result], *given: _Given.args, **named: _Given.kwargs
    ) -> _Result:
        """Do so for an event loop: ``act`` on many bytes runs in a thread, which the loop awaits."""
        if size <= LARGE_BYTES:
            return act(*given, **named)
        await self._turns.take(size)
        with self._passed_on():
            await asyncio.sleep(self._pause_s())
            with self._timed():
                return await asyncio.to_thread(act, *given, **named)

    def _pause_s(self) -> float:
        return max(self._from_s - time.monotonic(), 0.0)

    @contextmanager
    def _timed(self) -> Iterator[None]:
        began_s = time.monotonic()
        try:
            yield
        finally:
            ended_s = time.monotonic()
            self._from_s = ended_s + (ended_s - began_s)

    @contextmanager
    def _passed_on(self) -> Iterator[None]:
        try:
            yield
        finally:
            self._turns.pass_on()
            if not self._turns.taken:
                self._rest.begin()

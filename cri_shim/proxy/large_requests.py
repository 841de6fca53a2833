"""Large requests, of which a tenant may have as many as pods: one at a time is worked on, beside the event loop."""

import asyncio
import heapq
import time
from collections.abc import Callable
from itertools import count
from typing import ParamSpec, TypeVar

from mooring.program.memory import give_back

# A request of this size takes up to a millisecond; a usual one has some kilobytes.
LARGE_BYTES = 1 << 14
# When so many seconds have gone without a large request or answer, their memory is given back.
_REST_S = 1.0

_Result = TypeVar("_Result")
_Given = ParamSpec("_Given")


class Rest:
    """Give memory back once nothing large has come for a while."""

    def __init__(self) -> None:
        self._timer: asyncio.TimerHandle | None = None

    def begin(self) -> None:
        """Count from now; the caller runs in an event loop."""
        loop = asyncio.get_running_loop()
        if self._timer is not None:
            self._timer.cancel()
        self._timer = loop.call_later(_REST_S, lambda: loop.run_in_executor(None, give_back))


class Turns:
    """So many at once, the smallest that waits first. Who has taken a turn passes it on."""

    def __init__(self, at_once: int) -> None:
        self.taken = 0
        self._at_once = at_once
        self._waiting: list[tuple[int, int, asyncio.Future[None]]] = []
        self._numbers = count()

    async def take(self, size: int) -> None:
        """Return when the turn of one of this size has come."""
        if self.taken < self._at_once:
            self.taken += 1
        else:
            turn = asyncio.get_running_loop().create_future()
            heapq.heappush(self._waiting, (size, next(self._numbers), turn))
            try:
                await turn
            except asyncio.CancelledError:
                if not turn.cancelled():
                    # It was this one's turn, and its caller has left.
                    self.pass_on()
                raise

    def pass_on(self) -> None:
        """End a turn that was taken."""
        while self._waiting:
            _, _, turn = heapq.heappop(self._waiting)
            if not turn.done():
                turn.set_result(None)
                return
        self.taken -= 1


class LargeRequests:
    """Let one large request at a time be worked on, the smallest that waits first, and at most half of the time.

    Whoever decodes one keeps the interpreter for many milliseconds, and the event loop needs it whenever it wakes up.
    A container of a namespace with many services is just large: it does not wait for a hundred of megabytes.
    """

    def __init__(self) -> None:
        self._turns = Turns(1)
        self._from_s = 0.0
        self._rest = Rest()

    async def apart(
        self, size: int, act: Callable[_Given, _Result], *given: _Given.args, **named: _Given.kwargs
    ) -> _Result:
        """Do what a request of so many bytes needs; for a large one when the last has been over for as long as it took.

        ``size`` counts what is read for the request, too.
        """
        if size <= LARGE_BYTES:
            return act(*given, **named)
        await self._turns.take(size)
        try:
            await asyncio.sleep(max(self._from_s - time.monotonic(), 0.0))
            began_s = time.monotonic()
            try:
                return await asyncio.to_thread(act, *given, **named)
            finally:
                ended_s = time.monotonic()
                self._from_s = ended_s + (ended_s - began_s)
        finally:
            self._turns.pass_on()
            if not self._turns.taken:
                self._rest.begin()

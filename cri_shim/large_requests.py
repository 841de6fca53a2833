"""Large requests, of which a tenant may have as many as pods: one at a time is worked on, beside the event loop."""

import asyncio
import heapq
import time
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from itertools import count
from typing import ParamSpec, TypeVar

from mooring.memory import give_back

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


class LargeRequests:
    """Let one large request at a time be worked on, the smallest that waits first, and at most half of the time.

    Whoever decodes one keeps the interpreter for many milliseconds, and the event loop needs it whenever it wakes up.
    A container of a namespace with many services is just large: it does not wait for a hundred of megabytes.
    """

    def __init__(self) -> None:
        self._busy = False
        self._waiting: list[tuple[int, int, asyncio.Future[None]]] = []
        self._numbers = count()
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
        async with self._turn(size):
            await asyncio.sleep(max(self._from_s - time.monotonic(), 0.0))
            began_s = time.monotonic()
            try:
                return await asyncio.to_thread(act, *given, **named)
            finally:
                ended_s = time.monotonic()
                self._from_s = ended_s + (ended_s - began_s)

    @asynccontextmanager
    async def _turn(self, size: int) -> AsyncIterator[None]:
        if self._busy:
            turn = asyncio.get_running_loop().create_future()
            heapq.heappush(self._waiting, (size, next(self._numbers), turn))
            try:
                await turn
            except asyncio.CancelledError:
                if not turn.cancelled():
                    # It was this one's turn, and its caller has left.
                    self._pass_on()
                raise
        self._busy = True
        try:
            yield
        finally:
            self._pass_on()

    def _pass_on(self) -> None:
        while self._waiting:
            _, _, turn = heapq.heappop(self._waiting)
            if not turn.done():
                turn.set_result(None)
                return
        self._busy = False
        self._rest.begin()

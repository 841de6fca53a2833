"""Share answers between callers for a short time, so that many callers cost no more than one."""

import asyncio
import time
from collections.abc import Awaitable, Callable
from typing import Generic, TypeVar

# Shorter than any scrape interval, and than a person's next request.
RECENT_S = 1.0
_T = TypeVar("_T")


class Recent:
    """A body that is made on request, at most once in ``recent_s`` seconds of ``clock``."""

    def __init__(
        self, make: Callable[[], bytes], recent_s: float = RECENT_S, clock: Callable[[], float] = time.monotonic
    ) -> None:
        self._make = make
        self._recent_s = recent_s
        self._clock = clock
        self._made_s = float("-inf")
        self._body = b""

    def get(self) -> bytes:
        """Return the body, which is at most ``recent_s`` seconds old."""
        if self._clock() - self._made_s >= self._recent_s:
            self._body = self._make()
            self._made_s = self._clock()
        return self._body


class RecentAnswer(Generic[_T]):
    """The same for answers that take longer: concurrent callers wait for the same answer, or get its failure."""

    def __init__(
        self, make: Callable[[], Awaitable[_T]], recent_s: float = RECENT_S, clock: Callable[[], float] = time.monotonic
    ) -> None:
        self._make = make
        self._recent_s = recent_s
        self._clock = clock
        self._made_s = float("-inf")
        self._answer: asyncio.Future[_T] | None = None

    async def get(self) -> _T:
        """Return the answer, which is at most ``recent_s`` seconds old; raise the error of making it."""
        if self._answer is None or (self._answer.done() and self._clock() - self._made_s >= self._recent_s):
            self._answer = asyncio.ensure_future(self._make())
            self._answer.add_done_callback(self._note)
        # If a caller is cancelled, the others still get the answer.
        return await asyncio.shield(self._answer)

    def _note(self, answer: "asyncio.Future[_T]") -> None:
        self._made_s = self._clock()
        if not answer.cancelled():
            # Retrieve the exception, so that asyncio does not report it if no caller has waited.
            answer.exception()

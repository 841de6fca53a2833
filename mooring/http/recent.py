"""Answers that all callers of a short time share, so that no number of callers costs more than one."""

import asyncio
import time
from collections.abc import Awaitable, Callable
from typing import Generic, TypeVar

# Shorter than any scrape interval; a person who asks again sees the change.
RECENT_S = 1.0
_T = TypeVar("_T")


class Recent:
    """A body that is made at most once in ``recent_s`` seconds of ``clock``, when somebody asks."""

    def __init__(
        self, make: Callable[[], bytes], recent_s: float = RECENT_S, clock: Callable[[], float] = time.monotonic
    ) -> None:
        self._make = make
        self._recent_s = recent_s
        self._clock = clock
        self._made_s = float("-inf")
        self._body = b""

    def get(self) -> bytes:
        """Return the body, made now or within the last ``recent_s`` seconds."""
        if self._clock() - self._made_s >= self._recent_s:
            self._body = self._make()
            self._made_s = self._clock()
        return self._body


class RecentAnswer(Generic[_T]):
    """The same for what takes a while: callers meanwhile wait for the one that is under way, or get its failure."""

    def __init__(
        self, make: Callable[[], Awaitable[_T]], recent_s: float = RECENT_S, clock: Callable[[], float] = time.monotonic
    ) -> None:
        self._make = make
        self._recent_s = recent_s
        self._clock = clock
        self._made_s = float("-inf")
        self._making: asyncio.Future[_T] | None = None

    async def get(self) -> _T:
        """Return the answer, made now or within the last ``recent_s`` seconds; raise what making it raised."""
        if self._making is None or (self._making.done() and self._clock() - self._made_s >= self._recent_s):
            self._making = asyncio.ensure_future(self._make())
            self._making.add_done_callback(self._note)
        # A caller that leaves does not end it for the others.
        return await asyncio.shield(self._making)

    def _note(self, made: "asyncio.Future[_T]") -> None:
        self._made_s = self._clock()
        if not made.cancelled():
            # Looked at here, so that a failure which no caller has waited for is not reported as lost.
            made.exception()

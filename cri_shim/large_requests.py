"""Large requests, of which a tenant may have as many as pods: one at a time is worked on, beside the event loop."""

import asyncio
import time
from collections.abc import Callable
from typing import ParamSpec, TypeVar

# A request of this size takes up to a millisecond; a usual one has some kilobytes.
_LARGE_BYTES = 1 << 14

_Result = TypeVar("_Result")
_Given = ParamSpec("_Given")


class LargeRequests:
    """Let one large request at a time be worked on, and at most half of the time.

    Whoever decodes one keeps the interpreter for many milliseconds, and the event loop needs it whenever it wakes up.
    """

    def __init__(self) -> None:
        self._one = asyncio.Lock()
        self._from_s = 0.0

    async def apart(
        self, raw: bytes, act: Callable[_Given, _Result], *given: _Given.args, **named: _Given.kwargs
    ) -> _Result:
        """Do what a request needs; for a large one when the last one has been over for as long as it took."""
        if len(raw) <= _LARGE_BYTES:
            return act(*given, **named)
        async with self._one:
            await asyncio.sleep(max(self._from_s - time.monotonic(), 0.0))
            began_s = time.monotonic()
            try:
                return await asyncio.to_thread(act, *given, **named)
            finally:
                ended_s = time.monotonic()
                self._from_s = ended_s + (ended_s - began_s)

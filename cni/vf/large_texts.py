"""Large texts that a tenant may write for each of his pods, networks and assignments: one at a time is read."""

import heapq
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from itertools import count

from mooring.program.memory import give_back

# One of this size takes some milliseconds; a usual configuration has a kilobyte, beside the pod's annotations.
LARGE_BYTES = 1 << 14
# When so many seconds have gone without a large one, their memory is given back.
_REST_S = 1.0


class LargeTexts:
    """Let one large text at a time be read, the smallest that waits first, and at most half of the time.

    Whoever reads keeps the interpreter for many milliseconds, and another call needs it again for each of its steps.
    """

    def __init__(self) -> None:
        self._guard = threading.Lock()
        self._busy = False
        self._waiting: list[tuple[int, int, threading.Event]] = []
        self._numbers = count()
        self._from_s = 0.0
        self._rest: threading.Timer | None = None

    @property
    def waiting(self) -> int:
        """How many wait for their turn."""
        return len(self._waiting)

    @contextmanager
    def turn(self, size: int) -> Iterator[None]:
        """Wait until the last one has been over for as long as it took, where this one of so many bytes is large."""
        if size <= LARGE_BYTES:
            yield
            return
        self._await_turn(size)
        try:
            time.sleep(max(self._from_s - time.monotonic(), 0.0))
            began_s = time.monotonic()
            try:
                yield
            finally:
                ended_s = time.monotonic()
                self._from_s = ended_s + (ended_s - began_s)
        finally:
            self._pass_on()

    def _await_turn(self, size: int) -> None:
        with self._guard:
            if not self._busy:
                self._busy = True
                return
            turn = threading.Event()
            heapq.heappush(self._waiting, (size, next(self._numbers), turn))
        turn.wait()

    def _pass_on(self) -> None:
        with self._guard:
            if self._waiting:
                _, _, turn = heapq.heappop(self._waiting)
                turn.set()
                return
            self._busy = False
            if self._rest is not None:
                self._rest.cancel()
            self._rest = threading.Timer(_REST_S, give_back)
            self._rest.daemon = True
            self._rest.start()


LARGE = LargeTexts()

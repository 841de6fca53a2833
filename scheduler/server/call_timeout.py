"""End a constraint's call that takes too long, by the process's alarm clock.

Python cannot end code of another thread, so that the alarm is this thread's own: it works where signals are delivered,
in the main thread, between two steps of Python code. Elsewhere, and in a call that stays in C, the time is looked at
when the call is over.
"""

import signal
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from types import FrameType

from scheduler.constraints.isolation import TooSlow

# Reading an annotation takes microseconds; a machine that stands still for a moment is nobody's fault. In seconds.
LIMIT_S = 0.5


class Alarm:
    """The alarm clock of the main thread; one a process."""

    def __init__(self, limit_s: float = LIMIT_S) -> None:
        self._limit_s = limit_s
        self._armed = False

    @contextmanager
    def patience(self) -> Iterator[None]:
        """Raise TooSlow in, or right after, what takes longer than the limit."""
        began, rings = time.monotonic(), threading.current_thread() is threading.main_thread()
        if rings:
            self._set()
        try:
            yield
        finally:
            self._armed = False
            if rings:
                signal.setitimer(signal.ITIMER_REAL, 0)
        if time.monotonic() - began > self._limit_s:
            raise self._too_slow()

    def _set(self) -> None:
        signal.signal(signal.SIGALRM, self._ring)
        self._armed = True
        signal.setitimer(signal.ITIMER_REAL, self._limit_s)

    def _ring(self, _number: int, _frame: FrameType | None) -> None:
        # It may ring after the call has ended, before the clock was stopped; and never twice for one call.
        if self._armed:
            self._armed = False
            raise self._too_slow()

    def _too_slow(self) -> TooSlow:
        return TooSlow(f"it took longer than {self._limit_s:g} s")

"""Interrupt a constraint's call that takes too long, by the process's alarm signal.

Python cannot end code in another thread, so the alarm interrupts this one. This works where signals are delivered: in
the main thread, between two bytecode instructions. In other threads, and in a call that stays in C code, the time is
checked after the call.
"""

import signal
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from types import FrameType

from scheduler.constraints.isolation import TooSlow

# Seconds. Reading an annotation takes microseconds; a machine may stall for a moment.
LIMIT_S = 0.5


class CallTimeout:
    """The time limit of a call, by the alarm of the main thread; one for each process."""

    def __init__(self, limit_s: float = LIMIT_S) -> None:
        self._limit_s = limit_s
        self._armed = False

    @contextmanager
    def limit(self) -> Iterator[None]:
        """Raise TooSlow in, or right after, code that exceeds the limit."""
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
        # The signal may arrive after the call has ended, before the timer was stopped; it must never raise twice for
        # one call.
        if self._armed:
            self._armed = False
            raise self._too_slow()

    def _too_slow(self) -> TooSlow:
        return TooSlow(f"it took longer than {self._limit_s:g} s")

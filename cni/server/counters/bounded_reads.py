"""Read from many sources that may hang, each in its own thread and with a time limit.

A thread that waits for a driver cannot be stopped. It continues, and its source is not read again until it has ended,
so each source has at most one thread. At the next call, sources that had no time come first, and sources that took too
long come last, so that slow sources do not hide the others forever.
"""

import queue
import threading
import time
from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass
from functools import partial

import structlog

_log = structlog.get_logger()


@dataclass(frozen=True, slots=True)
class ReadLimits:
    """The limits: seconds for one source and for all of them, and how many are read in parallel."""

    each_s: float = 2.0
    all_s: float = 5.0
    at_once: int = 8


class BoundedReads:
    """Runs reads in one-shot threads, one for each source; for one caller at a time."""

    def __init__(self, limits: ReadLimits | None = None) -> None:
        self._limits = limits or ReadLimits()
        self._unfinished: dict[str, threading.Thread] = {}
        self._slow: frozenset[str] = frozenset()
        self._not_begun: frozenset[str] = frozenset()

    def run(self, reads: Mapping[str, Callable[[], None]]) -> Collection[str]:
        """Run the reads by source; return the sources that were not read completely in time.

        A thread may continue after that, so the caller must not depend on what it writes later.
        """
        self._unfinished = {source: thread for source, thread in self._unfinished.items() if thread.is_alive()}
        ended: queue.SimpleQueue[str] = queue.SimpleQueue()
        late = set(reads.keys() & self._unfinished.keys())
        waiting = sorted(reads.keys() - late, key=self._turn, reverse=True)
        deadline, running = time.monotonic() + self._limits.all_s, dict[str, float]()
        while (waiting or running) and (now := time.monotonic()) < deadline:
            while waiting and len(running) < self._limits.at_once:
                source = waiting.pop()
                running[source] = now + self._limits.each_s
                self._start(source, reads[source], ended)
            try:
                running.pop(ended.get(timeout=max(min(deadline, *running.values()) - now, 0)), None)
            except queue.Empty:
                overdue = {source for source, until in running.items() if until <= time.monotonic()}
                late |= overdue
                running = {source: until for source, until in running.items() if source not in overdue}
        self._slow, self._not_begun = frozenset(late | running.keys()), frozenset(waiting)
        return self._slow | self._not_begun

    def _turn(self, source: str) -> tuple[bool, bool]:
        return source in self._slow, source not in self._not_begun

    def _start(self, source: str, read: Callable[[], None], ended: "queue.SimpleQueue[str]") -> None:
        # A daemon thread, so that the server can exit while a driver hangs.
        thread = threading.Thread(target=partial(_run, source, read, ended), name=f"counters {source}", daemon=True)
        self._unfinished[source] = thread
        thread.start()


def _run(source: str, read: Callable[[], None], ended: "queue.SimpleQueue[str]") -> None:
    try:
        read()
    except OSError as failed:
        _log.debug("cannot read the counters", source=source, reason=str(failed))
    except Exception:  # noqa: BLE001 - the top of a thread: an error of one source must not stop others
        _log.exception("reading counters failed unexpectedly", source=source)
    finally:
        ended.put(source)

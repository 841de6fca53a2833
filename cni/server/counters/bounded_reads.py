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
    most_threads: int = 8


class BoundedReads:
    """Runs reads in one-shot threads, one for each source; for one caller at a time."""

    def __init__(self, limits: ReadLimits | None = None) -> None:
        self._limits = limits or ReadLimits()
        self._threads: dict[str, threading.Thread] = {}
        self._slow: frozenset[str] = frozenset()
        self._backlog: frozenset[str] = frozenset()

    def run(self, reads: Mapping[str, Callable[[], None]]) -> Collection[str]:
        """Run the reads by source; return the sources that were not read completely in time.

        A thread may continue after that, so the caller must not depend on what it writes later.
        """
        self._threads = {source: thread for source, thread in self._threads.items() if thread.is_alive()}
        endings: queue.SimpleQueue[str] = queue.SimpleQueue()
        late_sources = set(reads.keys() & self._threads.keys())
        pending = sorted(reads.keys() - late_sources, key=self._turn, reverse=True)
        deadline, limits = time.monotonic() + self._limits.all_s, dict[str, float]()
        while (pending or limits) and (now := time.monotonic()) < deadline:
            while pending and len(limits) < self._limits.most_threads:
                source = pending.pop()
                limits[source] = now + self._limits.each_s
                self._start(source, reads[source], endings)
            try:
                limits.pop(endings.get(timeout=max(min(deadline, *limits.values()) - now, 0)), None)
            except queue.Empty:
                overdue = {source for source, until in limits.items() if until <= time.monotonic()}
                late_sources |= overdue
                limits = {source: until for source, until in limits.items() if source not in overdue}
        self._slow, self._backlog = frozenset(late_sources | limits.keys()), frozenset(pending)
        return self._slow | self._backlog

    def _turn(self, source: str) -> tuple[bool, bool]:
        return source in self._slow, source not in self._backlog

    def _start(self, source: str, read: Callable[[], None], endings: "queue.SimpleQueue[str]") -> None:
        # A daemon thread, so that the server can exit while a driver hangs.
        thread = threading.Thread(target=partial(_run, source, read, endings), name=f"counters {source}", daemon=True)
        self._threads[source] = thread
        thread.start()


def _run(source: str, read: Callable[[], None], endings: "queue.SimpleQueue[str]") -> None:
    try:
        read()
    except OSError as error:
        _log.debug("cannot read the counters", source=source, reason=str(error))
    except Exception:  # noqa: BLE001 - the top of a thread: an error of one source must not stop others
        _log.exception("reading counters failed unexpectedly", source=source)
    finally:
        endings.put(source)

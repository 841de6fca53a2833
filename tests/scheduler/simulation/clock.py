"""An event loop in virtual time: it never waits, so a simulated hour takes seconds and equal seeds give equal runs.

Every callback belongs to a process, by the context it was made in. A frozen process (SIGSTOP, a long pause) gets none
of its callbacks before it is thawed; they then come all at once, at a later time.
"""

import asyncio
import functools
import heapq
import itertools
import selectors
import socket
from collections.abc import Callable, Coroutine
from contextlib import AbstractContextManager
from contextvars import Context, ContextVar
from typing import Any

# Whose code is running: the name of a simulated scheduler, or empty for the world around it.
PROCESS: ContextVar[str] = ContextVar("process", default="")
# UNIX time at which every simulation begins: 2026-01-01.
EPOCH_S = 1_767_225_600.0
# What one reading of the clock costs, in seconds, so that code which works until a time gets there.
_LOOK_S = 20e-6
# Tasks of a process that are remembered beyond their end, before they are looked through.
_MOST_DONE = 256


class _NoSelector(selectors.SelectSelector):
    """Nothing outside the simulation ever happens."""

    def select(self, timeout: float | None = None) -> list[tuple[selectors.SelectorKey, int]]:
        return []


class _Numbered(asyncio.Task[Any]):
    """A task that sets order by its number, not by its address, so that cancellation has one order."""

    def __init__(self, number: int, *arguments: Any, **options: Any) -> None:
        self._number = number
        super().__init__(*arguments, **options)

    def __hash__(self) -> int:
        return self._number


class VirtualLoop(asyncio.SelectorEventLoop):
    """Run what is ready; when nothing is, jump to the next timer. What asks for a thread is done at once.

    ``connect`` makes a connection in memory: whoever opens one gets that, whatever address it names. ``listen`` takes
    those of a process that serves.
    """

    _ready: Any
    _scheduled: list[Any]
    _timer_cancelled_count: int

    def __init__(self) -> None:
        self.now_s = 0.0
        # By how many seconds the UNIX time of a process is wrong.
        self.wall_errors_s: dict[str, float] = {}
        self._frozen: dict[str, list[asyncio.Handle]] = {}
        self._numbers = itertools.count()
        self._signals: dict[str, Callable[[], object]] = {}
        self._tasks: dict[str, list[asyncio.Task[Any]]] = {}
        self.connect: Callable[[Callable[[], Any], socket.socket | None], tuple[asyncio.Transport, Any]]
        self.listen: Callable[[Callable[[], Any]], AbstractContextManager[None]]
        super().__init__(_NoSelector())
        self.set_task_factory(self._make_task)  # type: ignore[arg-type]

    def time(self) -> float:
        return self.now_s

    def look(self) -> float:
        """Read the monotonic clock as a program does: that takes a moment."""
        self.now_s += _LOOK_S
        return self.now_s

    def wall(self) -> float:
        """Return UNIX time, as the machine of the running process has it."""
        return EPOCH_S + self.now_s + self.wall_errors_s.get(PROCESS.get(), 0.0)

    def freeze(self, process: str) -> None:
        self._frozen.setdefault(process, [])

    def thaw(self, process: str) -> None:
        self._ready.extend(self._frozen.pop(process, ()))

    async def end(self, process: str) -> None:
        """Cancel whatever a process still does, until it has ended: a timeout may swallow one cancellation."""
        self.thaw(process)
        while tasks := self.cancel(process):
            await asyncio.wait(tasks, timeout=1.0)

    def cancel(self, process: str) -> "list[asyncio.Task[Any]]":
        """Cancel and return the tasks that a process still has, as `asyncio.run` does at its end."""
        self._tasks[process] = tasks = [task for task in self._tasks.get(process, []) if not task.done()]
        for task in tasks:
            task.cancel()
        return list(tasks)

    def _make_task(
        self, loop: asyncio.AbstractEventLoop, coroutine: Coroutine[Any, Any, Any], context: Context | None = None
    ) -> "asyncio.Task[Any]":
        task = _Numbered(next(self._numbers), coroutine, loop=loop, context=context)
        if process := context.get(PROCESS, "") if context else PROCESS.get():
            known = self._tasks.setdefault(process, [])
            if len(known) > _MOST_DONE:
                known[:] = [one for one in known if not one.done()]
            known.append(task)
        return task

    def add_signal_handler(self, sig: int, callback: Any, *args: Any) -> None:  # type: ignore[override]
        """Remember how a process takes a signal."""
        self._signals[PROCESS.get()] = functools.partial(callback, *args)

    def signal(self, process: str) -> None:
        """Ask a process to end, as SIGTERM does; it may not listen yet."""
        if process in self._signals:
            self.call_soon(self._signals[process])

    async def sock_connect(self, sock: socket.socket, address: Any) -> None:
        pass

    async def create_connection(self, protocol_factory: Any, *_: Any, **options: Any) -> tuple[asyncio.Transport, Any]:
        return self.connect(protocol_factory, options.get("sock"))

    def run_in_executor(  # type: ignore[override]
        self, executor: Any, func: Callable[..., Any], *args: Any
    ) -> "asyncio.Future[Any]":
        done = self.create_future()
        done.set_result(func(*args))
        return done

    def _run_once(self) -> None:
        self._sift(len(self._ready))
        while not self._ready:
            self._jump()
        super()._run_once()  # type: ignore[misc]

    def _sift(self, count: int) -> None:
        """Keep back what belongs to frozen processes."""
        if not self._frozen:
            return
        for _ in range(count):
            handle = self._ready.popleft()
            self._frozen.get(handle._context.get(PROCESS, ""), self._ready).append(handle)

    def _jump(self) -> None:
        """Go to the next timer, and make it ready with all others that are due then."""
        if not self._scheduled:
            raise RuntimeError("nothing will ever happen again in this simulation")
        self.now_s = max(self.now_s, self._scheduled[0]._when)
        while self._scheduled and self._scheduled[0]._when <= self.now_s:
            handle = heapq.heappop(self._scheduled)
            handle._scheduled = False
            if handle._cancelled:
                self._timer_cancelled_count -= 1
            else:
                self._ready.append(handle)
        self._sift(len(self._ready))

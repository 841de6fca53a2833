"""Carry out the machine's orders: start the writes, and return their results as messages."""

import asyncio
import time
from collections import deque
from collections.abc import Callable, Coroutine, Sequence
from functools import partial
from itertools import islice
from typing import Any, TypeVar

import msgspec
import structlog

from mooring.kube.client import Client
from scheduler.cycle.decisions import Bind
from scheduler.cycle.instructions import DeleteVictims, Evict, Order, PreBind, Result, WriteRates
from scheduler.server import metrics
from scheduler.server.bind import bind, pre_bind, write_rates
from scheduler.server.evict import delete_victims, evict
from scheduler.server.report_writer import ReportWriter, timestamp
from scheduler.state.machine import Machine

_log = structlog.get_logger()
_T = TypeVar("_T")
# Number of writes that start in one iteration of the event loop: the 4,096 Bindings of a group take 50 ms of CPU until
# all have started.
PORTION = 256
# Seconds after which a write without a definite answer no longer counts as in progress: its namespace gets few at once
# (`scheduler/state/open_writes.py`).
_LONG_S = 1.0


class WriteResult(msgspec.Struct, frozen=True):
    """The end of a write."""

    order: Order
    result: Result


class Writes:
    """The writes in progress and those that are about to start; results go to ``receive``.

    ``wake`` is called after each, also after a write that has no result for the machine.
    """

    def __init__(
        self,
        machine: Machine,
        client: Client,
        reports: ReportWriter,
        receive: Callable[[WriteResult], None],
        wake: Callable[[], None],
    ) -> None:
        self._machine = machine
        self._client = client
        self._reports = reports
        self._receive = receive
        self._wake = wake
        self._profile_metrics = metrics.ProfileMetrics(machine.scheduler_name)
        self._queue: deque[Callable[[], Coroutine[Any, Any, None]]] = deque()
        # Their start times, in this order.
        self._tasks: dict[asyncio.Task[Any], float] = {}

    def __len__(self) -> int:
        return len(self._tasks) + len(self._queue)

    def put(self, orders: Sequence[Order], now: float) -> None:
        """Start the orders in portions, the first portion at once; ``now`` is the machine's time."""
        is_idle = not self._queue
        self._queue += [self._call(order, now) for order in orders]
        if is_idle:
            self._start_portion()

    def start(self, write: Coroutine[None, None, _T]) -> "asyncio.Task[_T]":
        """Start a write that must end before the loop ends."""
        task = asyncio.create_task(write)
        self._tasks[task] = time.monotonic()
        task.add_done_callback(self._end)
        return task

    def reach(self, count: int) -> bool:
        """Return whether at least this many are in progress; those without an answer for long do not count."""
        if len(self) < count:
            return False
        start_s = next(islice(self._tasks.values(), len(self) - count, None), float("inf"))
        return start_s > time.monotonic() - _LONG_S

    async def drain(self, timeout_s: float) -> None:
        """Wait until all have ended, for a limited time."""
        while self._queue:
            await asyncio.sleep(0)
        if self._tasks:
            await asyncio.wait(self._tasks, timeout=timeout_s)

    def cancel(self) -> None:
        self._queue.clear()
        for task in self._tasks:
            task.cancel()

    def _call(self, order: Order, now: float) -> Callable[[], Coroutine[Any, Any, None]]:
        if not isinstance(order, Bind):
            return partial(self._write, order)
        pending = self._machine.pending_pods[order.pod_info.uid]
        return partial(self._bind, order, time.monotonic() - (now - pending.since), pending.attempts)

    def _start_portion(self) -> None:
        for _ in range(min(PORTION, len(self._queue))):
            self.start(self._queue.popleft()())
        if self._queue:
            asyncio.get_running_loop().call_soon(self._start_portion)

    def _end(self, task: "asyncio.Task[Any]") -> None:
        self._tasks.pop(task, None)
        self._wake()
        if not task.cancelled() and (error := task.exception()) is not None:
            # The state that it was to write stays assumed.
            _log.error("bug: a write failed", exc_info=error, reason=str(error))

    async def _bind(self, decision: Bind, queue_start_s: float, attempts: int) -> None:
        start_s = time.monotonic()
        outcome = await bind(self._client, decision)
        self._profile_metrics.bind(outcome, time.monotonic() - start_s)
        if outcome.kind == "bound":
            self._profile_metrics.success(time.monotonic() - queue_start_s, attempts)
        self._receive(WriteResult(decision, outcome))

    async def _write(self, order: PreBind | Evict | DeleteVictims | WriteRates) -> None:
        self._receive(WriteResult(order, await self._result(order)))

    async def _result(self, order: PreBind | Evict | DeleteVictims | WriteRates) -> Result:
        match order:
            case PreBind():
                return await pre_bind(self._client, order)
            case Evict():
                result = await evict(self._client, order)
                metrics.EVICTIONS.labels(order.cause, result).inc()
                return result
            case DeleteVictims():
                metrics.PREEMPTIONS.inc()
                metrics.VICTIMS.observe(len(order.victims))
                return await delete_victims(self._client, order, self._machine.scheduler_name)
            case WriteRates():
                self._reports.drop_rates(order)
                rates_result = await write_rates(self._client, order, timestamp())
                metrics.RATE_CHANGES.labels(rates_result.kind).inc()
                return rates_result

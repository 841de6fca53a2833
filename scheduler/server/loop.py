"""Run the machine: watch events in, decisions out, with many Bindings in progress.

The readers only put events into the inbox. The one task that owns the machine takes them out, decides in slices of a
few milliseconds, and starts a task for each Binding. A standby follows the cluster too, and decides nothing. `lead`
lists everything again, so that all writes of an earlier leader are included, and then decides for as long as
``may_decide`` returns True.
"""

import asyncio
import time
from collections.abc import Callable, Coroutine, Iterator
from dataclasses import dataclass
from itertools import chain, islice
from typing import Any, TypeVar

import msgspec
import structlog

from mooring.kube.client import Client
from mooring.kube.events import Synced
from scheduler.cycle.decisions import Bind
from scheduler.cycle.instructions import (
    DeleteVictims,
    Evict,
    Instruction,
    Notice,
    Order,
    PreBind,
    Report,
    ReportGroup,
    ReportRates,
    Result,
    WriteRates,
)
from scheduler.server import metrics
from scheduler.server.bind import bind, pre_bind, write_rates
from scheduler.server.evict import delete_victims, evict
from scheduler.server.reporting.writer import Writer, timestamp
from scheduler.server.watching.inbox import Inbox
from scheduler.server.watching.reflectors import EndOfList, Reflectors, WatchEvent, taken_apart
from scheduler.state.machine import Machine

_log = structlog.get_logger()
_T = TypeVar("_T")
# Seconds after which the machine's task yields to the readers.
_SLICE_S = 0.01
# Seconds of messages without a pause after which a slice goes to decisions: a node may change faster than its changes
# are processed.
_MESSAGES_S = 0.05
# Seconds between two checks while a leader may not decide.
_LOOK_S = 0.25
# The number of connections, and of a few Bindings that wait for the next answer; not more, because a decision should
# use the newest state. With this many in progress, the next pods are scheduled together once fewer are, and not before
# this many seconds: working in one batch takes a tenth less CPU.
_MOST_BINDS = 160
_FEWER_BINDS = 96
_TOGETHER_S = 0.002
# While this many are in progress, events wait.
_PRESSED = 16
# Seconds after which a write without a definite answer no longer counts as in progress: its namespace gets few at once
# (`scheduler/state/open_writes.py`).
_LONG_S = 1.0
# Seconds for which the loop waits for Bindings when it ends: well within a pod's 30 s of grace.
_DRAIN_S = 20.0


class Finished(msgspec.Struct, frozen=True):
    """A write that has ended, and its result."""

    order: Order
    result: Result


@dataclass(frozen=True, slots=True)
class _OpenList:
    """A whole list that is being processed: entry by entry, before all later messages, in slices like all other work.

    All entries have one time of arrival, so that pods that wait together are ordered by age, and not by their place in
    the list.
    """

    rest: Iterator[WatchEvent | EndOfList | None]
    at: float


_Message = WatchEvent | EndOfList | _OpenList | Finished


@dataclass(frozen=True, slots=True)
class ApiClients:
    """The clients of the API server: ``api`` to read, ``leaders`` to bind and to evict, for leaders only."""

    api: Client
    leaders: Client


class Loop:
    """One running scheduler; ``settled`` is called when all lists have been processed.

    ``clock`` is monotonic, in seconds. An administrator or NTP may set UNIX time back or forward; pods would then wait
    for hours, or healthy ones would be evicted. UNIX time is only for what the API server shows.
    """

    def __init__(
        self,
        machine: Machine,
        clients: ApiClients,
        writer: Writer,
        clock: Callable[[], float],
        may_decide: Callable[[], bool] = lambda: True,
        settled: Callable[[], object] = lambda: None,
    ) -> None:
        self._machine = machine
        self._clients = clients
        self._writer = writer
        self._clock = clock
        self._read_unix_time()
        self._may_decide = may_decide
        self._settled = settled
        self._profile_metrics = metrics.ProfileMetrics(machine.scheduler_name)
        # The time of a decision that needs another step.
        self._timed: metrics.DecisionTiming | None = None
        self._inbox: Inbox[_Message] = Inbox()
        # When messages last did not delay decisions.
        self._undisturbed = time.monotonic()
        self._awake = asyncio.Event()
        self._reflectors = Reflectors(clients.api, self._receive, machine.event_handlers.has)
        self._group: asyncio.TaskGroup | None = None
        # Ordered, so that a simulation with the same seed gives the same result.
        self._writes: dict[asyncio.Task[Any], float] = {}
        self._leads = False
        self._stopping = False
        self._not_before = 0.0
        self._was_held_up = False
        self._has_most = False

    def not_ready(self) -> str:
        """Return why this scheduler cannot take over yet; empty if it can, or already leads."""
        return self._reflectors.never_listed()

    async def ready(self) -> None:
        await self._reflectors.followed.wait()

    def lead(self, not_before: float = 0.0) -> None:
        """List everything again, then decide; no Binding starts before ``not_before`` on the monotonic clock.

        Nothing starts after `stop`: it would keep `run` from ending, and the next leader from getting the lease.
        """
        if self._stopping:
            return
        self._leads, self._not_before = True, not_before
        self._read_unix_time()
        # Messages that are already in the inbox are older than the lists to come.
        self._inbox.clear()
        if self._group is not None:
            self._reflectors.begin(self._group)

    def _read_unix_time(self) -> None:
        offset_s = time.time() - self._clock()  # noqa: TID251 - the API server's times are UNIX time
        self._machine.state.run_times.unix_offset_s = offset_s

    async def run(self) -> bool:
        """Work until `stop`, then wait for the Bindings in progress; return whether all of them have ended."""
        try:
            async with asyncio.TaskGroup() as self._group:
                self._reflectors.begin(self._group)
                writing = self._group.create_task(self._writer.run())
                await self._work()
                drained = await self._drain()
                await self._reflectors.ended()
                writing.cancel()
        finally:
            for task in self._writes:
                task.cancel()
        return drained

    def standing_by(self) -> str:
        """Return why the extender may not decide now; empty if it may, as a leader that has listed everything."""
        if self._stopping:
            return "is shutting down"
        if not self._leads or not self._may_decide():
            return "does not lead"
        if missing := self._reflectors.missing():
            return missing
        return "" if time.monotonic() >= self._not_before else "has just become the leader"

    def start(self, write: Coroutine[None, None, _T]) -> "asyncio.Task[_T]":
        """Start a write that must finish before the loop ends; what it releases is assigned again when it has ended."""
        task = asyncio.create_task(write)
        self._writes[task] = time.monotonic()
        task.add_done_callback(self._ended)
        return task

    def stop(self) -> None:
        self._stopping = True
        self._awake.set()

    def _receive(self, message: _Message) -> None:
        self._inbox.put(message)
        self._awake.set()

    async def _work(self) -> None:
        while not self._stopping:
            self._awake.clear()
            more = self._slice()
            self._writer.give_way(pressed=self._are_under_way(_PRESSED), amid_decisions=more)
            if more:
                await asyncio.sleep(0)
            else:
                await self._wait()
                self._undisturbed = time.monotonic()

    async def _drain(self) -> bool:
        if self._writes:
            await asyncio.wait(self._writes, timeout=_DRAIN_S)
        while self._inbox:
            if isinstance(message := self._inbox.take(), Finished):
                self._follow(self._take(message))
        self._writer.give_way(pressed=False)
        await self._writer.flush()
        return not self._writes

    def _slice(self) -> bool:
        """Work for one slice; return whether there is more to do."""
        began = time.monotonic()
        decides = self._are_decisions_due(began)
        while time.monotonic() < began + _SLICE_S:
            try:
                if decides:
                    decides = self._decide()
                elif not self._advance():
                    return False
            except Exception:  # noqa: BLE001 - the top of the program's loop: one bad object must not stop the rest
                _log.exception("bug: an event or a decision failed")
                self._follow(self._machine.give_up(self._clock()))
        return True

    def _are_decisions_due(self, now: float) -> bool:
        """Return whether messages have come first for too long; a list is processed as a whole."""
        return bool(self._inbox) and now - self._undisturbed > _MESSAGES_S and not self._inbox.starts_with(_OpenList)

    def _advance(self) -> bool:
        """Process one message, do what is due, or schedule one pod; return whether there was anything to do."""
        if self._inbox:
            self._follow(self._take(self._inbox.take()))
            return True
        return self._decide()

    def _decide(self) -> bool:
        """Do what is due, or schedule one pod; return whether there was anything to do."""
        self._undisturbed = time.monotonic()
        self._has_most = self._are_under_way(_FEWER_BINDS if self._has_most else _MOST_BINDS)
        self._was_held_up = self._held_up()
        if self._was_held_up:
            return False
        now = self._clock()
        self._follow(self._machine.tick(now))
        timed = self._timed or metrics.DecisionTiming()
        instructions = self._machine.step(now, timed.record_phase)
        if instructions is None:
            self._timed = None
            return False
        self._timed = timed if self._machine.is_trying else None
        if self._timed is None and not self._machine.has_set_aside:
            self._profile_metrics.decision(timed, instructions)
        self._follow(instructions)
        return True

    def _held_up(self) -> bool:
        """Return whether nothing may be decided now: another scheduler leads, lists are old, or too many Bindings are
        in progress.
        """
        if not self._leads or not self._may_decide() or self._reflectors.missing():
            return True
        return self._has_most or time.monotonic() < self._not_before

    def _are_under_way(self, count: int) -> bool:
        """Return whether at least this many writes are in progress; those without an answer for long do not count."""
        if len(self._writes) < count:
            return False
        # They are in the order in which they started.
        earliest = next(islice(self._writes.values(), len(self._writes) - count, None))
        return earliest > time.monotonic() - _LONG_S

    def _take(self, message: _Message, at: float | None = None) -> list[Instruction]:
        now = self._clock() if at is None else at
        match message:
            case WatchEvent(kind, Synced() as listed):
                steps = self._machine.event_handlers.handle_list(kind, listed.there, now)
                self._inbox.put_first(_OpenList(chain(steps, taken_apart(kind, listed)), now))
            case _OpenList(rest, came):
                for first in rest:
                    self._inbox.put_first(message)
                    return self._take(first, came) if first is not None else []
            case EndOfList():
                self._reflectors.note(message, leads=self._leads)
                if not self._reflectors.missing():
                    self._settled()
                return self._machine.report_again() if self._leads and not self._reflectors.missing() else []
            case WatchEvent(kind, event):
                return self._machine.handle(kind, event, now)
            case Finished(order, result):
                return self._machine.finished(order, result, now)
        return []

    def _follow(self, instructions: list[Instruction]) -> None:
        for instruction in instructions:
            match instruction:
                case Bind():
                    waited = self._machine.pending_pods.waited(instruction.pod_info.uid)
                    self.start(self._bind(instruction, *waited))
                case PreBind() | Evict() | DeleteVictims() | WriteRates():
                    self.start(self._carry_out(instruction))
                case _:
                    self._tell(instruction)

    def _tell(self, instruction: Report | ReportGroup | ReportRates | Notice) -> None:
        match instruction:
            case Report():
                self._report(instruction)
            case ReportRates():
                self._writer.put_rates(instruction)
            case ReportGroup():
                self._writer.put_group(instruction)
            case Notice(subject, event, fields):
                metrics.IGNORED_OBJECTS.labels(subject).inc()
                _log.warning(event, **fields)

    def _ended(self, task: "asyncio.Task[Any]") -> None:
        self._writes.pop(task, None)
        self._awake.set()
        if not task.cancelled() and (failed := task.exception()) is not None:
            # The state that it was to write stays assumed.
            _log.error("bug: a write failed", exc_info=failed, reason=str(failed))

    async def _bind(self, decision: Bind, since: float, attempts: int) -> None:
        began = time.monotonic()
        outcome = await bind(self._clients.leaders, decision)
        self._profile_metrics.bind(outcome, time.monotonic() - began)
        if outcome.kind == "bound":
            self._profile_metrics.scheduled(self._clock() - since, attempts)
        self._receive(Finished(decision, outcome))

    async def _carry_out(self, order: PreBind | Evict | DeleteVictims | WriteRates) -> None:
        self._receive(Finished(order, await self._write(order)))

    async def _write(self, order: PreBind | Evict | DeleteVictims | WriteRates) -> Result:
        leaders = self._clients.leaders
        match order:
            case PreBind():
                return await pre_bind(leaders, order)
            case Evict():
                ending = await evict(leaders, order)
                metrics.EVICTIONS.labels(order.cause, ending).inc()
                return ending
            case DeleteVictims():
                metrics.PREEMPTIONS.inc()
                metrics.VICTIMS.observe(len(order.victims))
                return await delete_victims(leaders, order, self._machine.scheduler_name)
            case WriteRates():
                self._writer.drop_rates(order)
                result = await write_rates(leaders, order, timestamp())
                metrics.RATE_CHANGES.labels(result.kind).inc()
                return result

    def _report(self, report: Report) -> None:
        if not self._leads:
            return
        if report.reason in ("Unschedulable", "InvalidRequest"):
            fields = {"pod": report.pod.key, "uid": report.pod.metadata.uid, "reason": report.message}
            _log.info("pod not scheduled", **fields)
        self._writer.put(report)

    async def _wait(self) -> None:
        """Sleep until a message arrives, something is due, the first Binding may start or the Lease may be certain
        again.
        """
        if self._has_most:
            await asyncio.sleep(_TOGETHER_S)
        try:
            async with asyncio.timeout(self._idle_s()):
                await self._awake.wait()
        except TimeoutError:
            return

    def _idle_s(self) -> float | None:
        """Return the longest time without work unless a message arrives, in seconds; None without limit."""
        if self._held_up():
            # A late renewal sends no message, nor does a write that becomes old.
            early = self._not_before - time.monotonic()
            return (min(_LOOK_S, early) if early > 0 else _LOOK_S) if self._leads else None
        if self._was_held_up:
            return 0.0
        due = self._machine.next_due()
        return None if due is None else max(due - self._clock(), 0.0)

"""Run the machine: watch events in, decisions out, with many Bindings in progress.

The readers only put events into the inbox. The one task that owns the machine takes them out, decides in slices of a
few milliseconds, and starts a task for each Binding. A standby follows the cluster too, and decides nothing. `lead`
lists everything again, so that all writes of an earlier leader are included, and then decides for as long as
``may_decide`` returns True.
"""

import asyncio
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from itertools import chain

import structlog

from mooring.kube.client import Client
from mooring.kube.events import Synced
from scheduler.cycle.instructions import Instruction, Notice, Order, Report, ReportGroup, ReportRates
from scheduler.server import metrics
from scheduler.server.report_writer import ReportWriter
from scheduler.server.reports import is_of_pending
from scheduler.server.watches import EndOfList, Inbox, Message, Reflectors, WatchEvent, list_messages
from scheduler.server.writes import WriteResult, Writes
from scheduler.state.machine import Machine

_log = structlog.get_logger()
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
_MAX_BINDS = 160
_FEWER_BINDS = 96
_BATCH_S = 0.002
# While this many are in progress, events wait.
_BINDS_BEFORE_EVENTS = 16
# Seconds for which the loop waits for Bindings when it ends: well within a pod's 30 s of grace.
_DRAIN_S = 20.0


@dataclass(frozen=True, slots=True)
class ApiClients:
    """The clients of the API server: ``api`` to read, ``leaders`` to bind and to evict, for leaders only."""

    api: Client
    leaders: Client


class Loop:
    """One running scheduler; ``end_of_lists`` is called when all lists have been processed.

    ``clock`` is monotonic, in seconds. An administrator or NTP may set UNIX time back or forward; pods would then wait
    for hours, or healthy ones would be evicted. UNIX time is only for what the API server shows.
    """

    def __init__(
        self,
        machine: Machine,
        clients: ApiClients,
        reports: ReportWriter,
        clock: Callable[[], float],
        may_decide: Callable[[], bool] = lambda: True,
        end_of_lists: Callable[[], object] = lambda: None,
    ) -> None:
        self._machine, self._reports, self._clock = machine, reports, clock
        self._may_decide, self._end_of_lists = may_decide, end_of_lists
        self._read_unix_time()
        self._profile_metrics = metrics.ProfileMetrics(machine.scheduler_name)
        # Of a decision that needs another step.
        self._timing: metrics.DecisionTiming | None = None
        self._inbox = Inbox()
        # The rest of a list: taken before all later messages, in slices like all other work. All entries have one time
        # of arrival, so that pods that wait together are ordered by age, and not by their place in the list.
        self._list: Iterator[WatchEvent | EndOfList | None] | None = None
        self._list_time = 0.0
        # When messages last did not delay decisions.
        self._last_turn_s = time.monotonic()
        self._awake = asyncio.Event()
        self.reflectors = Reflectors(clients.api, self._receive, machine.event_handlers.has)
        self.writes = Writes(machine, clients.leaders, reports, self._receive, self._awake.set)
        self._tasks: asyncio.TaskGroup | None = None
        self._leads = False
        self._is_stopped = False
        self._first_decision_s = 0.0
        self._is_held_up = False
        self._has_max_binds = False

    def lead(self, first_decision_s: float = 0.0) -> None:
        """List everything again, then decide; nothing is decided before ``first_decision_s`` on the monotonic clock.

        Nothing starts after `stop`: it would keep `run` from ending, and the next leader from getting the lease.
        """
        if self._is_stopped:
            return
        self._leads, self._first_decision_s = True, first_decision_s
        self._read_unix_time()
        # Messages that are already in the inbox are older than the lists to come.
        self._inbox.clear()
        self._list = None
        if self._tasks is not None:
            self.reflectors.begin(self._tasks)

    def _read_unix_time(self) -> None:
        offset_s = time.time() - self._clock()  # noqa: TID251 - the API server's times are UNIX time
        self._machine.state.run_times.unix_offset_s = offset_s

    async def run(self) -> bool:
        """Work until `stop`, then wait for the Bindings in progress; return whether all of them have ended."""
        try:
            async with asyncio.TaskGroup() as self._tasks:
                self.reflectors.begin(self._tasks)
                reports = self._tasks.create_task(self._reports.run())
                await self._work()
                await self._drain()
                is_drained = not self.writes
                await self.reflectors.end()
                reports.cancel()
        finally:
            self.writes.cancel()
        return is_drained

    def standing_by(self) -> str:
        """Return why nothing may be decided now; empty for a leader that has listed everything."""
        if self._is_stopped:
            return "is shutting down"
        if not self._leads or not self._may_decide():
            return "does not lead"
        if reason := self.reflectors.unlisted_kinds():
            return reason
        return "" if time.monotonic() >= self._first_decision_s else "has just become the leader"

    def stop(self) -> None:
        self._is_stopped = True
        self._awake.set()

    def _receive(self, message: Message) -> None:
        self._inbox.put(message)
        self._awake.set()

    async def _work(self) -> None:
        while not self._is_stopped:
            self._awake.clear()
            has_more = self._slice()
            self._reports.give_way(is_busy=self.writes.reach(_BINDS_BEFORE_EVENTS), amid_decisions=has_more)
            if has_more:
                await asyncio.sleep(0)
            else:
                await self._wait()
                self._last_turn_s = time.monotonic()

    async def _drain(self) -> None:
        await self.writes.drain(_DRAIN_S)
        while self._inbox:
            if isinstance(message := self._inbox.take(), WriteResult):
                self._carry_out(self._take(message, self._clock()))
        self._reports.give_way(is_busy=False)
        await self._reports.flush()

    def _slice(self) -> bool:
        """Work for one slice; return whether there is more to do."""
        start_s = time.monotonic()
        # Messages may have come first for too long; a list is processed as a whole.
        decides = self._list is None and bool(self._inbox) and start_s - self._last_turn_s > _MESSAGES_S
        while time.monotonic() < start_s + _SLICE_S:
            try:
                if decides:
                    decides = self._decide()
                elif not self._advance():
                    return False
            except Exception:  # noqa: BLE001 - the top of the program's loop: one bad object must not stop the rest
                _log.exception("bug: an event or a decision failed")
                self._carry_out(self._machine.give_up(self._clock()))
        return True

    def _advance(self) -> bool:
        """Process one message, do what is due, or schedule one pod; return whether there was anything to do."""
        if self._list is None and not self._inbox:
            return self._decide()
        self._carry_out(self._take_next())
        return True

    def _take_next(self) -> list[Instruction]:
        for entry in self._list or ():
            return self._take(entry, self._list_time) if entry is not None else []
        self._list = None
        return self._take(self._inbox.take(), self._clock()) if self._inbox else []

    def _decide(self) -> bool:
        """Do what is due, then one step of a decision; return whether a decision had one."""
        self._last_turn_s = time.monotonic()
        self._has_max_binds = self.writes.reach(_FEWER_BINDS if self._has_max_binds else _MAX_BINDS)
        self._is_held_up = self._may_not_decide()
        if self._is_held_up:
            return False
        now = self._clock()
        self._carry_out(self._machine.tick(now))
        timing = self._timing or metrics.DecisionTiming()
        instructions = self._machine.step(now, timing.record_phase)
        if instructions is None:
            self._timing = None
            return False
        self._timing = timing if self._machine.is_trying else None
        if self._timing is None and not self._machine.has_paused:
            self._profile_metrics.decision(timing, instructions)
        self._carry_out(instructions)
        return True

    def _may_not_decide(self) -> bool:
        """Return whether another scheduler leads, lists are old, or too many Bindings are in progress."""
        return bool(self.standing_by()) or self._has_max_binds

    def _take(self, message: Message, now: float) -> list[Instruction]:
        match message:
            case WatchEvent(kind, Synced() as whole_list):
                steps = self._machine.event_handlers.handle_list(kind, whole_list.identities, now)
                self._list, self._list_time = chain(steps, list_messages(kind, whole_list)), now
            case EndOfList():
                self.reflectors.note(message, leads=self._leads)
                if self.reflectors.unlisted_kinds():
                    return []
                self._end_of_lists()
                return self._machine.repeat_reports() if self._leads else []
            case WatchEvent(kind, event):
                return self._machine.handle(kind, event, now)
            case WriteResult(order, result):
                return self._machine.finished(order, result, now)
        return []

    def _carry_out(self, instructions: list[Instruction]) -> None:
        now = self._clock()
        for instruction in instructions:
            match instruction:
                case Report() if self._leads:
                    if is_of_pending(instruction):
                        fields = {"uid": instruction.pod.metadata.uid, "reason": instruction.message}
                        _log.info("pod not scheduled", pod=instruction.pod.key, **fields)
                    self._reports.put(instruction)
                case ReportRates():
                    self._reports.put_rates(instruction)
                case ReportGroup():
                    self._reports.put_group(instruction)
                case Notice(subject, event, fields):
                    metrics.IGNORED_OBJECTS.labels(subject).inc()
                    _log.warning(event, **fields)
                case _ if isinstance(instruction, Order):
                    self.writes.put(instruction, now)

    async def _wait(self) -> None:
        if self._has_max_binds:
            await asyncio.sleep(_BATCH_S)
        try:
            async with asyncio.timeout(self._idle_s()):
                await self._awake.wait()
        except TimeoutError:
            return

    def _idle_s(self) -> float | None:
        """Return the longest time without work unless a message arrives, in seconds; None without limit."""
        if self._may_not_decide():
            # A late renewal sends no message, nor does a write that becomes old.
            remaining_s = self._first_decision_s - time.monotonic()
            return (min(_LOOK_S, remaining_s) if remaining_s > 0 else _LOOK_S) if self._leads else None
        if self._is_held_up:
            return 0.0
        due_s = self._machine.next_due()
        return None if due_s is None else max(due_s - self._clock(), 0.0)

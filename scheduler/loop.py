"""Run the machine: watches in, decisions out, many binds in flight.

The readers only put events into the inbox; the one task that owns the machine takes them out, decides in slices of a
few milliseconds, and starts a task for each bind. Nothing is decided before both collections have been listed.
"""

import asyncio
import time
from collections import deque
from collections.abc import Callable
from dataclasses import dataclass

import structlog

from mooring import names
from mooring.kube.client import Client
from mooring.kube.events import Event, Synced
from mooring.kube.watch import decoder, watch
from scheduler import metrics
from scheduler.bind import bind
from scheduler.cycle import Bind
from scheduler.machine import Instruction, Machine, Notice, Report
from scheduler.objects import Node, Pod
from scheduler.outcomes import Outcome
from scheduler.writer import Writer

_log = structlog.get_logger()
# The machine's task gives way to the readers after this long, in seconds.
_SLICE_S = 0.01
_MOST_BINDS = 256


@dataclass(frozen=True, slots=True)
class _Nodes:
    event: Event[Node]


@dataclass(frozen=True, slots=True)
class _Pods:
    event: Event[Pod]


@dataclass(frozen=True, slots=True)
class _Bound:
    decision: Bind
    outcome: Outcome


class Loop:
    """One scheduler at work. ``clock`` gives UNIX time; no bind starts before ``not_before`` on the monotonic clock."""

    def __init__(self, machine: Machine, client: Client, writer: Writer, clock: Callable[[], float]) -> None:
        self._machine = machine
        self._client = client
        self._writer = writer
        self._clock = clock
        self._inbox: deque[_Nodes | _Pods | _Bound] = deque()
        self._awake = asyncio.Event()
        self._synced: set[type] = set()
        self._binds: set[asyncio.Task[None]] = set()
        self._stopping = False
        self.is_running = False
        self.not_before = 0.0

    def not_ready(self) -> str:
        """Say why no decision can be made yet; empty if it can."""
        missing = [kind.__name__.strip("_").lower() for kind in (_Nodes, _Pods) if kind not in self._synced]
        return f"not listed yet: {', '.join(missing)}" if missing else ""

    async def run(self) -> None:
        """Work until cancelled, or until `stop`; then wait for the binds that are under way."""
        self.is_running = True
        async with asyncio.TaskGroup() as self._group:
            group = self._group
            readers = [
                group.create_task(self._read_nodes()),
                group.create_task(self._read_pods()),
                group.create_task(self._writer.run()),
            ]
            await self._work()
            if self._binds:
                await asyncio.wait(self._binds)
            for reader in readers:
                reader.cancel()

    def stop(self) -> None:
        """Decide nothing more."""
        self._stopping = True
        self._awake.set()

    async def _read_nodes(self) -> None:
        async for event in watch(self._client, "/api/v1/nodes", decoder(Node)):
            self._receive(_Nodes(event))

    async def _read_pods(self) -> None:
        async for event in watch(self._client, "/api/v1/pods", decoder(Pod)):
            self._receive(_Pods(event))

    def _receive(self, message: _Nodes | _Pods | _Bound) -> None:
        self._inbox.append(message)
        self._awake.set()

    async def _work(self) -> None:
        while not self._stopping:
            self._awake.clear()
            if self._slice():
                await asyncio.sleep(0)
            else:
                await self._wait()

    def _slice(self) -> bool:
        """Work for one slice; say whether there is more to do."""
        until = time.monotonic() + _SLICE_S
        while time.monotonic() < until:
            try:
                if not self._advance():
                    return False
            except Exception:  # noqa: BLE001 - the top of the program's loop: one bad object must not stop the rest
                _log.exception("bug: an event or a decision failed")
        return True

    def _advance(self) -> bool:
        """Take one message, or decide about one pod; say whether there was anything to do."""
        if self._inbox:
            self._follow(self._handle(self._inbox.popleft()))
            return True
        if self._held_up():
            return False
        began = time.perf_counter()
        instructions = self._machine.step(self._clock())
        if instructions is None:
            return False
        metrics.DECISION_S.observe(time.perf_counter() - began)
        found = any(isinstance(instruction, Bind) for instruction in instructions)
        metrics.ATTEMPTS.labels("scheduled" if found else "unschedulable").inc()
        self._follow(instructions)
        return True

    def _held_up(self) -> bool:
        return bool(self.not_ready()) or len(self._binds) >= _MOST_BINDS or time.monotonic() < self.not_before

    def _handle(self, message: _Nodes | _Pods | _Bound) -> list[Instruction]:
        now = self._clock()
        match message:
            case _Nodes(event):
                self._note(_Nodes, event)
                return self._machine.nodes(event, now)
            case _Pods(event):
                self._note(_Pods, event)
                return self._machine.pods(event, now)
            case _Bound(decision, outcome):
                return self._machine.bound(decision, outcome, now)

    def _note(self, kind: type, event: Event[Node] | Event[Pod]) -> None:
        if isinstance(event, Synced):
            self._synced.add(kind)
            _log.info("listed", kind=kind.__name__.strip("_").lower(), count=len(event.entries))

    def _follow(self, instructions: list[Instruction]) -> None:
        for instruction in instructions:
            match instruction:
                case Bind():
                    task = asyncio.create_task(self._bind(instruction))
                    self._binds.add(task)
                    task.add_done_callback(self._binds.discard)
                case Report():
                    self._report(instruction)
                case Notice(blame, event, fields):
                    metrics.NOTICES.labels(blame).inc()
                    _log.warning(event, **fields)

    async def _bind(self, decision: Bind) -> None:
        began = time.monotonic()
        outcome = await bind(self._client, decision)
        metrics.BIND_S.observe(time.monotonic() - began)
        metrics.BINDS.labels(outcome.kind).inc()
        fields = {"pod": decision.task.pod.key, "uid": decision.task.uid, "node": decision.seat.node}
        if outcome.kind == "bound":
            _log.info("pod bound", **fields, assignment=decision.annotations.get(names.ASSIGNMENT, ""))
        else:
            _log.warning("pod not bound", **fields, outcome=outcome.kind, reason=outcome.reason)
        self._receive(_Bound(decision, outcome))

    def _report(self, report: Report) -> None:
        if report.reason in ("Unschedulable", "InvalidRequest"):
            metrics.count_reason(report.message)
            fields = {"pod": report.pod.key, "uid": report.pod.metadata.uid, "reason": report.message}
            _log.info("pod not scheduled", **fields)
        self._writer.put(report)

    async def _wait(self) -> None:
        """Sleep until a message comes, a backoff ends or the first bind may start."""
        ready = self._machine.queue.next_ready()
        waits = [self.not_before - time.monotonic()] if time.monotonic() < self.not_before else []
        if ready is not None and not self._held_up():
            waits.append(max(ready - self._clock(), 0.0))
        try:
            async with asyncio.timeout(min(waits, default=None)):
                await self._awake.wait()
        except TimeoutError:
            return

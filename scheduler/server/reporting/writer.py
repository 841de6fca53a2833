"""Write conditions and events without ever delaying a bind.

A few are written at a time, events only while few binds are in progress; when too many wait, events are dropped. Only
the newest of a pod's conditions is kept. They are written at a rate that does not burden the API server, so that ten
thousand pending pods cost it as little as a few. While pods wait for their decision both are written at a lower rate:
a write takes the CPU time of some decisions, and a tenant may create many pods that fit nowhere.
"""

import asyncio
import contextlib
import itertools
import time
from collections.abc import Awaitable, Callable
from datetime import UTC, datetime

import msgspec
import structlog

from mooring.kube.client import JSON, MERGE_PATCH, STRATEGIC_PATCH, Client
from mooring.kube.failures import Conflict, KubeError, NotFound
from mooring.kube.retry import until_definite
from scheduler.cycle.instructions import Report, ReportGroup, ReportRates
from scheduler.kube.objects import Pod
from scheduler.server import metrics
from scheduler.server.reporting.event_correlator import EventCorrelator, EventRecord, TokenBucket
from scheduler.server.reporting.pod_group_status import pod_group_patches
from scheduler.server.reporting.pod_status import event, event_reason, is_of_pending, repetition, status_patch
from scheduler.server.reporting.rates_status import rates_condition_patch

_log = structlog.get_logger()
_MOST_EVENTS = 10_000
# Answers that arrive together are handled together: with 4 at once a bound pod costs a tenth more CPU in total. Fewer
# than the client's connections, so that renewing the Lease never waits for events.
_AT_ONCE = 12
# Conditions a second, and at once; kube-scheduler's client is limited to 50 and 100 for everything that it writes.
_CONDITIONS_PER_S = 50.0
_CONDITIONS_AT_ONCE = 100.0
# Conditions and events a second, and at once, while pods wait for their decision: some 5 % of one core's time.
_AMID_DECISIONS_PER_S = 20.0
_AMID_DECISIONS_AT_ONCE = 12.0
_LONGEST_NAME = 253
_FLUSH_S = 2.0
_decode_pod = msgspec.json.Decoder(Pod).decode


class Writer:
    """The reports that wait to be written, and the tasks that write them."""

    def __init__(self, client: Client, component: str) -> None:
        self._client = client
        self._component = component
        self._events: asyncio.Queue[Report] = asyncio.Queue(_MOST_EVENTS)
        self._conditions: dict[str, Report] = {}
        self._of_pod_groups: dict[str, ReportGroup] = {}
        self._of_rates: dict[str, ReportRates] = {}
        self._new_condition = asyncio.Event()
        self._pace = TokenBucket(_CONDITIONS_PER_S, _CONDITIONS_AT_ONCE, time.monotonic())
        self._event_correlator = EventCorrelator()
        self._serial = itertools.count()
        self._calm = asyncio.Event()
        self._calm.set()
        self._decided = asyncio.Event()
        self._decided.set()
        self._amid_decisions = TokenBucket(_AMID_DECISIONS_PER_S, _AMID_DECISIONS_AT_ONCE, time.monotonic())
        # One task at a time waits for a token.
        self._turn = asyncio.Lock()

    def put(self, report: Report) -> None:
        """Take a report; its event is dropped if too many wait."""
        uid = report.pod.metadata.uid
        if is_of_pending(report):
            self._await(report, self._conditions.get(uid))
        else:
            self._conditions.pop(uid, None)
        try:
            self._events.put_nowait(report)
        except asyncio.QueueFull:
            metrics.EVENTS_DROPPED.by[()] += 1

    def put_group(self, report: ReportGroup) -> None:
        """Take the condition of a PodGroup in place of one that waits; one that is True stays."""
        uid = report.pod_group.metadata.uid
        waiting = self._of_pod_groups.get(uid)
        if waiting is None or waiting.status != "True":
            self._of_pod_groups[uid] = report
            self._new_condition.set()

    def put_rates(self, report: ReportRates) -> None:
        """Take a pod's condition about its rates in place of one that waits; pods that wait for a node come first."""
        self._of_rates[report.pod.metadata.uid] = report
        self._new_condition.set()

    def drop_rates(self, uid: str) -> None:
        """Write no condition about a pod's rates that waits: a newer one is written with the rates themselves."""
        self._of_rates.pop(uid, None)

    def _await(self, newer: Report, older: Report | None) -> None:
        """Queue the newer of two reports about a pod; it keeps the older one's nomination unless it has its own."""
        if newer.nominated is None and older is not None:
            newer = msgspec.structs.replace(newer, nominated=older.nominated)
        self._conditions[newer.pod.metadata.uid] = newer
        self._new_condition.set()

    def give_way(self, *, pressed: bool, amid_decisions: bool = False) -> None:
        """Write no events while many binds are in progress, and few reports while pods wait for their decision.

        The reports that gather are written afterwards.
        """
        if amid_decisions:
            self._decided.clear()
        else:
            self._decided.set()
        if pressed:
            self._calm.clear()
        else:
            self._calm.set()

    async def run(self) -> None:
        async with asyncio.TaskGroup() as group:
            for _ in range(_AT_ONCE):
                group.create_task(self._write_events())
            group.create_task(self._write_conditions())

    async def _write_conditions(self) -> None:
        while True:
            await self._new_condition.wait()
            while wait_s := self._pace.take(time.monotonic()):
                await asyncio.sleep(wait_s)
            await self._let_decide()
            if self._of_pod_groups:
                await self._write_pod_group(self._of_pod_groups.pop(next(iter(self._of_pod_groups))))
            elif self._conditions:
                await self._attempt(self._conditions.pop(next(iter(self._conditions))), self._write_condition)
            elif self._of_rates:
                await self._write_rates(self._of_rates.pop(next(iter(self._of_rates))))
            else:
                self._new_condition.clear()

    async def flush(self) -> None:
        """Wait until the queued events are written, a moment at the most."""
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(_FLUSH_S):
                await self._events.join()

    async def _write_events(self) -> None:
        while True:
            report = await self._events.get()
            await self._calm.wait()
            await self._let_decide()
            await self._attempt(report, self._write_event)
            self._events.task_done()

    async def _let_decide(self) -> None:
        """Wait for the turn of one more report, as long as pods wait for their decision."""
        async with self._turn:
            while not self._decided.is_set() and (wait_s := self._amid_decisions.take(time.monotonic())):
                with contextlib.suppress(TimeoutError):
                    async with asyncio.timeout(wait_s):
                        await self._decided.wait()

    async def _attempt(self, report: Report, write: Callable[[Report], Awaitable[None]]) -> None:
        try:
            await write(report)
        except KubeError as failed:
            # The pod was deleted meanwhile, or permissions are missing: the write is impossible.
            pod = report.pod
            _log.info("report was refused", pod=pod.key, uid=pod.metadata.uid, reason=str(failed))

    async def _write_condition(self, report: Report) -> None:
        pod = report.pod.metadata
        path = f"/api/v1/namespaces/{pod.namespace}/pods/{pod.name}"
        try:
            await _send(self._client, "PATCH", f"{path}/status", status_patch(report, timestamp()), STRATEGIC_PATCH)
        except Conflict:
            await self._send_again(report, path)

    async def _write_rates(self, report: ReportRates) -> None:
        pod, patch = report.pod.metadata, rates_condition_patch(report, timestamp())
        path = f"/api/v1/namespaces/{pod.namespace}/pods/{pod.name}/status"
        try:
            await _send(self._client, "PATCH", path, patch, STRATEGIC_PATCH)
        except KubeError as failed:
            _log.info("report was refused", pod=report.pod.key, uid=pod.uid, reason=str(failed))

    async def _write_pod_group(self, report: ReportGroup) -> None:
        """Write to the version that is served; after a conflict the watch shows what has changed."""
        about = report.pod_group.metadata
        for path, patch in pod_group_patches(report, timestamp()):
            try:
                await _send(self._client, "PATCH", path, patch, STRATEGIC_PATCH)
            except NotFound:
                continue
            except KubeError as failed:
                _log.info("report was refused", pod_group=f"{about.namespace}/{about.name}", reason=str(failed))
            return

    async def _send_again(self, report: Report, path: str) -> None:
        """Read the pod again, unless it needs no report any more, or something newer is to be reported."""
        try:
            pod = _decode_pod(await _send(self._client, "GET", path))
        except msgspec.MsgspecError:
            return
        uid = pod.metadata.uid
        if uid == report.pod.metadata.uid and not pod.spec.node_name:
            again = msgspec.structs.replace(report, pod=pod)
            self._await(self._conditions.get(uid, again), again)

    async def _write_event(self, report: Report) -> None:
        pod, now = report.pod.metadata, timestamp()
        suffix = f".{time.time_ns():x}{next(self._serial):x}"
        new = EventRecord(pod.name[: _LONGEST_NAME - len(suffix)] + suffix, 1, now)
        about = (pod.uid, event_reason(report), report.message)
        record = self._event_correlator.tell(*about, new, time.monotonic())
        if record is None:
            metrics.EVENTS_DROPPED.by[()] += 1
            return
        folder = f"/api/v1/namespaces/{pod.namespace}/events"
        if record.count > 1:
            try:
                patch = repetition(report, record, now)
                await _send(self._client, "PATCH", f"{folder}/{record.name}", patch, MERGE_PATCH)
            except NotFound:
                self._event_correlator.forget(*about)
            else:
                return
        await _send(self._client, "POST", folder, event(report, self._component, new, now))


@until_definite
async def _send(client: Client, method: str, path: str, body: bytes = b"", kind: str = JSON) -> bytes:
    return await client.request(method, path, body, kind)


def timestamp() -> str:
    """Return the time now, as RFC 3339."""
    return datetime.now(UTC).isoformat(timespec="seconds").replace("+00:00", "Z")

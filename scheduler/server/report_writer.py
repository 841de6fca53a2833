"""Write conditions and events without ever delaying a Binding.

A few are written at a time, each namespace in its turn (`mooring.kube.lanes`), and events only while few Bindings are
in progress. If too many wait, events are dropped. Only the newest condition of a pod is kept. They are written at a
rate that does not burden the API server, so that ten thousand pending pods cost it as little as a few. While pods wait
for their decision, both are written at a lower rate, because a write takes the CPU time of several decisions, and a
tenant may create many pods that fit nowhere.
"""

import asyncio
import contextlib
import itertools
import sys
import time
from collections.abc import Mapping
from datetime import UTC, datetime

import msgspec

from mooring.kube.answers import check_object
from mooring.kube.client import MERGE_PATCH, STRATEGIC_PATCH, Client
from mooring.kube.failures import Conflict, NotFound
from mooring.kube.lanes import Lane, Lanes
from mooring.kube.namespace_turns import NamespaceTurns
from scheduler.cycle.instructions import Report, ReportGroup, ReportRates, WriteRates
from scheduler.kube.objects import Pod
from scheduler.server import metrics, reports
from scheduler.server.reports import EventCorrelator, EventRecord, TokenBucket, is_of_pending, pod_path

_MAX_EVENTS = 10_000
# Answers that arrive together are processed together: with 4 events at once a bound pod costs a tenth more CPU in
# total. Fewer than the client's connections.
_EVENT_WRITES, _CONDITION_WRITES = 12, 4
# Conditions per second, and at once; kube-scheduler's client is limited to 50 and 100 for all of its writes.
_CONDITIONS_PER_S = 50.0
_CONDITION_BURST = 100.0
# Conditions and events per second, and at once, while pods wait for their decision: about 5 % of one core's time.
_AMID_DECISIONS_PER_S = 20.0
_AMID_DECISIONS_BURST = 12.0
_MAX_NAME = 253
_FLUSH_S = 2.0
_decode_pod = msgspec.json.Decoder(Pod).decode


class _Event:
    """An event to write; ``record`` is how, from the first attempt on."""

    def __init__(self, report: Report) -> None:
        self.report = report
        self.record: EventRecord | None = None


class ReportWriter:
    """The reports that wait to be written, and the tasks that write them."""

    def __init__(self, client: Client, component: str) -> None:
        self._client, self._component = client, component
        self._events = NamespaceTurns[_Event](_MAX_EVENTS)
        # A condition is reported once, so it waits until it is written: at most one for each object.
        self._of_pods = NamespaceTurns[Report](tries=sys.maxsize)
        self._of_pod_groups = NamespaceTurns[ReportGroup](tries=sys.maxsize)
        self._of_rates = NamespaceTurns[ReportRates](tries=sys.maxsize)
        events = Lane(self._events, self._write_event, lambda event: _fields(event.report), metrics.DROPPED_EVENTS.inc)
        self._event_lanes = Lanes([events], _EVENT_WRITES, self._let_write_event)
        # Pods that wait for a node come before running ones.
        lanes = (
            Lane(self._of_pod_groups, self._write_condition, _fields),
            Lane(self._of_pods, self._write_condition, _fields),
            Lane(self._of_rates, self._write_condition, _fields),
        )
        self._condition_lanes = Lanes(lanes, _CONDITION_WRITES, self._let_write_condition)
        self._pace = TokenBucket(_CONDITIONS_PER_S, _CONDITION_BURST, time.monotonic())
        self._event_correlator = EventCorrelator()
        self._serial = itertools.count()
        self._few_binds = asyncio.Event()
        self._few_binds.set()
        self._no_decisions = asyncio.Event()
        self._no_decisions.set()
        self._pace_amid_decisions = TokenBucket(_AMID_DECISIONS_PER_S, _AMID_DECISIONS_BURST, time.monotonic())
        # One task at a time waits for a token.
        self._turn = asyncio.Lock()

    def put(self, report: Report) -> None:
        """Queue a report; an event is dropped if too many wait."""
        pod = report.pod.metadata
        if is_of_pending(report):
            self._put_condition(report, self._of_pods.get(pod.namespace, pod.uid))
        else:
            self._of_pods.drop(pod.namespace, pod.uid)
        if not self._events.put(pod.namespace, f"{next(self._serial):x}", _Event(report)):
            metrics.DROPPED_EVENTS.inc()
        self._event_lanes.wake()

    def put_group(self, report: ReportGroup) -> None:
        """Queue the condition of a PodGroup in place of one that waits; a condition that is True stays."""
        about = report.pod_group.metadata
        queued_report = self._of_pod_groups.get(about.namespace, about.uid)
        if queued_report is None or queued_report.status != "True":
            self._of_pod_groups.put(about.namespace, about.uid, report)
            self._condition_lanes.wake()

    def put_rates(self, report: ReportRates) -> None:
        pod = report.pod.metadata
        self._of_rates.put(pod.namespace, pod.uid, report)
        self._condition_lanes.wake()

    def drop_rates(self, order: WriteRates) -> None:
        """Drop a waiting condition about a pod's rates: a newer one is written with the rates themselves."""
        self._of_rates.drop(order.pod.metadata.namespace, order.rates.uid)

    def _put_condition(self, newer: Report, older: Report | None) -> None:
        """Queue the newer of two reports about a pod; it keeps the older one's nomination unless it has its own."""
        if newer.nominated is None and older is not None:
            newer = msgspec.structs.replace(newer, nominated=older.nominated)
        pod = newer.pod.metadata
        self._of_pods.put(pod.namespace, pod.uid, newer)
        self._condition_lanes.wake()

    def give_way(self, *, is_busy: bool, amid_decisions: bool = False) -> None:
        """Write no events while many Bindings are in progress, and few reports while pods wait for their decision.

        The reports that accumulate are written afterwards.
        """
        for event, has_way in ((self._no_decisions, not amid_decisions), (self._few_binds, not is_busy)):
            if has_way:
                event.set()
            else:
                event.clear()

    async def run(self) -> None:
        async with asyncio.TaskGroup() as group:
            group.create_task(self._event_lanes.run())
            group.create_task(self._condition_lanes.run())

    async def flush(self) -> None:
        """Wait until the queued events are written, for a short time at most."""
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(_FLUSH_S):
                await self._event_lanes.empty()

    async def _let_write_event(self) -> None:
        await self._few_binds.wait()
        await self._let_decide()

    async def _let_write_condition(self) -> None:
        while wait_s := self._pace.take(time.monotonic()):
            await asyncio.sleep(wait_s)
        await self._let_decide()

    async def _let_decide(self) -> None:
        """Wait for the turn of one more report, as long as pods wait for their decision."""
        async with self._turn:
            while not self._no_decisions.is_set() and (wait_s := self._pace_amid_decisions.take(time.monotonic())):
                with contextlib.suppress(TimeoutError):
                    async with asyncio.timeout(wait_s):
                        await self._no_decisions.wait()

    async def _write_condition(self, report: Report | ReportGroup | ReportRates) -> None:
        """Write to the version that is served; after a conflict about a PodGroup, the watch shows what has changed."""
        for path, patch in reports.condition_patches(report, timestamp()):
            try:
                await self._client.request("PATCH", path, patch, STRATEGIC_PATCH)
            except NotFound:
                if not isinstance(report, ReportGroup):
                    raise
            except Conflict:
                if not isinstance(report, Report):
                    raise
                await self._requeue(report)
            else:
                return

    async def _requeue(self, report: Report) -> None:
        """Read the pod again, unless it needs no report any more, or a newer report is queued."""
        try:
            pod = _decode_pod(check_object("Pod", await self._client.request("GET", pod_path(report.pod.key))))
        except msgspec.MsgspecError:
            return
        about = pod.metadata
        if about.uid == report.pod.metadata.uid and not pod.spec.node_name:
            retry = msgspec.structs.replace(report, pod=pod)
            self._put_condition(self._of_pods.get(about.namespace, about.uid) or retry, retry)

    async def _write_event(self, event: _Event) -> None:
        report, now, is_first = event.report, timestamp(), event.record is None
        pod = report.pod.metadata
        suffix = f".{time.time_ns():x}{next(self._serial):x}"
        new = EventRecord(pod.name[: _MAX_NAME - len(suffix)] + suffix, 1, now)
        about = (pod.uid, reports.event_reason(report), report.message)
        event.record = event.record or self._event_correlator.correlate(*about, new, time.monotonic())
        if event.record is None:
            metrics.DROPPED_EVENTS.inc()
            return
        folder = f"/api/v1/namespaces/{pod.namespace}/events"
        if event.record.count > 1:
            try:
                patch = reports.repetition(report, event.record, now)
                await self._client.request("PATCH", f"{folder}/{event.record.name}", patch, MERGE_PATCH)
            except NotFound:
                self._event_correlator.forget(*about)
                event.record = new
            else:
                return
        try:
            await self._client.request("POST", folder, reports.event(report, self._component, event.record, now))
        except Conflict:
            # An earlier attempt, whose answer was lost, has created it.
            if is_first:
                raise


def _fields(report: Report | ReportGroup | ReportRates) -> Mapping[str, str]:
    if isinstance(report, ReportGroup):
        about = report.pod_group.metadata
        return {"pod_group": f"{about.namespace}/{about.name}"}
    return {"pod": report.pod.key, "uid": report.pod.metadata.uid}


def timestamp() -> str:
    """Return the current time as RFC 3339."""
    return datetime.now(UTC).isoformat(timespec="seconds").replace("+00:00", "Z")

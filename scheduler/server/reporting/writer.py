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
from scheduler.server import metrics
from scheduler.server.reporting.event_correlator import EventCorrelator, EventRecord, TokenBucket
from scheduler.server.reporting.report_bodies import event as event_body
from scheduler.server.reporting.report_bodies import (
    event_reason,
    is_of_pending,
    pod_group_patches,
    rates_condition_patch,
    repetition,
    status_patch,
)

_MOST_EVENTS = 10_000
# Answers that arrive together are processed together: with 4 events at once a bound pod costs a tenth more CPU in
# total. Fewer than the client's connections.
_EVENTS_WRITTEN_AT_ONCE, _CONDITIONS_WRITTEN_AT_ONCE = 12, 4
# Conditions per second, and at once; kube-scheduler's client is limited to 50 and 100 for all of its writes.
_CONDITIONS_PER_S = 50.0
_CONDITIONS_AT_ONCE = 100.0
# Conditions and events per second, and at once, while pods wait for their decision: about 5 % of one core's time.
_AMID_DECISIONS_PER_S = 20.0
_AMID_DECISIONS_AT_ONCE = 12.0
_LONGEST_NAME = 253
_FLUSH_S = 2.0
_decode_pod = msgspec.json.Decoder(Pod).decode


class _Event:
    """An event to write; ``record`` is how, from the first attempt on."""

    def __init__(self, report: Report) -> None:
        self.report = report
        self.record: EventRecord | None = None


class Writer:
    """The reports that wait to be written, and the tasks that write them."""

    def __init__(self, client: Client, component: str) -> None:
        self._client = client
        self._component = component
        self._events = NamespaceTurns[_Event](_MOST_EVENTS)
        # A condition is reported once, so it waits until it is written: at most one for each object.
        self._conditions = NamespaceTurns[Report](tries=sys.maxsize)
        self._of_pod_groups = NamespaceTurns[ReportGroup](tries=sys.maxsize)
        self._of_rates = NamespaceTurns[ReportRates](tries=sys.maxsize)
        events = Lane(self._events, self._write_event, lambda event: _pod_fields(event.report), _event_dropped)
        self._event_lanes = Lanes([events], _EVENTS_WRITTEN_AT_ONCE, self._let_write_event)
        # Pods that wait for a node come before running ones.
        lanes = (
            Lane(self._of_pod_groups, self._write_pod_group, _pod_group_fields),
            Lane(self._conditions, self._write_condition, _pod_fields),
            Lane(self._of_rates, self._write_rates, _pod_fields),
        )
        self._condition_lanes = Lanes(lanes, _CONDITIONS_WRITTEN_AT_ONCE, self._let_write_condition)
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
        """Queue a report; an event is dropped if too many wait."""
        pod = report.pod.metadata
        if is_of_pending(report):
            self._await(report, self._conditions.get(pod.namespace, pod.uid))
        else:
            self._conditions.drop(pod.namespace, pod.uid)
        if not self._events.put(pod.namespace, f"{next(self._serial):x}", _Event(report)):
            _event_dropped()
        self._event_lanes.wake()

    def put_group(self, report: ReportGroup) -> None:
        """Queue the condition of a PodGroup in place of one that waits; a condition that is True stays."""
        about = report.pod_group.metadata
        queued_report = self._of_pod_groups.get(about.namespace, about.uid)
        if queued_report is None or queued_report.status != "True":
            self._of_pod_groups.put(about.namespace, about.uid, report)
            self._condition_lanes.wake()

    def put_rates(self, report: ReportRates) -> None:
        """Queue a pod's condition about its rates in place of one that waits."""
        pod = report.pod.metadata
        self._of_rates.put(pod.namespace, pod.uid, report)
        self._condition_lanes.wake()

    def drop_rates(self, order: WriteRates) -> None:
        """Drop a waiting condition about a pod's rates: a newer one is written with the rates themselves."""
        self._of_rates.drop(order.pod.metadata.namespace, order.rates.uid)

    def _await(self, newer: Report, older: Report | None) -> None:
        """Queue the newer of two reports about a pod; it keeps the older one's nomination unless it has its own."""
        if newer.nominated is None and older is not None:
            newer = msgspec.structs.replace(newer, nominated=older.nominated)
        pod = newer.pod.metadata
        self._conditions.put(pod.namespace, pod.uid, newer)
        self._condition_lanes.wake()

    def give_way(self, *, is_busy: bool, amid_decisions: bool = False) -> None:
        """Write no events while many Bindings are in progress, and few reports while pods wait for their decision.

        The reports that accumulate are written afterwards.
        """
        if amid_decisions:
            self._decided.clear()
        else:
            self._decided.set()
        if is_busy:
            self._calm.clear()
        else:
            self._calm.set()

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
        await self._calm.wait()
        await self._let_decide()

    async def _let_write_condition(self) -> None:
        while wait_s := self._pace.take(time.monotonic()):
            await asyncio.sleep(wait_s)
        await self._let_decide()

    async def _let_decide(self) -> None:
        """Wait for the turn of one more report, as long as pods wait for their decision."""
        async with self._turn:
            while not self._decided.is_set() and (wait_s := self._amid_decisions.take(time.monotonic())):
                with contextlib.suppress(TimeoutError):
                    async with asyncio.timeout(wait_s):
                        await self._decided.wait()

    async def _write_condition(self, report: Report) -> None:
        pod = report.pod.metadata
        path = f"/api/v1/namespaces/{pod.namespace}/pods/{pod.name}"
        try:
            await self._client.request("PATCH", f"{path}/status", status_patch(report, timestamp()), STRATEGIC_PATCH)
        except Conflict:
            await self._send_again(report, path)

    async def _write_rates(self, report: ReportRates) -> None:
        pod, patch = report.pod.metadata, rates_condition_patch(report, timestamp())
        path = f"/api/v1/namespaces/{pod.namespace}/pods/{pod.name}/status"
        await self._client.request("PATCH", path, patch, STRATEGIC_PATCH)

    async def _write_pod_group(self, report: ReportGroup) -> None:
        """Write to the version that is served; after a conflict the watch shows what has changed."""
        for path, patch in pod_group_patches(report, timestamp()):
            with contextlib.suppress(NotFound):
                await self._client.request("PATCH", path, patch, STRATEGIC_PATCH)
                return

    async def _send_again(self, report: Report, path: str) -> None:
        """Read the pod again, unless it needs no report any more, or a newer report is queued."""
        try:
            pod = _decode_pod(check_object("Pod", await self._client.request("GET", path)))
        except msgspec.MsgspecError:
            return
        about = pod.metadata
        if about.uid == report.pod.metadata.uid and not pod.spec.node_name:
            retry = msgspec.structs.replace(report, pod=pod)
            self._await(self._conditions.get(about.namespace, about.uid) or retry, retry)

    async def _write_event(self, event: _Event) -> None:
        report, now, is_first = event.report, timestamp(), event.record is None
        pod = report.pod.metadata
        suffix = f".{time.time_ns():x}{next(self._serial):x}"
        new = EventRecord(pod.name[: _LONGEST_NAME - len(suffix)] + suffix, 1, now)
        about = (pod.uid, event_reason(report), report.message)
        event.record = event.record or self._event_correlator.tell(*about, new, time.monotonic())
        if event.record is None:
            _event_dropped()
            return
        folder = f"/api/v1/namespaces/{pod.namespace}/events"
        if event.record.count > 1:
            try:
                patch = repetition(report, event.record, now)
                await self._client.request("PATCH", f"{folder}/{event.record.name}", patch, MERGE_PATCH)
            except NotFound:
                self._event_correlator.forget(*about)
                event.record = new
            else:
                return
        try:
            await self._client.request("POST", folder, event_body(report, self._component, event.record, now))
        except Conflict:
            # An earlier attempt, whose answer was lost, has created it.
            if is_first:
                raise


def _pod_fields(report: Report | ReportRates) -> Mapping[str, str]:
    return {"pod": report.pod.key, "uid": report.pod.metadata.uid}


def _pod_group_fields(report: ReportGroup) -> Mapping[str, str]:
    about = report.pod_group.metadata
    return {"pod_group": f"{about.namespace}/{about.name}"}


def _event_dropped() -> None:
    metrics.EVENTS_DROPPED.inc()


def timestamp() -> str:
    """Return the current time as RFC 3339."""
    return datetime.now(UTC).isoformat(timespec="seconds").replace("+00:00", "Z")

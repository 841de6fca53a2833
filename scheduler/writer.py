"""Write conditions and events without ever holding up a bind: a few at a time, and dropped when too many wait."""

import asyncio
import itertools
import time
from datetime import UTC, datetime

import structlog

from mooring.kube.client import STRATEGIC_PATCH, Client
from mooring.kube.failures import KubeError
from mooring.kube.persist import until_definite
from scheduler import metrics
from scheduler.accounts import event, status_patch
from scheduler.machine import Report

_log = structlog.get_logger()
_MOST_WAITING = 10_000
_AT_ONCE = 4
_LONGEST_NAME = 253


class Writer:
    """A bounded line of reports, and the tasks that work it off."""

    def __init__(self, client: Client, component: str) -> None:
        self._client = client
        self._component = component
        self._waiting: asyncio.Queue[Report] = asyncio.Queue(_MOST_WAITING)
        self._serial = itertools.count()

    def put(self, report: Report) -> None:
        """Take a report, or drop it where the line is full."""
        try:
            self._waiting.put_nowait(report)
        except asyncio.QueueFull:
            metrics.REPORTS_DROPPED.inc()

    async def run(self) -> None:
        async with asyncio.TaskGroup() as group:
            for _ in range(_AT_ONCE):
                group.create_task(self._work())

    async def _work(self) -> None:
        while True:
            report = await self._waiting.get()
            try:
                await self._write(report)
            except KubeError as failed:
                # A pod deleted meanwhile, or missing permissions: nobody to tell, or no way.
                pod = report.pod
                _log.info("report was refused", pod=pod.key, uid=pod.metadata.uid, reason=str(failed))

    async def _write(self, report: Report) -> None:
        pod, now = report.pod.metadata, datetime.now(UTC).strftime("%Y-%m-%dT%H:%M:%SZ")
        if report.reason in ("Unschedulable", "InvalidRequest"):
            path = f"/api/v1/namespaces/{pod.namespace}/pods/{pod.name}/status"
            await _patch(self._client, path, status_patch(report, now))
        suffix = f".{time.time_ns():x}{next(self._serial):x}"
        name = pod.name[: _LONGEST_NAME - len(suffix)] + suffix
        await _post(
            self._client, f"/api/v1/namespaces/{pod.namespace}/events", event(report, self._component, name, now)
        )


@until_definite
async def _patch(client: Client, path: str, body: bytes) -> None:
    await client.request("PATCH", path, body, content_type=STRATEGIC_PATCH)


@until_definite
async def _post(client: Client, path: str, body: bytes) -> None:
    await client.request("POST", path, body)

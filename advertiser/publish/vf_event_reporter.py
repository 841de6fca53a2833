"""Write an Event on a pod for each thing that has happened to one of its VFs."""

import asyncio
from datetime import UTC, datetime
from typing import Protocol

import msgspec
import structlog

from mooring.kube.client import Client
from mooring.kube.failures import Conflict, KubeError
from mooring.kube.retry import until_definite

_log = structlog.get_logger()


class VfEvent(Protocol):
    """Something that has happened to a VF; equal ones are the same happening. ``pod`` is namespace/name."""

    @property
    def pod(self) -> str: ...

    @property
    def uid(self) -> str: ...

    @property
    def pci(self) -> str: ...

    @property
    def reason(self) -> str: ...

    def event(self, node: str, now: str) -> dict[str, object]:
        """Return the Event; its name is made from its contents, so that it cannot be written twice."""


class VfEventReporter:
    """Writes one Event for each happening, however often a scan finds it, and whichever advertiser does."""

    def __init__(self, client: Client, node: str) -> None:
        self._client = client
        self._node = node
        self._known: frozenset[VfEvent] = frozenset()
        self._queue: asyncio.Queue[VfEvent] = asyncio.Queue()

    def update(self, happened: frozenset[VfEvent]) -> None:
        """Take what a scan has found."""
        for each in sorted(happened - self._known, key=lambda each: each.pci):
            self._queue.put_nowait(each)
        self._known = happened

    async def run(self) -> None:
        """Write events as they arrive; never return."""
        while True:
            each = await self._queue.get()
            try:
                await self._write(f"/api/v1/namespaces/{each.pod.partition('/')[0]}/events", each)
            except Conflict:
                pass  # written before this program was started again
            except KubeError as refused:
                _log.warning("event not written", pod=each.pod, pci=each.pci, reason=str(refused))

    @until_definite
    async def _write(self, path: str, each: VfEvent) -> None:
        body = msgspec.json.encode(each.event(self._node, datetime.now(UTC).strftime("%Y-%m-%dT%H:%M:%SZ")))
        await self._client.request("POST", path, body)
        _log.warning("event written", node=self._node, pod=each.pod, uid=each.uid, pci=each.pci, reason=each.reason)

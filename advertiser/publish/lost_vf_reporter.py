"""Write an Event for each VF that a pod has lost."""

import asyncio
from datetime import UTC, datetime

import msgspec
import structlog

from advertiser.formats.lost_vf_event import LostVf, event
from mooring.kube.client import Client
from mooring.kube.failures import Conflict, KubeError
from mooring.kube.retry import until_definite

_log = structlog.get_logger()


class LostVfReporter:
    """Writes one Event for each lost VF, however often a scan finds it, and whichever advertiser does."""

    def __init__(self, client: Client, node: str) -> None:
        self._client = client
        self._node = node
        self._known: frozenset[LostVf] = frozenset()
        self._queue: asyncio.Queue[LostVf] = asyncio.Queue()

    def update(self, lost: frozenset[LostVf]) -> None:
        """Take the VFs that are lost now."""
        for vf in sorted(lost - self._known, key=lambda vf: vf.pci):
            self._queue.put_nowait(vf)
        self._known = lost

    async def run(self) -> None:
        """Write events as they arrive; never return."""
        while True:
            vf = await self._queue.get()
            try:
                await self._write(f"/api/v1/namespaces/{vf.pod.partition('/')[0]}/events", vf)
            except Conflict:
                pass  # written before this program was started again
            except KubeError as refused:
                _log.warning("event not written", pod=vf.pod, pci=vf.pci, reason=str(refused))

    @until_definite
    async def _write(self, path: str, vf: LostVf) -> None:
        body = msgspec.json.encode(event(vf, self._node, datetime.now(UTC).strftime("%Y-%m-%dT%H:%M:%SZ")))
        await self._client.request("POST", path, body)
        _log.error("VF lost", node=self._node, pod=vf.pod, uid=vf.uid, pci=vf.pci)

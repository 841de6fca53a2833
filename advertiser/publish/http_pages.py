"""Serve /getpfs, /metrics, /healthz and /readyz, all read only."""

import asyncio
import json
from collections.abc import Mapping
from contextlib import AbstractAsyncContextManager

from aiohttp import web

from advertiser.formats.getpfs import pfs_document
from advertiser.publish.publisher import Publisher
from advertiser.publish.scan_loop import ScanLoop
from advertiser.publish.scanner import Scan
from mooring.http.application import listen
from mooring.http.recent import Recent, RecentAnswer
from mooring.nic.settings import VfSettings
from mooring.nic.vf_settings import RtnetlinkVfSettings

# /readyz fails if the last scan is older than this many resyncs.
_STALE_RESYNCS = 3


def serve_http(
    address: str, scan_loop: ScanLoop, publisher: Publisher, resync_s: float
) -> AbstractAsyncContextManager[None]:
    """Serve at ``address`` within the context; without an address do nothing. Raise OSError if it cannot be bound."""
    handlers = _Handlers(scan_loop, publisher, resync_s)
    routes = [
        web.get("/getpfs", handlers.getpfs),
        web.get("/metrics", handlers.metrics),
        web.get("/healthz", handlers.healthz),
        web.get("/readyz", handlers.readyz),
    ]
    return listen(address, routes)


class _Handlers:
    def __init__(self, scan_loop: ScanLoop, publisher: Publisher, resync_s: float) -> None:
        self._scan_loop = scan_loop
        self._publisher = publisher
        self._stale_s = resync_s * _STALE_RESYNCS
        # Cached, because anybody who reaches the port can ask, and a scan of 256 VFs takes tens of milliseconds of CPU.
        self._pfs = RecentAnswer(self._make_pfs)
        self._metrics = Recent(scan_loop.metrics.text)

    async def getpfs(self, _: web.Request) -> web.Response:
        try:
            document = await self._pfs.get()
        except OSError as unreadable:
            return web.Response(status=500, text=f"ERROR: {unreadable}\n")
        return web.Response(body=document, content_type="application/json")

    async def metrics(self, _: web.Request) -> web.Response:
        return web.Response(body=self._metrics.get(), headers={"Content-Type": "text/plain; version=0.0.4"})

    async def healthz(self, _: web.Request) -> web.Response:
        return web.Response(text="ok\n")

    async def readyz(self, _: web.Request) -> web.Response:
        age_s = self._scan_loop.age_s()
        state = {"published": self._publisher.is_published, "age_s": round(age_s, 1) if self._scan_loop.last else None}
        ready = self._publisher.is_published and age_s <= self._stale_s
        return web.json_response(state, status=200 if ready else 503)

    async def _make_pfs(self) -> bytes:
        return await asyncio.to_thread(_document, await self._scan_loop.scan())


def _document(scan: Scan) -> bytes:
    inventory = scan.result.inventory
    pfs = pfs_document(inventory, {pf.name: _vf_settings(pf.name) for pf in inventory.pfs}, scan.host.ledger)
    return json.dumps(pfs).encode()


def _vf_settings(pf: str) -> Mapping[int, VfSettings]:
    """Return the settings of a PF's VFs by index, as its driver reports them by netlink."""
    try:
        return RtnetlinkVfSettings().read_all(pf)
    except OSError:
        return {}

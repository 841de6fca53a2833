"""A relay in front of a real API server: it fails on purpose where a test has planned it, as devcluster's server does.

Requests and answers pass by as bytes. What no request can make a real server do, losing an answer or cutting a watch,
happens here, on the way.
"""

import asyncio
import io
import json
from collections.abc import AsyncIterator
from typing import Any, Self

import aiohttp
from aiohttp import web
from yarl import URL

from devcluster.apiserver.http.faults import Faults
from devcluster.apiserver.http.frontend import drop, fail_first
from mooring.kube.access import Access
from mooring.kube.client import MERGE_PATCH

# The longest line of a watch, in bytes.
_LINE_MAX = 1 << 24
_FOREVER = aiohttp.ClientTimeout(total=None)
_KEPT = ("Accept", "Content-Type")
_LEASES = "/apis/coordination.k8s.io/v1/namespaces/kube-system/leases"


class Relay:
    """A running relay: an async context manager. It sends the means of access itself, its clients need none."""

    def __init__(self, access: Access) -> None:
        self._access = access
        self._watches: set[asyncio.Event] = set()
        self.faults = Faults()
        self.url = ""

    async def __aenter__(self) -> Self:
        connector = aiohttp.TCPConnector(limit=0, ssl=self._access.tls or True)
        headers = dict(self._access.headers())
        self._session = aiohttp.ClientSession(connector=connector, headers=headers, read_bufsize=_LINE_MAX)
        self._runner = web.ServerRunner(web.Server(self._answer, handler_cancellation=True), shutdown_timeout=1.0)
        await self._runner.setup()
        site = web.TCPSite(self._runner, "127.0.0.1", 0)
        await site.start()
        host, port = self._runner.addresses[0][:2]
        self.url = f"http://{host}:{port}"
        return self

    async def __aexit__(self, *_: object) -> None:
        self.cut_watches()
        await self._runner.cleanup()
        await self._session.close()

    def kubeconfig_text(self) -> str:
        """Return a kubeconfig that reaches it."""
        config = {
            "apiVersion": "v1",
            "kind": "Config",
            "clusters": [{"name": "relay", "cluster": {"server": self.url}}],
            "users": [{"name": "relay", "user": {}}],
            "contexts": [{"name": "relay", "context": {"cluster": "relay", "user": "relay"}}],
            "current-context": "relay",
        }
        return json.dumps(config)

    def cut_watches(self) -> None:
        """End every watch with a clean EOF."""
        for end in self._watches:
            end.set()

    async def empty(self) -> None:
        """Take away what other tests have left, in any namespace: pods with finalizers, nodes, events, leases."""
        for plural in ("pods", "events"):
            items = (await self._ask("GET", f"/api/v1/{plural}"))["items"]
            for one in items:
                if "finalizers" in one["metadata"]:
                    path = f"{_folder(one)}/{plural}/{one['metadata']['name']}"
                    await self._ask("PATCH", path, {"metadata": {"finalizers": None}})
            for folder in {_folder(one) for one in items}:
                await self._ask("DELETE", f"{folder}/{plural}?gracePeriodSeconds=0")
        for path in ("/api/v1/nodes", f"{_LEASES}/mooring-scheduler", f"{_LEASES}/s"):
            await self._ask("DELETE", path)

    async def _ask(self, method: str, path: str, patch: Any = None) -> Any:
        headers = {"Content-Type": MERGE_PATCH} if patch else {}
        async with self._session.request(method, self._access.server + path, json=patch, headers=headers) as answer:
            return await answer.json()

    async def _answer(self, request: web.BaseRequest) -> web.StreamResponse:
        fault = self.faults.take(request.method, request.path_qs)
        if fault is not None and (failed := await fail_first(fault, request)) is not None:
            return failed
        headers = {name: request.headers[name] for name in _KEPT if name in request.headers}
        body = io.BytesIO(await request.content.read())
        url = URL(self._access.server + request.raw_path, encoded=True)
        async with self._session.request(request.method, url, data=body, headers=headers, timeout=_FOREVER) as answer:
            if "watch" in request.query and answer.status == 200:
                return await self._stream(request, answer)
            response = web.Response(status=answer.status, body=await answer.read(), content_type=answer.content_type)
        if fault is not None and fault.kind == "drop_after":
            drop(request)
        return response

    async def _stream(self, request: web.BaseRequest, answer: aiohttp.ClientResponse) -> web.StreamResponse:
        response = web.StreamResponse(headers={"Content-Type": answer.content_type})
        response.enable_chunked_encoding()
        await response.prepare(request)
        end = asyncio.Event()
        self._watches.add(end)
        try:
            async for line in _until(end, answer.content):
                await response.write(line)
        finally:
            self._watches.discard(end)
        await response.write_eof()
        return response


def _folder(one: Any) -> str:
    return f"/api/v1/namespaces/{one['metadata']['namespace']}"


async def _until(end: asyncio.Event, lines: aiohttp.StreamReader) -> AsyncIterator[bytes]:
    """Yield whole lines until there are no more, or until the end is set."""
    ended = asyncio.create_task(end.wait())
    line = asyncio.create_task(lines.readline())
    try:
        while await asyncio.wait({line, ended}, return_when=asyncio.FIRST_COMPLETED):
            if ended.done() or not line.result():
                return
            yield line.result()
            line = asyncio.create_task(lines.readline())
    finally:
        ended.cancel()
        line.cancel()
        await asyncio.gather(line, return_exceptions=True)

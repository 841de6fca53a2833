"""The simulated API server: devcluster's state and verbs behind connections in memory, with faults by seed.

The server's code is the one that replaces a real API server elsewhere; only sockets, time and chance are simulated.
"""

import asyncio
from collections.abc import Awaitable, Callable, Mapping
from contextlib import suppress
from dataclasses import dataclass, field
from datetime import UTC, datetime
from functools import partial
from typing import Any

import msgspec
from aiohttp import web

from devcluster.apiserver.call import Call
from devcluster.apiserver.http.frontend import drop
from devcluster.apiserver.http.streaming import Stream, WatchLimits
from devcluster.apiserver.objects import encode
from devcluster.apiserver.routes import parse
from devcluster.apiserver.serve import ApiServer, Options
from devcluster.apiserver.status import ApiError, expired
from devcluster.apiserver.store.listing import Lister
from devcluster.apiserver.verbs.answer import answer
from tests.scheduler.simulation.clock import VirtualLoop
from tests.scheduler.simulation.faults import Faults

Json = dict[str, Any]
JSON = "application/json"
MERGE = "application/merge-patch+json"
_LIMITS = WatchLimits(queue=10_000, bookmark_s=10.0)
# Longer than a run, in seconds.
_SILENCE_S = 86400.0


@dataclass(frozen=True)
class ApiObject:
    """An object at one version."""

    document: Json

    @property
    def name(self) -> str:
        return str(self.document["metadata"]["name"])

    @property
    def uid(self) -> str:
        return str(self.document["metadata"]["uid"])

    @property
    def created(self) -> str:
        return str(self.document["metadata"]["creationTimestamp"])

    @property
    def annotations(self) -> dict[str, str]:
        return self.document["metadata"].get("annotations") or {}

    @property
    def is_going(self) -> bool:
        return "deletionTimestamp" in self.document["metadata"]


def server_end(
    loop: asyncio.AbstractEventLoop, serve: Callable[[web.BaseRequest], Awaitable[web.StreamResponse]]
) -> asyncio.Protocol:
    """Return the server's end of a connection; a request that has arrived is answered though its client is gone."""

    async def handle(request: web.BaseRequest) -> web.StreamResponse:
        try:
            return await serve(request)
        except ConnectionError:
            # Nobody receives the answer.
            return web.Response()
        except Exception as failed:  # noqa: BLE001 - aiohttp alone would answer 500, and go on
            loop.call_exception_handler({"message": "the API server failed", "exception": failed})
            return web.Response(status=500)

    return web.Server(handle, loop=loop, access_log=None, keepalive_timeout=_SILENCE_S)()


async def begin_stream(request: web.BaseRequest) -> web.StreamResponse:
    response = web.StreamResponse(headers={"Content-Type": JSON})
    response.enable_chunked_encoding()
    await response.prepare(request)
    return response


class _Cut(Exception):  # noqa: N818 - an end of a stream, as planned
    """The watch ends here."""


@dataclass
class Api:
    """One server. ``carried_out`` is called with each call of a scheduler's process that has changed something."""

    loop: VirtualLoop
    faults: Faults
    carried_out: Callable[[str, Call], None] = lambda *_: None
    # Called with each process that requests something, before and after that is carried out.
    witness: Callable[[str], None] = lambda _: None
    # Every request of a scheduler: when it arrived, whose it was, what it asked for, and its body.
    story: list[tuple[float, str, str, bytes]] = field(default_factory=list)

    def __post_init__(self) -> None:
        clock = lambda: datetime.fromtimestamp(self.loop.wall(), UTC)  # noqa: E731
        self._server = ApiServer(Options(history=500), clock)
        self._lister = Lister()
        self.cluster = self._server.cluster

    def connection(self, process: str) -> asyncio.Protocol:
        return server_end(self.loop, partial(self.serve, process))

    def call(self, method: str, path: str, body: Any = None, content_type: str = JSON) -> Any:
        """Handle a request without network and faults; raise ApiError."""
        target = parse(path.partition("?")[0])
        assert target is not None, path
        query = dict([pair.split("=", 1)] if (pair := path.partition("?")[2]) else [])
        raw = b"" if body is None else encode(body)
        reply = answer(self.cluster, self._lister, Call(method, target, query, content_type, JSON, raw))
        return msgspec.json.decode(reply.body)

    def objects(self, group: str, plural: str) -> dict[str, Json]:
        """Return all objects of a kind, in the order of their names."""
        return {entry.name: entry.decoded() for entry in self.cluster.store.collection((group, plural)).ordered()}

    def compact(self) -> None:
        """Forget all changes: whoever resumes a watch has to list again."""
        self._server.compact()
        self._lister.forget()

    def cut_watches(self) -> None:
        self._server.cut_watches()

    async def serve(self, process: str, request: web.BaseRequest) -> web.StreamResponse:
        """Answer a request of a process, or inject the fault that the seed chose."""
        body = await request.read()
        self.story.append((self.loop.time(), process, f"{request.method} {request.path}", body))
        target = parse(request.path)
        assert target is not None, request.path
        call = Call(request.method, target, dict(request.query), request.content_type, JSON, body)
        return await (self._watch(call, request) if call.watching else self._answer(process, call, request))

    async def _answer(self, process: str, call: Call, request: web.BaseRequest) -> web.Response:
        fate = self.faults.fate(request.path)
        self.witness(process)
        if fate in ("refused", "forbidden"):
            code, headers = self.faults.code() if fate == "refused" else (403, {})
            return _refusal(ApiError(code, "", "a simulated fault"), headers)
        if fate == "late":
            await asyncio.sleep(self.faults.delay_s())
        response = web.Response()
        if not fate.endswith(" before"):
            response = self._carry_out(process, call)
            self.witness(process)
        if fate == "old":
            await asyncio.sleep(self.faults.delay_s())
        if fate.startswith("silent"):
            await asyncio.sleep(_SILENCE_S)
        if fate.startswith("broken"):
            drop(request)
        return _refusal(ApiError(504, "Timeout", "a simulated fault")) if fate == "failed after" else response

    def _carry_out(self, process: str, call: Call) -> web.Response:
        try:
            reply = answer(self.cluster, self._lister, call)
        except ApiError as error:
            return _refusal(error)
        if call.method != "GET":
            self.carried_out(process, call)
        return web.Response(status=reply.code, body=reply.body, content_type=JSON)

    async def _watch(self, call: Call, request: web.BaseRequest) -> web.StreamResponse:
        response = await begin_stream(request)
        with suppress(_Cut):
            await Stream(self.cluster, call, _LIMITS).run(partial(self._carry, request, response))
        return response

    async def _carry(self, request: web.BaseRequest, response: web.StreamResponse, data: bytes) -> None:
        if request.transport is None:
            raise _Cut
        fate = self.faults.stream_fate()
        if fate == "late":
            await asyncio.sleep(self.faults.delay_s())
        if fate == "doubled":
            data = b"".join(line * 2 for line in data.splitlines(keepends=True))
        if fate == "stale":
            data = encode({"type": "ERROR", "object": expired("too old resource version").body()}) + b"\n"
        await response.write(data[: len(data) // 2] if fate == "torn" else data)
        if fate == "torn":
            drop(request)
        if fate in ("torn", "ended", "stale"):
            raise _Cut


def _refusal(error: ApiError, headers: Mapping[str, str] | None = None) -> web.Response:
    return web.Response(status=error.code, body=encode(error.body()), headers=headers, content_type=JSON)

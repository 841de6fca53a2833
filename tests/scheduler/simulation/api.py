"""The simulated API server: devcluster's state and verbs behind connections in memory, with faults by seed.

The server's code is the one that replaces a real API server elsewhere; only sockets, time and chance are simulated.
"""

import asyncio
from collections.abc import Callable
from dataclasses import dataclass, field
from datetime import UTC, datetime
from typing import Any

import msgspec

from devcluster.apiserver.call import Call, Reply
from devcluster.apiserver.http.streaming import Stream, WatchLimits
from devcluster.apiserver.objects import encode
from devcluster.apiserver.routes import parse
from devcluster.apiserver.serve import ApiServer, Options
from devcluster.apiserver.status import ApiError, expired
from devcluster.apiserver.store.listing import Lister
from devcluster.apiserver.verbs.answer import answer
from tests.scheduler.simulation.clock import VirtualLoop
from tests.scheduler.simulation.faults import Faults
from tests.scheduler.simulation.http import Connection, Request

Json = dict[str, Any]
JSON = "application/json"
MERGE = "application/merge-patch+json"
_LIMITS = WatchLimits(queue=10_000, bookmark_s=10.0)


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

    def connection(self, process: str) -> Connection:
        return Connection(process, self.serve)

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

    async def serve(self, request: Request, connection: Connection) -> None:
        """Answer a request, or inject the fault that the seed chose."""
        self.story.append((self.loop.time(), request.process, f"{request.method} {request.path}", request.body))
        target = parse(request.path)
        assert target is not None, request.path
        media = request.headers.get("content-type", "").partition(";")[0]
        call = Call(request.method, target, request.query, media, JSON, request.body)
        if call.watching:
            await self._watch(call, connection)
        else:
            await self._answer(request, call, connection)

    async def _answer(self, request: Request, call: Call, connection: Connection) -> None:
        fate = self.faults.fate(request.path)
        self.witness(request.process)
        if fate in ("refused", "forbidden"):
            code, headers = self.faults.code() if fate == "refused" else (403, "")
            connection.answer(code, encode(ApiError(code, "", "a simulated fault").body()), headers)
        elif fate == "broken before":
            connection.break_off()
        if fate in ("refused", "forbidden", "broken before", "silent before"):
            return
        if fate == "late":
            await asyncio.sleep(self.faults.delay_s())
        reply = self._carry_out(request, call)
        self.witness(request.process)
        if fate == "old":
            await asyncio.sleep(self.faults.delay_s())
        if fate == "failed after":
            reply = Reply(504, encode(ApiError(504, "Timeout", "a simulated fault").body()))
        if fate == "broken after":
            connection.break_off()
        elif fate != "silent after":
            connection.answer(reply.code, reply.body)

    def _carry_out(self, request: Request, call: Call) -> Reply:
        try:
            reply = answer(self.cluster, self._lister, call)
        except ApiError as error:
            return Reply(error.code, encode(error.body()))
        if call.method != "GET":
            self.carried_out(request.process, call)
        return reply

    async def _watch(self, call: Call, connection: Connection) -> None:
        connection.begin_stream()
        try:
            await Stream(self.cluster, call, _LIMITS).run(lambda data: self._carry(connection, data))
        except (_Cut, ConnectionError):
            return
        connection.end_stream()

    async def _carry(self, connection: Connection, data: bytes) -> None:
        fate = self.faults.stream_fate()
        if fate == "late":
            await asyncio.sleep(self.faults.delay_s())
        if fate == "doubled":
            data = b"".join(line * 2 for line in data.splitlines(keepends=True))
        if fate == "stale":
            data = encode({"type": "ERROR", "object": expired("too old resource version").body()}) + b"\n"
        await connection.chunk(data[: len(data) // 2] if fate == "torn" else data)
        if fate == "torn":
            connection.break_off()
        elif fate in ("ended", "stale"):
            connection.end_stream()
        if fate in ("torn", "ended", "stale"):
            raise _Cut

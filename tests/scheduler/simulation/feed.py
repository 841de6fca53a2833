"""An API server whose watches send what a test wants, byte for byte: every list is empty, then come the lines."""

import asyncio
from collections import deque
from dataclasses import dataclass, field

from aiohttp import web

from tests.scheduler.simulation.api import JSON, begin_stream, server_end
from tests.scheduler.simulation.clock import VirtualLoop

_EMPTY = b'{"kind":"List","items":[],"metadata":{"resourceVersion":"1"}}'


@dataclass
class Feed:
    """Lines by collection path; a watch takes those that are there, then waits for more."""

    loop: VirtualLoop
    lines: dict[str, deque[bytes]] = field(default_factory=dict)
    more: asyncio.Event = field(default_factory=asyncio.Event)

    def connection(self, _: str) -> asyncio.Protocol:
        return server_end(self.loop, self.serve)

    def say(self, path: str, *lines: bytes) -> None:
        self.lines.setdefault(path, deque()).extend(lines)
        self.more.set()

    async def serve(self, request: web.BaseRequest) -> web.StreamResponse:
        if request.query.get("watch") != "true":
            return web.Response(body=_EMPTY, content_type=JSON)
        response = await begin_stream(request)
        lines = self.lines.setdefault(request.path, deque())
        # A stream without a reader takes no lines from the next one.
        while request.transport is not None:
            if lines:
                await response.write(lines.popleft() + b"\n")
            else:
                self.more.clear()
                await self.more.wait()
        return response

"""An API server whose watches send what a test wants, byte for byte: every list is empty, then come the lines."""

import asyncio
from collections import deque
from dataclasses import dataclass, field

from tests.scheduler.simulation.clock import VirtualLoop
from tests.scheduler.simulation.http import Connection, Request

_EMPTY = b'{"kind":"List","items":[],"metadata":{"resourceVersion":"1"}}'


@dataclass
class Feed:
    """Lines by collection path; a watch takes those that are there, then waits for more."""

    loop: VirtualLoop
    lines: dict[str, deque[bytes]] = field(default_factory=dict)
    more: asyncio.Event = field(default_factory=asyncio.Event)
    lists: int = 0

    def connection(self, process: str) -> Connection:
        return Connection(process, self.serve)

    def say(self, path: str, *lines: bytes) -> None:
        self.lines.setdefault(path, deque()).extend(lines)
        self.more.set()

    async def serve(self, request: Request, connection: Connection) -> None:
        if request.query.get("watch") != "true":
            self.lists += 1
            connection.answer(200, _EMPTY)
            return
        connection.begin_stream()
        said = self.lines.setdefault(request.path, deque())
        while True:
            while said:
                await connection.chunk(said.popleft() + b"\n")
            self.more.clear()
            await self.more.wait()

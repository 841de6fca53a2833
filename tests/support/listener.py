"""A server of raw bytes on loopback: after it nothing of it is left, neither a task nor a connection."""

import asyncio
import ssl
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager, suppress
from pathlib import Path

Serve = Callable[[asyncio.StreamReader, asyncio.StreamWriter], Awaitable[None]]


@asynccontextmanager
async def listening(serve: Serve, tls: ssl.SSLContext | None = None, port: int = 0) -> AsyncIterator[int]:
    """Call ``serve`` for each connection, which ends with it; yield the port."""
    calls = _Calls(serve)
    server = await asyncio.start_server(calls.accept, "127.0.0.1", port, ssl=tls)
    async with calls.ended_with(server):
        yield server.sockets[0].getsockname()[1]


@asynccontextmanager
async def listening_at(path: Path, serve: Serve) -> AsyncIterator[None]:
    """Do as `listening` does, at a unix socket."""
    calls = _Calls(serve)
    async with calls.ended_with(await asyncio.start_unix_server(calls.accept, path)):
        yield


class _Calls:
    """The calls of ``serve`` in progress, each with its connection."""

    def __init__(self, serve: Serve) -> None:
        self._serve = serve
        self._writers: dict[asyncio.Task[None], asyncio.StreamWriter] = {}

    async def accept(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        task = asyncio.current_task()
        assert task is not None
        self._writers[task] = writer
        # The client may go at any time.
        with suppress(asyncio.IncompleteReadError, OSError):
            await self._serve(reader, writer)
        writer.close()
        with suppress(OSError):
            await writer.wait_closed()

    @asynccontextmanager
    async def ended_with(self, server: asyncio.Server) -> AsyncIterator[None]:
        try:
            yield
        finally:
            server.close()
            for writer in self._writers.values():
                writer.transport.abort()
            await asyncio.gather(*self._writers)

"""Serve an aiohttp application within the limits of `mooring.http.connections`."""

import logging
import mmap
import ssl
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from typing import cast

from aiohttp import web
from aiohttp.http_exceptions import HttpProcessingError

from mooring.http.connections import Connection, Connections, Limits, accept_connections

# Seconds to wait for responses in progress when the server stops.
_LAST_ANSWERS_S = 2.0
_CONNECTIONS = web.AppKey("connections", Connections)
_CONNECTION = web.RequestKey("connection", Connection)
Body = bytes | memoryview
_Handler = Callable[[web.Request], Awaitable[web.StreamResponse]]
_server_log = logging.getLogger(__name__)
# aiohttp logs a traceback for input that is not HTTP, with which any peer could fill the log.
_server_log.addFilter(lambda record: not (record.exc_info and isinstance(record.exc_info[1], HttpProcessingError)))


@asynccontextmanager
async def listen(
    address: str, routes: list[web.RouteDef], limits: Limits | None = None, tls: ssl.SSLContext | None = None
) -> AsyncIterator[None]:
    """Serve on ``address`` (``host:port``; empty: do not serve) within the context; raise OSError or ConfigError.

    When a client disconnects, the work for it is cancelled.
    """
    if not address:
        yield
        return
    application = web.Application(middlewares=[_in_phases])
    application.add_routes(routes)
    connections = application[_CONNECTIONS] = Connections(limits or Limits())
    runner = web.AppRunner(
        application,
        access_log=None,
        shutdown_timeout=_LAST_ANSWERS_S,
        logger=_server_log,
        handler_cancellation=True,
        auto_decompress=False,
    )
    await runner.setup()
    try:
        async with accept_connections(address, connections, cast("web.Server", runner.server), tls):
            yield
    finally:
        await runner.cleanup()
        connections.abort_connections()


async def read_body(request: web.Request, most_bytes: int) -> Body:
    """Return a request's body; raise an HTTP error of aiohttp, 413 if it is larger than ``most_bytes``.

    The body has its own memory pages, which return to the system with it. malloc would keep the memory of large
    objects, up to twice the largest that it has freed (mallopt(3), M_MMAP_THRESHOLD).
    """
    connections, connection = request.app[_CONNECTIONS], request[_CONNECTION]
    declared_bytes = request.content_length
    if declared_bytes == 0:
        return b""
    if declared_bytes is not None and declared_bytes > most_bytes:
        raise web.HTTPRequestEntityTooLarge(most_bytes, declared_bytes)
    pages = mmap.mmap(-1, declared_bytes or most_bytes, flags=mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS)
    filled_bytes = 0
    try:
        async for part in request.content.iter_any():
            connections.hold(connection, len(part))
            if filled_bytes + len(part) > len(pages):
                raise web.HTTPRequestEntityTooLarge(most_bytes, filled_bytes + len(part))
            pages[filled_bytes : filled_bytes + len(part)] = part
            filled_bytes += len(part)
    except BaseException as error:
        # The connection keeps the exception's traceback, which would keep the pages.
        pages.close()
        if isinstance(error, ConnectionError | web.RequestPayloadError):
            raise web.HTTPBadRequest(text=f"request's body was cut short: {error}") from error
        raise
    return memoryview(pages)[:filled_bytes]


@web.middleware
async def _in_phases(request: web.Request, handler: _Handler) -> web.StreamResponse:
    """Notify the connection when a request's headers are complete, and when its answer is ready."""
    connections = request.app[_CONNECTIONS]
    try:
        connection = request[_CONNECTION] = connections.begin_request(request.protocol)
    except ConnectionResetError as error:
        raise web.HTTPBadRequest(text=str(error)) from error
    try:
        await connections.turn(connection)
        return await handler(request)
    finally:
        connections.end_request(connection)

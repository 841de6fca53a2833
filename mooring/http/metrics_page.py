"""Serve one page of metrics from a separate thread with the standard library, for programs without aiohttp.

prometheus_client's `start_http_server` is not used: it starts a thread for every connection, without a limit, for as
long as the client keeps the connection open.
"""

import asyncio
import threading
from collections.abc import Callable

from mooring.http.connections import Connections, Limits, accept_connections
from mooring.http.recent import Recent

CONTENT_TYPE = "text/plain; version=0.0.4; charset=utf-8"
_LARGEST_HEAD = 8192
_END = b"\r\n\r\n"
_LIMITS = Limits(connections=64)


def serve_metrics(address: str, make: Callable[[], bytes], *, share_address: bool = False) -> Callable[[], None]:
    """Answer each GET at ``host:port`` with the text that ``make`` returns; raise ConfigError or OSError.

    Return a function that stops the server; the thread also ends with the process. With ``share_address``, several
    processes can serve one address.
    """
    outcome: list[BaseException] = []
    ends: list[tuple[asyncio.AbstractEventLoop, asyncio.Event]] = []
    ready = threading.Event()
    recent = Recent(make)

    async def serve() -> None:
        stop = asyncio.Event()
        try:
            async with accept_connections(
                address, Connections(_LIMITS), lambda: _Page(recent.get), share_address=share_address
            ):
                ends.append((asyncio.get_running_loop(), stop))
                ready.set()
                await stop.wait()
        except (OSError, ValueError) as error:
            outcome.append(error)
        finally:
            ready.set()

    threading.Thread(target=lambda: asyncio.run(serve()), name="metrics", daemon=True).start()
    ready.wait()
    if outcome:
        raise outcome[0]
    loop, stop = ends[0]

    def end() -> None:
        loop.call_soon_threadsafe(stop.set)

    return end


class _Page(asyncio.Protocol):
    """Read one request's headers, answer, and close the connection."""

    def __init__(self, body: Callable[[], bytes]) -> None:
        self._body = body
        self._head = b""
        self._transport: asyncio.Transport | None = None

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        assert isinstance(transport, asyncio.Transport)
        self._transport = transport

    def data_received(self, data: bytes) -> None:
        if self._transport is None:
            return
        self._head += data
        if len(self._head) > _LARGEST_HEAD:
            self._transport.abort()
        elif _END in self._head:
            self._answer(self._transport)

    def _answer(self, transport: asyncio.Transport) -> None:
        self._transport = None
        if self._head.startswith(b"GET "):
            status, body = "200 OK", self._body()
        else:
            status, body = "405 Method Not Allowed", b"only GET is answered\n"
        head = f"HTTP/1.1 {status}\r\nContent-Type: {CONTENT_TYPE}\r\nContent-Length: {len(body)}\r\nConnection: close"
        transport.write(head.encode() + _END + body)
        transport.close()

"""Just enough of HTTP/1.1 for a simulated API server: requests with a length, answers with one, streams in chunks."""

import asyncio
from collections import deque
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass
from typing import Any
from urllib.parse import parse_qsl, unquote, urlsplit


@dataclass(frozen=True, slots=True)
class Request:
    """One request; ``process`` sent it."""

    process: str
    method: str
    path: str
    query: Mapping[str, str]
    headers: Mapping[str, str]
    body: bytes


class Connection(asyncio.Protocol):
    """The server's end: one request after the other, each answered by ``serve``."""

    def __init__(self, process: str, serve: Callable[[Request, "Connection"], Awaitable[None]]) -> None:
        self._process = process
        self._serve = serve
        self._unread = b""
        self._requests: deque[Request] = deque()
        self._streaming = False
        self._worker: asyncio.Task[None] | None = None

    def connection_made(self, transport: Any) -> None:
        self._transport = transport

    def data_received(self, data: bytes) -> None:
        self._unread += data
        while (request := self._take()) is not None:
            self._requests.append(request)
        if self._requests and (self._worker is None or self._worker.done()):
            self._worker = asyncio.get_running_loop().create_task(self._work())

    def connection_lost(self, exc: Exception | None) -> None:
        """End a stream without a reader; a request that has arrived is still carried out."""
        if self._worker is not None and self._streaming:
            self._worker.cancel()

    def _take(self) -> Request | None:
        head, found, rest = self._unread.partition(b"\r\n\r\n")
        if not found:
            return None
        first, *lines = head.decode("latin-1").split("\r\n")
        headers = {name.lower(): value.strip() for name, _, value in (line.partition(":") for line in lines)}
        length = int(headers.get("content-length", "0"))
        if len(rest) < length:
            return None
        self._unread = rest[length:]
        method, target, _ = first.split(" ")
        url = urlsplit(target)
        return Request(
            self._process, method, unquote(url.path), dict(parse_qsl(url.query)), headers, bytes(rest[:length])
        )

    async def _work(self) -> None:
        while self._requests:
            await self._serve(self._requests.popleft(), self)

    def answer(self, code: int, body: bytes, headers: str = "") -> None:
        head = f"HTTP/1.1 {code} X\r\nContent-Type: application/json\r\nContent-Length: {len(body)}\r\n{headers}\r\n"
        self._transport.write(head.encode() + body)

    def begin_stream(self) -> None:
        self._streaming = True
        head = b"HTTP/1.1 200 OK\r\nContent-Type: application/json\r\nTransfer-Encoding: chunked\r\n\r\n"
        self._transport.write(head)

    async def chunk(self, data: bytes) -> None:
        if self._transport.is_closing():
            raise ConnectionResetError("nobody reads any more")
        if data:
            self._transport.write(b"%x\r\n%b\r\n" % (len(data), data))

    def end_stream(self) -> None:
        """End it cleanly: the connection may carry further requests."""
        self._streaming = False
        self._transport.write(b"0\r\n\r\n")

    def break_off(self) -> None:
        self._transport.abort()

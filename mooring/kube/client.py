"""Send HTTP requests to the API server: bytes in, bytes out.

    async with Client(load_access(None)) as client:
        node = await client.request("GET", "/api/v1/nodes/n1")
        await client.request("PATCH", "/api/v1/nodes/n1", patch, content_type=MERGE_PATCH)

Reads use aiohttp, with compression for lists. Writes, of which a scheduler sends thousands a second, use
`mooring.kube.connections`. Every failure is one of `mooring.kube.failures`, also an incomplete 2xx answer
(`mooring.kube.answers`). Only this module handles the exceptions of both libraries. A request that was rejected with
401, before anything was done, is repeated once with new headers; nothing else is.
"""

import asyncio
import re
import time
from collections.abc import AsyncIterator, Callable, Mapping
from contextlib import asynccontextmanager
from typing import Self
from urllib.parse import quote, urlencode

import aiohttp
from multidict import CIMultiDict
from yarl import URL

from mooring.kube.access import Access, AccessError
from mooring.kube.answers import check_read, check_write
from mooring.kube.connections import Answer, Connections
from mooring.kube.failures import Status, Unknown, failure, of_object
from mooring.kube.request_slots import RequestSlots

JSON = "application/json"
MERGE_PATCH = "application/merge-patch+json"
STRATEGIC_PATCH = "application/strategic-merge-patch+json"
# The user agent in the API server's audit log, and the field manager of patches.
_AGENT = "mooring"
# Tokens are short-lived: a service account's file is rewritten well before its hour ends, and exec plugins return an
# expiry time.
_HEADERS_LAST_S = 60.0
# Seconds between two reads of a stream, unless many bytes are waiting: reading lines together costs less CPU.
_TOGETHER_S = 0.003
_FULL_CHUNK_BYTES = 1 << 16
_Params = Mapping[str, str]
_PLAIN = re.compile(r"[A-Za-z0-9._/-]*").fullmatch
_CONNECTION_ERRORS = (aiohttp.ClientError, TimeoutError, OSError)


class Client:
    """A client with at most ``connections`` concurrent requests to one API server; use as an async context manager.

    A write that waits long for its answer does not count among ``connections``; see `mooring.kube.request_slots`.

    ``guard`` is called right before each request is sent, after any wait for a connection. It raises if no request may
    be sent any more.
    """

    def __init__(
        self,
        access: Access,
        connections: int = 16,
        timeout_s: float = 30.0,
        guard: Callable[[], None] = lambda: None,
    ) -> None:
        self._access = access
        self._server = URL(access.server)
        self._prefix = self._server.raw_path.rstrip("/")
        self._timeout_s = timeout_s
        self._short = aiohttp.ClientTimeout(total=timeout_s)
        self._guard = guard
        self._headers: CIMultiDict[str] = CIMultiDict()
        self._headers_until = float("-inf")
        # The headers of a write between its request line and the headers of its content.
        self._fields = ""
        self._reads = asyncio.Semaphore(connections)
        self._writes = RequestSlots(connections)
        self._connections = Connections(self._server, access.tls, access.server_name, access.proxy)
        self._session: aiohttp.ClientSession | None = None

    async def __aenter__(self) -> Self:
        # A watch occupies its connection as long as it lives, so watches do not count against the limit.
        connector = aiohttp.TCPConnector(limit=0, limit_per_host=0, ssl=self._access.tls or True)
        # API servers set no cookies, so responses are not searched for them.
        self._session = aiohttp.ClientSession(connector=connector, cookie_jar=aiohttp.DummyCookieJar())
        return self

    async def __aexit__(self, *_: object) -> None:
        self._connections.close()
        if self._session is not None:
            await self._session.close()

    async def request(
        self,
        method: str,
        path: str,
        body: bytes = b"",
        content_type: str = JSON,
        params: _Params | None = None,
        patience_s: float | None = None,
    ) -> bytes:
        """Return the body of a 2xx answer; raise a KubeError otherwise.

        With ``patience_s`` a write uses its own connection and waits so many seconds for the answer.
        """
        try:
            if method != "GET":
                return await self._write(method, path, body, content_type, params, patience_s)
            async with self._reads, await self._begin(path, params, self._short) as answer:
                content = await answer.read()
        except _CONNECTION_ERRORS as error:
            raise _unknown(method, path, error) from error
        check_read(f"GET {path}", content)
        return content

    @asynccontextmanager
    async def stream(self, path: str, params: _Params, silence_s: float) -> AsyncIterator[AsyncIterator[list[bytes]]]:
        """Open a GET with an endless answer and yield its lines, in lists of those that have arrived.

        Raise Unknown after ``silence_s`` seconds without a byte.
        """
        timeout = aiohttp.ClientTimeout(total=None, connect=self._timeout_s, sock_read=silence_s)
        try:
            # A stream can be silent for long, but the server sends its headers at once.
            async with asyncio.timeout(self._timeout_s):
                response = await self._begin(path, params, timeout)
            async with response as answer:
                yield _lines(answer.content)
        except _CONNECTION_ERRORS as error:
            raise _unknown("GET", path, error) from error

    async def _write(
        self, method: str, path: str, body: bytes, content_type: str, params: _Params | None, patience_s: float | None
    ) -> bytes:
        # The names of nearly all objects need no quoting.
        target_path = path if _PLAIN(path) else quote(path)
        target = f"{method} {self._prefix}{target_path}{'?' + urlencode(params) if params else ''}"
        content = f"Content-Type: {content_type}\r\nContent-Length: {len(body)}\r\n\r\n"
        slot = await self._writes.take(_namespace(path))
        try:
            answer = await self._ask(target, content, body, patience_s)
            if answer.status == 401:
                self._forget_headers()
                answer = await self._ask(target, content, body, patience_s)
        finally:
            slot.end()
        if not 200 <= answer.status < 300:
            raise of_object(failure(answer.status, answer.body, answer.retry_after))
        check_write(f"{method} {path}", answer.body)
        return answer.body

    async def _ask(self, target: str, content: str, body: bytes, patience_s: float | None) -> Answer:
        if time.monotonic() >= self._headers_until:
            await self._authorize()
        head = f"{target} HTTP/1.1\r\n{self._fields}{content}"
        request = head.encode("latin-1") + body
        return await self._connections.ask(request, self._timeout_s, self._guard, patience_s)

    async def _begin(self, path: str, params: _Params | None, timeout: aiohttp.ClientTimeout) -> aiohttp.ClientResponse:
        """Send a GET and return its 2xx answer once the headers have arrived."""
        answer = await self._get(path, params, timeout)
        if answer.status == 401:
            answer.release()
            self._forget_headers()
            answer = await self._get(path, params, timeout)
        if not 200 <= answer.status < 300:
            async with answer:
                raise failure(answer.status, await answer.read(), answer.headers.get("Retry-After"))
        return answer

    async def _get(self, path: str, params: _Params | None, timeout: aiohttp.ClientTimeout) -> aiohttp.ClientResponse:
        assert self._session is not None, "the client is not entered"
        if time.monotonic() >= self._headers_until:
            await self._authorize()
        self._guard()
        return await self._session.get(
            # Parsing a URL from text would take several times as long.
            self._server.with_path(self._server.path.rstrip("/") + path),
            headers=self._headers,
            params=params,
            timeout=timeout,
            allow_redirects=False,
            server_hostname=self._access.server_name,
            proxy=proxy.url if (proxy := self._access.proxy) else None,
            proxy_headers={"Proxy-Authorization": proxy.authorization} if proxy and proxy.authorization else None,
        )

    def _forget_headers(self) -> None:
        self._access.forget()
        self._headers_until = float("-inf")

    async def _authorize(self) -> None:
        begin_s = time.monotonic()
        try:
            credentials = await asyncio.to_thread(self._access.headers)
        except AccessError as error:
            raise Unknown(Status(0, message=str(error))) from error
        standard_headers = [("Accept", JSON), ("User-Agent", _AGENT)]
        self._headers = CIMultiDict([*standard_headers, *credentials.items(), *self._access.fixed_headers])
        lines = [f"{name}: {value}" for name, value in self._headers.items()]
        if not all(line.isascii() and line.isprintable() for line in lines):
            raise Unknown(
                Status(
                    0, message="the credentials do not fit into an HTTP header, which is one line of printable ASCII"
                )
            )
        self._fields = "".join(f"{line}\r\n" for line in (f"Host: {self._server.host_port_subcomponent}", *lines))
        self._headers_until = begin_s + _HEADERS_LAST_S


def _namespace(path: str) -> str:
    """Return the namespace in a path; empty without one."""
    _, separator, rest = path.partition("/namespaces/")
    return rest.partition("/")[0] if separator else ""


def _unknown(method: str, path: str, error: Exception) -> Unknown:
    return Unknown(Status(0, message=f"{method} {path}: {str(error) or type(error).__name__}"))


async def _lines(content: aiohttp.StreamReader) -> AsyncIterator[list[bytes]]:
    """Yield lines of any length; drop a last line without a newline, which is truncated."""
    partial_line: list[bytes] = []
    async for chunk in content.iter_any():
        first, *rest = chunk.split(b"\n")
        partial_line.append(first)
        if rest:
            lines = [b"".join(partial_line), *rest]
            partial_line = [lines.pop()]
            yield lines
            if len(chunk) < _FULL_CHUNK_BYTES:
                await asyncio.sleep(_TOGETHER_S)

"""Talk HTTP to the API server: bytes in, bytes out.

    async with Client(load_access(None)) as client:
        node = await client.request("GET", "/api/v1/nodes/n1")
        await client.request("PATCH", "/api/v1/nodes/n1", patch, content_type=MERGE_PATCH)

Whatever fails is one of `mooring.kube.failures`: this is the one place that knows aiohttp's exceptions. Nothing is
repeated here but a request that was refused with 401 before anything was done, once, with fresh headers.
"""

import asyncio
import time
from collections.abc import AsyncIterator, Callable, Mapping
from contextlib import asynccontextmanager
from typing import Self

import aiohttp
from yarl import URL

from mooring.kube.access import Access
from mooring.kube.failures import Status, Unknown, failure

JSON = "application/json"
MERGE_PATCH = "application/merge-patch+json"
STRATEGIC_PATCH = "application/strategic-merge-patch+json"
# Tokens are short-lived: a service account's file is rewritten well before the hour is over, exec plugins say when.
_HEADERS_LAST_S = 60.0
_Params = Mapping[str, str]
_LOST = (aiohttp.ClientError, TimeoutError, OSError)


class Client:
    """A pool of few connections to one API server; use as an async context manager.

    ``guard`` is called right before each request is sent, however long that had to wait for a connection's turn; it
    raises where nothing may be sent any more.
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
        self._connections = connections
        self._timeout_s = timeout_s
        self._short = aiohttp.ClientTimeout(total=timeout_s)
        self._guard = guard
        self._headers_until = float("-inf")
        self._session: aiohttp.ClientSession | None = None

    async def __aenter__(self) -> Self:
        # Watches hold a connection each for good, so they do not count against the limit of the short requests.
        connector = aiohttp.TCPConnector(limit=0, limit_per_host=0, ssl=self._access.tls or True)
        # API servers set no cookies; looking for some at every request is for nothing.
        self._session = aiohttp.ClientSession(
            connector=connector, cookie_jar=aiohttp.DummyCookieJar(), headers={"Accept": JSON}
        )
        self._slots = asyncio.Semaphore(self._connections)
        return self

    async def __aexit__(self, *_: object) -> None:
        if self._session is not None:
            await self._session.close()

    async def request(
        self,
        method: str,
        path: str,
        body: bytes | None = None,
        content_type: str = JSON,
        params: _Params | None = None,
    ) -> bytes:
        """Return the body of a 2xx answer; raise a KubeError for anything else."""
        async with self._slots:
            try:
                async with await self._begin(method, path, body, content_type, params, self._short) as answer:
                    return await answer.read()
            except _LOST as lost:
                raise _unknown(method, path, lost) from lost

    @asynccontextmanager
    async def stream(self, path: str, params: _Params, silence_s: float) -> AsyncIterator[AsyncIterator[list[bytes]]]:
        """Open a GET that does not end by itself and give its lines, as many at once as have come.

        ``silence_s`` without a byte is Unknown.
        """
        timeout = aiohttp.ClientTimeout(total=None, connect=self._timeout_s, sock_read=silence_s)
        try:
            # A stream may be silent for long, but a server begins it at once.
            async with asyncio.timeout(self._timeout_s):
                begun = await self._begin("GET", path, None, JSON, params, timeout)
            async with begun as answer:
                yield _lines(answer.content)
        except _LOST as lost:
            raise _unknown("GET", path, lost) from lost

    async def _begin(
        self,
        method: str,
        path: str,
        body: bytes | None,
        content_type: str,
        params: _Params | None,
        timeout: aiohttp.ClientTimeout,
    ) -> aiohttp.ClientResponse:
        """Send a request and return the answer, a 2xx one, once its headers are there."""
        assert self._session is not None, "the client is not entered"
        if time.monotonic() >= self._headers_until:
            await self._authorize(self._session)
        answer = await self._send(self._session, method, path, body, content_type, params, timeout)
        if answer.status == 401:
            answer.release()
            await self._authorize(self._session)
            answer = await self._send(self._session, method, path, body, content_type, params, timeout)
        if not 200 <= answer.status < 300:
            async with answer:
                raise failure(answer.status, await answer.read(), answer.headers.get("Retry-After"))
        return answer

    async def _send(
        self,
        session: aiohttp.ClientSession,
        method: str,
        path: str,
        body: bytes | None,
        content_type: str,
        params: _Params | None,
        timeout: aiohttp.ClientTimeout,
    ) -> aiohttp.ClientResponse:
        self._guard()
        return await session.request(
            method,
            # A URL that is a text would be parsed, which takes several times as long.
            self._server.with_path(self._server.path.rstrip("/") + path),
            data=body,
            headers={"Content-Type": content_type},
            params=params,
            timeout=timeout,
            allow_redirects=False,
            server_hostname=self._access.server_name,
        )

    async def _authorize(self, session: aiohttp.ClientSession) -> None:
        asked = time.monotonic()
        session.headers.update(await asyncio.to_thread(self._access.headers))
        self._headers_until = asked + _HEADERS_LAST_S


def _unknown(method: str, path: str, lost: Exception) -> Unknown:
    return Unknown(Status(0, message=f"{method} {path}: {str(lost) or type(lost).__name__}"))


async def _lines(content: aiohttp.StreamReader) -> AsyncIterator[list[bytes]]:
    """Yield lines of any length; a last line without its end was cut off and is dropped."""
    begun: list[bytes] = []
    async for chunk in content.iter_any():
        first, *others = chunk.split(b"\n")
        begun.append(first)
        if others:
            lines = [b"".join(begun), *others]
            begun = [lines.pop()]
            yield lines

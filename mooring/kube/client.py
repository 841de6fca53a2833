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

from mooring.kube.access import Access
from mooring.kube.failures import Status, Unknown, failure

JSON = "application/json"
MERGE_PATCH = "application/merge-patch+json"
STRATEGIC_PATCH = "application/strategic-merge-patch+json"
# Tokens are short-lived: a service account's file is rewritten well before the hour is over, exec plugins say when.
_HEADERS_LAST_S = 60.0
_Params = Mapping[str, str]


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
        self._connections = connections
        self._timeout_s = timeout_s
        self._guard = guard
        self._headers: Mapping[str, str] = {}
        self._headers_until = float("-inf")
        self._session: aiohttp.ClientSession | None = None

    async def __aenter__(self) -> Self:
        # Watches hold a connection each for good, so they do not count against the limit of the short requests.
        connector = aiohttp.TCPConnector(limit=0, limit_per_host=0, ssl=self._access.tls or True)
        # API servers set no cookies; looking for some at every request is for nothing.
        self._session = aiohttp.ClientSession(connector=connector, cookie_jar=aiohttp.DummyCookieJar())
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
        timeout = aiohttp.ClientTimeout(total=self._timeout_s)
        async with self._slots, self._answer(method, path, body, content_type, params, timeout) as answer:
            return await answer.read()

    @asynccontextmanager
    async def stream(self, path: str, params: _Params, silence_s: float) -> AsyncIterator[AsyncIterator[list[bytes]]]:
        """Open a GET that does not end by itself and give its lines, as many at once as have come.

        ``silence_s`` without a byte is Unknown.
        """
        timeout = aiohttp.ClientTimeout(total=None, connect=self._timeout_s, sock_read=silence_s)
        async with self._answer("GET", path, None, JSON, params, timeout) as answer:
            yield _lines(answer.content)

    @asynccontextmanager
    async def _answer(
        self,
        method: str,
        path: str,
        body: bytes | None,
        content_type: str,
        params: _Params | None,
        timeout: aiohttp.ClientTimeout,
    ) -> AsyncIterator[aiohttp.ClientResponse]:
        assert self._session is not None, "the client is not entered"
        url = self._access.server + path
        try:
            for fresh in (False, True):
                headers = {**await self._authorization(fresh=fresh), "Accept": JSON, "Content-Type": content_type}
                self._guard()
                # A stream may be silent for long, but a server begins it at once.
                async with asyncio.timeout(self._timeout_s):
                    begun = await self._session.request(
                        method,
                        url,
                        data=body,
                        headers=headers,
                        params=params,
                        timeout=timeout,
                        allow_redirects=False,
                        server_hostname=self._access.server_name,
                    )
                async with begun as answer:
                    if answer.status == 401 and not fresh:
                        continue
                    if not 200 <= answer.status < 300:
                        raise failure(answer.status, await answer.read(), answer.headers.get("Retry-After"))
                    yield answer
                    return
        except (aiohttp.ClientError, TimeoutError, OSError) as lost:
            raise Unknown(Status(0, message=f"{method} {path}: {str(lost) or type(lost).__name__}")) from lost

    async def _authorization(self, *, fresh: bool) -> Mapping[str, str]:
        now = time.monotonic()
        if fresh or now >= self._headers_until:
            self._headers = await asyncio.to_thread(self._access.headers)
            self._headers_until = now + _HEADERS_LAST_S
        return self._headers


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

"""Serve the page on loopback: to the browser that has the secret of its address, and to no other page in it.

The page itself contains nothing of the cluster. Its script reads ``/changes`` with the secret, which stays open: lines
of JSON with the report, later what has changed in it, and the state of the connection to the API server.
"""

import asyncio
import hmac
import secrets
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping
from contextlib import asynccontextmanager
from datetime import UTC, datetime
from typing import Any

import msgspec
from aiohttp import web

from cli.plugin.page.changes import changes, is_news
from cli.plugin.page.html import page
from cli.plugin.reports.tables import Answer

_HOST = "127.0.0.1"
_HEADERS = {
    "Cache-Control": "no-store",
    "Cross-Origin-Resource-Policy": "same-origin",
    "Referrer-Policy": "no-referrer",
    "X-Content-Type-Options": "nosniff",
    "X-Frame-Options": "DENY",
}
_Handler = Callable[[web.Request], Awaitable[web.StreamResponse]]


class PageServer:
    """The report as it is now, for the browsers that follow it; ``address`` has the secret."""

    def __init__(self) -> None:
        self._token = secrets.token_urlsafe(32)
        self._report: Mapping[str, Any] = {}
        # The report before, and what has changed since.
        self._last: tuple[Mapping[str, Any], Mapping[str, Any]] = ({}, {})
        self._state: Mapping[str, object] = {}
        self._next = asyncio.Event()
        self._port = 0

    @property
    def address(self) -> str:
        return f"http://{_HOST}:{self._port}/#token={self._token}"

    def publish(self, answer: Answer) -> bool:
        """Replace the report and let the browsers know, if more than its time has changed; return whether it has."""
        made = changes(self._report, answer.document)
        if not is_news(made, self._report):
            return False
        self._last = (self._report, made)
        self._report = answer.document
        self._tell()
        return True

    def report_progress(self, what: str, count: int) -> None:
        """Let the browsers know how many objects were read before the first report."""
        self._state = {"reading": what, "count": count}
        self._tell()

    def api_answered(self, answered_at: float, failure: str) -> None:
        """Let the browsers know since when the API server does not answer; ``failure`` is empty if it does."""
        last = datetime.fromtimestamp(answered_at, UTC).isoformat(timespec="seconds").replace("+00:00", "Z")
        state = {"answered_at": last, "failure": failure} if failure else {}
        if state != self._state and not (state == {} and not self._report):
            self._state = state
            self._tell()

    def _tell(self) -> None:
        self._next.set()
        self._next = asyncio.Event()

    @asynccontextmanager
    async def serving(self, port: int) -> AsyncIterator[None]:
        """Serve on a port of 127.0.0.1, 0 for a free one; raise OSError if it is taken."""
        app = web.Application(middlewares=[self._guard])
        app.add_routes([web.get("/", self._page), web.get("/changes", self._changes)])
        # The address has the secret: no request is logged. A browser that has gone ends its request.
        runner = web.AppRunner(app, access_log=None, handler_cancellation=True, shutdown_timeout=0.5)
        await runner.setup()
        try:
            site = web.TCPSite(runner, _HOST, port)
            await site.start()
            self._port = int(runner.addresses[0][1])
            yield
        finally:
            await runner.cleanup()

    @web.middleware
    async def _guard(self, request: web.Request, handler: _Handler) -> web.StreamResponse:
        """Refuse what another page or another name of this machine asks, and all but the page without the secret."""
        own = {f"{_HOST}:{self._port}", f"localhost:{self._port}"}
        origin = request.headers.get("Origin")
        if request.host not in own or (origin is not None and origin not in {f"http://{host}" for host in own}):
            raise web.HTTPForbidden(text="only this page may ask", headers=_HEADERS)
        given = request.headers.get("Authorization", "").encode()
        if request.path != "/" and not hmac.compare_digest(given, f"Bearer {self._token}".encode()):
            raise web.HTTPUnauthorized(text="the address lacks its secret", headers=_HEADERS)
        return await handler(request)

    async def _page(self, _: web.Request) -> web.StreamResponse:
        return web.Response(text=page(None), content_type="text/html", headers=_HEADERS)

    async def _changes(self, request: web.Request) -> web.StreamResponse:
        """Answer with the report, and a line for each change; a browser that is slow gets several changes as one."""
        response = web.StreamResponse(headers={"Content-Type": "application/x-ndjson", **_HEADERS})
        await response.prepare(request)
        sent: Mapping[str, Any] = {}
        state: Mapping[str, object] = {}
        while True:
            following = self._next
            if self._report and self._report is not sent:
                before, last = self._last
                made = last if sent is before else changes(sent, self._report)
                line = {"changes": made} if sent else {"report": self._report}
                sent = self._report
                await response.write(msgspec.json.encode(line) + b"\n")
            if self._state != state:
                state = self._state
                await response.write(msgspec.json.encode({"state": state}) + b"\n")
            if self._next is following:
                await following.wait()

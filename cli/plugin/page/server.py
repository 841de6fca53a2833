"""Serve the page on loopback: to the browser that has the secret of its address, and to no other page in it.

The page itself contains nothing of the cluster. Its script reads the report with the secret, and reads it again when
the server writes a line to the answer of ``/changes``, which stays open.
"""

import asyncio
import hmac
import json
import secrets
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping
from contextlib import asynccontextmanager

from aiohttp import web

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
        self._report = b""
        self._content: dict[str, object] = {}
        self._next = asyncio.Event()
        self._port = 0

    @property
    def address(self) -> str:
        return f"http://{_HOST}:{self._port}/#token={self._token}"

    def publish(self, answer: Answer) -> bool:
        """Replace the report and let the browsers know, if more than its time has changed; return whether it has."""
        if (content := _content(answer.document)) == self._content:
            return False
        self._content = content
        self._report = json.dumps(answer.document).encode()
        self._next.set()
        self._next = asyncio.Event()
        return True

    @asynccontextmanager
    async def serving(self, port: int) -> AsyncIterator[None]:
        """Serve on a port of 127.0.0.1, 0 for a free one; raise OSError if it is taken."""
        app = web.Application(middlewares=[self._guard])
        app.add_routes(
            [web.get("/", self._page), web.get("/report", self._current), web.get("/changes", self._changes)]
        )
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
        if request.host not in own or (origin is not None and origin not in {f"http://{one}" for one in own}):
            raise web.HTTPForbidden(text="only this page may ask", headers=_HEADERS)
        given = request.headers.get("Authorization", "").encode()
        if request.path != "/" and not hmac.compare_digest(given, f"Bearer {self._token}".encode()):
            raise web.HTTPUnauthorized(text="the address lacks its secret", headers=_HEADERS)
        return await handler(request)

    async def _page(self, _: web.Request) -> web.StreamResponse:
        return web.Response(text=page(None), content_type="text/html", headers=_HEADERS)

    async def _current(self, _: web.Request) -> web.StreamResponse:
        response = web.Response(body=self._report, content_type="application/json", headers=_HEADERS)
        response.enable_compression()
        return response

    async def _changes(self, request: web.Request) -> web.StreamResponse:
        """Answer with a line now if there is a report, and one for each change."""
        response = web.StreamResponse(headers={"Content-Type": "text/plain", **_HEADERS})
        await response.prepare(request)
        while True:
            following = self._next
            if self._report:
                await response.write(b"\n")
            await following.wait()


def _content(document: Mapping[str, object]) -> dict[str, object]:
    """Return a report without what changes all the time: when it was taken, and how long ago a Lease was renewed."""
    checks = document.get("checks")
    states = [(one["check"], one["state"]) for one in checks] if isinstance(checks, list) else []
    return {name: value for name, value in document.items() if name != "taken_at"} | {"checks": states}

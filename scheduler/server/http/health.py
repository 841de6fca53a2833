"""Serve /metrics, /healthz, /livez and /readyz."""

from collections.abc import Callable
from contextlib import AbstractAsyncContextManager

from aiohttp import web
from prometheus_client import CONTENT_TYPE_LATEST, generate_latest

from mooring.http.application import listen
from mooring.http.recent import Recent


def serve(address: str, not_ready: Callable[[], str]) -> AbstractAsyncContextManager[None]:
    """Listen on ``address`` (``host:port``; empty does not listen); ``not_ready`` returns why not, empty when ready."""
    recent = Recent(generate_latest)

    async def metrics(_: web.Request) -> web.Response:
        return web.Response(body=recent.get(), headers={"Content-Type": CONTENT_TYPE_LATEST})

    async def alive(_: web.Request) -> web.Response:
        return web.Response(text="ok")

    async def ready(_: web.Request) -> web.Response:
        reason = not_ready()
        return web.Response(text=reason or "ok", status=503 if reason else 200)

    routes = [
        web.get("/metrics", metrics),
        web.get("/healthz", alive),
        web.get("/livez", alive),
        web.get("/readyz", ready),
    ]
    return listen(address, routes)

"""Serve /metrics, /healthz, /livez and /readyz."""

from collections.abc import Callable
from contextlib import AbstractAsyncContextManager

from aiohttp import web
from prometheus_client import CONTENT_TYPE_LATEST, generate_latest

from scheduler.server.http.listening import listen

Why = Callable[[], str]


def serve(address: str, not_ready: Why) -> AbstractAsyncContextManager[None]:
    """Listen on ``address`` (``host:port``, empty for nowhere); ``not_ready`` returns why not, empty when ready."""
    return listen(address, _application(not_ready))


def _application(not_ready: Why) -> web.Application:
    async def metrics(_: web.Request) -> web.Response:
        return web.Response(body=generate_latest(), headers={"Content-Type": CONTENT_TYPE_LATEST})

    async def alive(_: web.Request) -> web.Response:
        return web.Response(text="ok")

    async def ready(_: web.Request) -> web.Response:
        why = not_ready()
        return web.Response(text=why or "ok", status=503 if why else 200)

    application = web.Application()
    application.router.add_get("/metrics", metrics)
    application.router.add_get("/healthz", alive)
    application.router.add_get("/livez", alive)
    application.router.add_get("/readyz", ready)
    return application

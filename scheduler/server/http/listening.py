"""Listen for HTTP, or HTTPS, on an address of the command line."""

import ssl
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

from aiohttp import web

from mooring.config import host_and_port

# Seconds to wait at the end for responses that are in progress.
_LAST_ANSWERS_S = 2.0


@asynccontextmanager
async def listen(address: str, application: web.Application, tls: ssl.SSLContext | None = None) -> AsyncIterator[None]:
    """Serve on ``address`` (``host:port``, empty for nowhere) until the context ends."""
    if not address:
        yield
        return
    host, port = host_and_port(address)
    runner = web.AppRunner(application, access_log=None, shutdown_timeout=_LAST_ANSWERS_S)
    await runner.setup()
    try:
        await web.TCPSite(runner, host, port, ssl_context=tls).start()
        yield
    finally:
        await runner.cleanup()

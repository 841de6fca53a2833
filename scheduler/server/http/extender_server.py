"""Serve a stock kube-scheduler over HTTP or HTTPS: `filter`, `prioritize`, `preempt` and `bind` below ``/scheduler``.

Only a leader that has listed everything answers. Others return 503, and kube-scheduler tries the pod again. An error in
a request is returned in the protocol's ``Error`` field if the response has one: kube-scheduler shows only that to the
pod's owner.
"""

import ssl
from collections.abc import Awaitable, Callable
from contextlib import AbstractAsyncContextManager

import structlog
from aiohttp import web

from mooring.http.application import Body, listen, read_body
from mooring.http.connections import Limits
from scheduler.extender.wire_format import ProtocolError, error_result
from scheduler.server import metrics
from scheduler.server.http.extender_handlers import ExtenderHandlers

_log = structlog.get_logger()
# Bytes: whole nodes of about 10 KB each, of which kube-scheduler sends those that passed its own filters.
_LARGEST = 32 << 20
# kube-scheduler opens a connection for each Binding in progress, which waits at most 5 s by default.
_LIMITS = Limits(connections=512, body_bytes=_LARGEST + (16 << 20), turns_per_s=5000)
_PREFIX = "/scheduler"
Answer = Callable[[Body], Awaitable[bytes]]
ErrorResponse = Callable[[str], web.Response]


def serve(
    address: str, extender_handlers: ExtenderHandlers, tls: ssl.SSLContext | None = None
) -> AbstractAsyncContextManager[None]:
    """Listen on ``address`` (``host:port``; empty does not listen)."""
    routes = [
        _route("filter", extender_handlers.filter, extender_handlers),
        _route("bind", extender_handlers.bind, extender_handlers),
        # The path of rit-k8s-rdma's scheduler extension, on port 8888.
        _route("rdma_scheduling", extender_handlers.rdma_scheduling, extender_handlers),
        # Their responses have no field for an error.
        _route("prioritize", extender_handlers.prioritize, extender_handlers, _bad_request),
        _route("preempt", extender_handlers.preempt, extender_handlers, _bad_request),
    ]
    if address and (tls is None or tls.verify_mode != ssl.CERT_REQUIRED):
        _log.warning("extender accepts every client that reaches its port", address=address)
    return listen(address, routes, _LIMITS, tls)


def _json(body: bytes) -> web.Response:
    return web.Response(body=body, content_type="application/json")


def _error(error: str) -> web.Response:
    return _json(error_result(error))


def _bad_request(error: str) -> web.Response:
    return web.Response(text=error, status=400)


def _route(
    verb: str, answer: Answer, extender_handlers: ExtenderHandlers, error_response: ErrorResponse = _error
) -> web.RouteDef:
    async def respond(request: web.Request) -> web.Response:
        if reason := extender_handlers.standing_by():
            response = _standing_by(reason)
        else:
            try:
                response = _json(await answer(await read_body(request, _LARGEST)))
            except ProtocolError as error:
                response = error_response(str(error))
        metrics.EXTENDER_REQUESTS.labels(verb, str(response.status)).inc()
        return response

    return web.post(f"{_PREFIX}/{verb}", respond)


def _standing_by(reason: str) -> web.Response:
    response = web.Response(text=f"this scheduler {reason}", status=503)
    # Behind a Service the next connection may reach the leader; this connection never would.
    response.force_close()
    return response

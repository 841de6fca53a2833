"""Serve a stock kube-scheduler over HTTP or HTTPS: `filter`, `prioritize`, `preempt` and `bind` below ``/scheduler``.

Only a leader that has listed everything answers. Others return 503, and kube-scheduler tries the pod again. An error in
a request is returned in the protocol's ``Error`` field if the response has one: kube-scheduler shows only that to the
pod's owner.

Certificates are renewed while the server runs. At each handshake the files are compared with those read before; if they
differ, that connection and all later ones use the new ones. If the new files cannot be used, for example because a
renewal is incomplete, the previous ones stay in use. No session is resumed, so every client is verified again.
"""

import ssl
from collections.abc import Awaitable, Callable
from contextlib import AbstractAsyncContextManager
from pathlib import Path

import structlog
from aiohttp import web

from mooring.http.application import Body, listen, read_body
from mooring.http.connections import Limits
from mooring.program.config import ConfigError
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
            response = web.Response(text=f"this scheduler {reason}", status=503)
            # Behind a Service the next connection may reach the leader; this connection never would.
            response.force_close()
        else:
            try:
                response = _json(await answer(await read_body(request, _LARGEST)))
            except ProtocolError as error:
                response = error_response(str(error))
        metrics.EXTENDER_REQUESTS.labels(verb, str(response.status)).inc()
        return response

    return web.post(f"{_PREFIX}/{verb}", respond)


class _Certificates:
    """PEM files as last read; with ``client_ca`` only clients with a certificate of that CA are accepted."""

    def __init__(self, certificate: Path, key: Path, client_ca: Path | None) -> None:
        self._certificate, self._key, self._client_ca = certificate, key, client_ca
        self._stamps, self._fault = self._read_stamps(), ""
        self.context = self._read_context()

    def _read_stamps(self) -> list[tuple[int, int, int]]:
        """Return values that distinguish these files from other versions; raise OSError."""
        stats = (path.stat() for path in (self._certificate, self._key, self._client_ca) if path is not None)
        return [(stat.st_ino, stat.st_mtime_ns, stat.st_size) for stat in stats]

    def _read_context(self) -> ssl.SSLContext:
        """Read the files; raise OSError, of which SSLError is a subclass."""
        context = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH)
        context.minimum_version = ssl.TLSVersion.TLSv1_3
        context.num_tickets = 0
        # A key with a password is rejected, because OpenSSL would prompt for the password on a terminal.
        context.load_cert_chain(self._certificate, self._key, password="")
        if self._client_ca is not None:
            context.load_verify_locations(self._client_ca)
            context.verify_mode = ssl.CERT_REQUIRED
        return context

    def renew(self, connection: ssl.SSLObject, _name: str | None, _context: ssl.SSLContext) -> None:
        """Let a connection whose handshake has begun use the current files."""
        try:
            stamps = self._read_stamps()
            if stamps != self._stamps:
                self.context = self._read_context()
                self._stamps, self._fault = stamps, ""
                _log.info("certificates of the extender reloaded", certificate=str(self._certificate))
        except OSError as unusable:
            if str(unusable) != self._fault:
                self._fault = str(unusable)
                _log.warning("certificates of the extender not reloaded", reason=self._fault)
        connection.context = self.context


def server_tls(certificate: str, key: str, client_ca: str) -> ssl.SSLContext | None:
    """Return the context for the server, None for plain HTTP if no file is named; raise ConfigError."""
    if not (certificate or key or client_ca):
        return None
    if not (certificate and key):
        raise ConfigError("TLS of the extender needs a certificate and its key")
    try:
        certificates = _Certificates(Path(certificate), Path(key), Path(client_ca) if client_ca else None)
    except OSError as unusable:
        raise ConfigError(f"TLS of the extender: {unusable}") from unusable
    # Python calls this for every connection, also for one without a server name.
    certificates.context.sni_callback = certificates.renew
    return certificates.context

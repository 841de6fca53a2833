"""Send requests with short answers over persistent HTTP/1.1 connections, one request at a time on each.

    connections = Connections(URL("https://10.0.0.1:6443"), tls, None)
    answer = await connections.ask(request, timeout_s=5.0, guard=check)

Binding a pod is one such request, and aiohttp needs more CPU for it than the scheduling decision takes; see
`bench.http_floor`. The event loop provides TLS, and httptools parses the answers. A connection is closed as soon as its
next answer could belong to another request. Nothing is repeated, and redirects are not followed. Later connections
resume the TLS session of the first one, which saves the API server the signature, the largest part of the cost.
"""

import asyncio
import re
import socket
import ssl
from collections.abc import Callable
from typing import ClassVar, NamedTuple, cast
from weakref import WeakKeyDictionary

import httptools
from aiohappyeyeballs import start_connection
from yarl import URL

from mooring.kube.kubeconfig.proxy import Proxy

# A connection that was idle for so many seconds is not used again, because the server or a proxy may just close it.
_IDLE_S = 15.0
# Source: RFC 8305, Connection Attempt Delay.
_NEXT_ADDRESS_S = 0.25
# The number of connections that are opened concurrently. A TLS handshake costs as much CPU as one or two requests, and
# meanwhile other connections become free, so a short burst of requests opens few.
_PARALLEL_OPENS = 8
# The longest answer of a proxy to CONNECT, a status line and headers, in bytes.
_LONGEST_ANSWER = 1 << 16
_SUCCESS_LINE = re.compile(r"HTTP/1\.[01] 2\d\d").match


class ResumingTls(ssl.SSLObject):
    """The TLS of one connection, which resumes the newest session of its context.

    A context must be for one server. A server that does not know the session, for example after a restart, makes a full
    handshake.
    """

    _sessions: ClassVar[WeakKeyDictionary[ssl.SSLContext, ssl.SSLSession]] = WeakKeyDictionary()
    _has_begun = False

    def do_handshake(self) -> None:
        """Start or continue the handshake; raise ssl's errors, after which no session is resumed."""
        old_session = None if self._has_begun else self._sessions.get(self.context)
        self._has_begun = True
        if old_session is not None:
            self.session = old_session
        try:
            super().do_handshake()
        except (ssl.SSLWantReadError, ssl.SSLWantWriteError):
            raise
        except OSError:
            self._sessions.pop(self.context, None)
            raise

    def keep_session(self) -> None:
        """Store the session for later connections; with TLS 1.3 its ticket arrives with the first data."""
        session = self.session
        if session is not None and session.has_ticket:
            self._sessions[self.context] = session


class Answer(NamedTuple):
    """A complete answer; ``retry_after`` is the value of that header, empty without one."""

    status: int
    body: bytes
    retry_after: str


class Connections:
    """The connections to one server: at most as many as concurrent requests, which the caller limits.

    ``tls`` must be for this server only, because all connections with it resume its sessions.
    """

    def __init__(
        self, server: URL, tls: ssl.SSLContext | None, server_name: str | None, proxy: Proxy | None = None
    ) -> None:
        self._host, self._port = server.host or "", server.port or 0
        self._proxy = proxy
        self._tls = (tls or True) if server.scheme == "https" else None
        if tls is not None:
            tls.sslobject_class = ResumingTls
        # Certificates have names without the final dot of DNS.
        self._server_name = (server_name or self._host.rstrip(".")) if self._tls else None
        self._free: list[_Connection] = []
        self._open_slots = asyncio.Semaphore(_PARALLEL_OPENS)

    async def ask(
        self, request: bytes, timeout_s: float, guard: Callable[[], None], patience_s: float | None = None
    ) -> Answer:
        """Send a request, head and body, and return the answer; ``guard`` is called right before, and can raise.

        With ``patience_s`` use a new connection, because an idle one may lead to a server that no longer exists, and
        wait so many seconds for the answer. The connection must still be open within ``timeout_s``.

        Raise OSError if the connection fails and TimeoutError after ``timeout_s``; the server may have executed the
        request.
        """
        now = asyncio.get_running_loop().time()
        until = now + timeout_s
        if patience_s is not None:
            async with asyncio.timeout_at(until), self._open_slots:
                connection = await self._open()
            try:
                guard()
                return await connection.ask(request, now + patience_s)
            finally:
                connection.end()
        connection = self._take() or await self._take_or_open(until)
        try:
            guard()
            return await connection.ask(request, until)
        finally:
            if connection.is_open:
                self._free.append(connection)

    def close(self) -> None:
        """Close the idle connections."""
        while self._free:
            self._free.pop().end()

    def _take(self) -> "_Connection | None":
        """Return the most recently used connection."""
        oldest = asyncio.get_running_loop().time() - _IDLE_S
        while self._free:
            connection = self._free.pop()
            if connection.is_open and connection.used_at > oldest:
                return connection
            connection.end()
        return None

    async def _take_or_open(self, until: float) -> "_Connection":
        async with asyncio.timeout_at(until), self._open_slots:
            return self._take() or await self._open()

    async def _open(self) -> "_Connection":
        loop = asyncio.get_running_loop()
        host, port = (self._proxy.host, self._proxy.port) if self._proxy else (self._host, self._port)
        addresses = await loop.getaddrinfo(host, port, type=socket.SOCK_STREAM)
        # Try the next address early, because the first one may belong to a dead server.
        raw_socket = await start_connection(addresses, happy_eyeballs_delay=_NEXT_ADDRESS_S)
        if self._proxy is not None:
            await self._lead_through(self._proxy, raw_socket)
        _, connection = await loop.create_connection(
            _Connection, sock=raw_socket, ssl=self._tls, server_hostname=self._server_name
        )
        return connection

    async def _lead_through(self, proxy: Proxy, raw_socket: socket.socket) -> None:
        """Make a proxy connect to the server (RFC 9110, 9.3.6); raise ConnectionError if it does not.

        The server sends nothing before our handshake, so everything that arrives is the proxy's answer.
        """
        loop, server = asyncio.get_running_loop(), f"{self._host}:{self._port}"
        if ":" in self._host:
            server = f"[{self._host}]:{self._port}"
        authorization = f"Proxy-Authorization: {proxy.authorization}\r\n" if proxy.authorization else ""
        try:
            request = f"CONNECT {server} HTTP/1.1\r\nHost: {server}\r\n{authorization}\r\n"
            await loop.sock_sendall(raw_socket, request.encode("latin-1"))
            answer = b""
            while b"\r\n\r\n" not in answer and len(answer) < _LONGEST_ANSWER:
                if not (part := await loop.sock_recv(raw_socket, 4096)):
                    break
                answer += part
            status_line = answer.partition(b"\r\n")[0].decode("latin-1")
            if not _SUCCESS_LINE(status_line) or not answer.endswith(b"\r\n\r\n"):
                raise ConnectionError(
                    f"the proxy {proxy.host}:{proxy.port} does not connect to {server}: {status_line!r}"
                )
        except BaseException:
            raw_socket.close()
            raise


class _Connection(asyncio.Protocol):
    """One connection: the event loop calls it with bytes, and the parser with parts of answers."""

    def __init__(self) -> None:
        self._loop = asyncio.get_running_loop()
        self._parser = httptools.HttpResponseParser(self)
        self._transport: asyncio.WriteTransport | None = None
        # None after the first answer.
        self._tls: ResumingTls | None = None
        # The request in progress.
        self._answer: asyncio.Future[Answer] | None = None
        self._body: list[bytes] = []
        self._retry_after = ""
        self.used_at = self._loop.time()

    @property
    def is_open(self) -> bool:
        """Return whether another request can be sent."""
        return self._answer is None and self._transport is not None and not self._transport.is_closing()

    async def ask(self, request: bytes, until: float) -> Answer:
        """Send a request; ``until`` is on the event loop's clock."""
        assert self._transport is not None, "a connection is used once it is connected"
        answer: asyncio.Future[Answer] = self._loop.create_future()
        self._answer = answer
        timer = self._loop.call_at(until, self._fail, TimeoutError("no answer in time"))
        try:
            self._transport.write(request)
            return await answer
        finally:
            timer.cancel()
            if self._answer is not None:
                # The caller has given up, but the answer may still arrive.
                self.end()

    def end(self) -> None:
        if self._transport is not None:
            self._transport.abort()

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        # uvloop's transports are not instances of asyncio's classes.
        self._transport = cast(asyncio.WriteTransport, transport)
        tls = transport.get_extra_info("ssl_object")
        self._tls = tls if isinstance(tls, ResumingTls) else None

    def connection_lost(self, exc: Exception | None) -> None:
        self._fail(ConnectionError(f"the connection ended before its answer: {exc or 'closed by the server'}"))

    def data_received(self, data: bytes) -> None:
        try:
            self._parser.feed_data(data)
        except (httptools.HttpParserError, httptools.HttpParserUpgrade) as error:
            self._fail(ConnectionError(f"the answer is not HTTP/1.1: {error}"))

    def on_message_begin(self) -> None:
        if self._answer is None:
            # Unrequested data must not become the answer of the next request.
            self.end()

    def on_header(self, name: bytes, value: bytes) -> None:
        if name.lower() == b"retry-after":
            self._retry_after = value.decode("latin-1")

    def on_body(self, body: bytes) -> None:
        self._body.append(body)

    def on_message_complete(self) -> None:
        status, body, retry_after = self._parser.get_status_code(), self._body, self._retry_after
        self._body, self._retry_after = [], ""
        if status < 200:
            # An informational answer; the final one follows.
            return
        answer, self._answer = self._answer, None
        if self._tls is not None:
            self._tls.keep_session()
            self._tls = None
        if not self._parser.should_keep_alive():
            self.end()
        if answer is not None and not answer.done():
            self.used_at = self._loop.time()
            answer.set_result(Answer(status, b"".join(body), retry_after))

    def _fail(self, why: Exception) -> None:
        """End the connection, and fail the request in progress."""
        self.end()
        if self._answer is not None and not self._answer.done():
            self._answer.set_exception(why)

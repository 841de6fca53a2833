"""Requests with short answers over persistent connections: HTTP/1.1, one request at a time on each.

    connections = Connections(URL("https://10.0.0.1:6443"), tls, None)
    answer = await connections.ask(request, timeout_s=5.0, guard=check)

Binding a pod is one such request, and aiohttp takes more CPU for it than the scheduling decision: see
`bench.http_floor`. The event loop provides TLS, httptools parses the answers. A connection is closed as soon as its
next answer could belong to another request. Nothing is repeated, and no redirect is followed. Connections after the
first resume its TLS session: an API server signs nothing for them, which is most of what a connection costs it.
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

# The server, or a proxy before it, closes idle connections: one that was idle for this many seconds is not used again.
_IDLE_S = 15.0
# Source: RFC 8305, Connection Attempt Delay.
_NEXT_ADDRESS_S = 0.25
# Connections that are opened at once: a TLS handshake costs as much CPU as a request or two, and meanwhile others
# become free, so that a short burst of requests opens few.
_OPENED_AT_ONCE = 8
# What a proxy may answer to CONNECT: a status line and headers, in bytes.
_LONGEST_ANSWER = 1 << 16
_CONNECTED = re.compile(r"HTTP/1\.[01] 2\d\d").match


class ResumingTls(ssl.SSLObject):
    """The TLS of one connection, which resumes the newest session of its context.

    A context is for one server. One that does not know the session, a restarted one say, makes a full handshake.
    """

    _sessions: ClassVar[WeakKeyDictionary[ssl.SSLContext, ssl.SSLSession]] = WeakKeyDictionary()
    _has_begun = False

    def do_handshake(self) -> None:
        """Begin the handshake, or go on with it; raise ssl's errors, after which no session is resumed."""
        known = None if self._has_begun else self._sessions.get(self.context)
        self._has_begun = True
        if known is not None:
            self.session = known
        try:
            super().do_handshake()
        except (ssl.SSLWantReadError, ssl.SSLWantWriteError):
            raise
        except OSError:
            self._sessions.pop(self.context, None)
            raise

    def keep_session(self) -> None:
        """Keep the session for later connections; with TLS 1.3 its ticket comes with the first data."""
        session = self.session
        if session is not None and session.has_ticket:
            self._sessions[self.context] = session


class Answer(NamedTuple):
    """A whole answer; ``retry_after`` is the text of that header, empty without one."""

    status: int
    body: bytes
    retry_after: str


class Connections:
    """The connections to one server: never more than concurrent requests, which the caller limits.

    ``tls`` is for this server alone: all that use it resume its sessions.
    """

    def __init__(
        self, server: URL, tls: ssl.SSLContext | None, server_name: str | None, proxy: Proxy | None = None
    ) -> None:
        self._host, self._port = server.host or "", server.port or 0
        self._proxy = proxy
        self._tls = (tls or True) if server.scheme == "https" else None
        if tls is not None:
            tls.sslobject_class = ResumingTls
        # The dot that ends a name in DNS is not in certificates.
        self._server_name = (server_name or self._host.rstrip(".")) if self._tls else None
        self._free: list[_Connection] = []
        self._opening = asyncio.Semaphore(_OPENED_AT_ONCE)

    async def ask(
        self, request: bytes, timeout_s: float, guard: Callable[[], None], patience_s: float | None = None
    ) -> Answer:
        """Send a request, head and body, and return the answer; ``guard`` is called right before, and may raise.

        With ``patience_s`` the answer is awaited for so long, over a connection of its own: an idle one may lead to a
        server that is gone. It still has to be open within ``timeout_s``.

        Raise OSError if the connection fails and TimeoutError after ``timeout_s``: the request may have been carried
        out.
        """
        now = asyncio.get_running_loop().time()
        until = now + timeout_s
        if patience_s is not None:
            async with asyncio.timeout_at(until), self._opening:
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
        async with asyncio.timeout_at(until), self._opening:
            return self._take() or await self._open()

    async def _open(self) -> "_Connection":
        loop = asyncio.get_running_loop()
        host, port = (self._proxy.host, self._proxy.port) if self._proxy else (self._host, self._port)
        addresses = await loop.getaddrinfo(host, port, type=socket.SOCK_STREAM)
        # The next address is tried before the first one, perhaps of a dead server, has used up all the time.
        connected = await start_connection(addresses, happy_eyeballs_delay=_NEXT_ADDRESS_S)
        if self._proxy is not None:
            await self._lead_through(self._proxy, connected)
        _, connection = await loop.create_connection(
            _Connection, sock=connected, ssl=self._tls, server_hostname=self._server_name
        )
        return connection

    async def _lead_through(self, proxy: Proxy, connected: socket.socket) -> None:
        """Let a proxy connect to the server (RFC 9110, 9.3.6); raise ConnectionError if it does not.

        The server sends nothing before our handshake, so that all that arrives is the proxy's answer.
        """
        loop, there = asyncio.get_running_loop(), f"{self._host}:{self._port}"
        if ":" in self._host:
            there = f"[{self._host}]:{self._port}"
        authorization = f"Proxy-Authorization: {proxy.authorization}\r\n" if proxy.authorization else ""
        try:
            request = f"CONNECT {there} HTTP/1.1\r\nHost: {there}\r\n{authorization}\r\n"
            await loop.sock_sendall(connected, request.encode("latin-1"))
            answer = b""
            while b"\r\n\r\n" not in answer and len(answer) < _LONGEST_ANSWER:
                if not (part := await loop.sock_recv(connected, 4096)):
                    break
                answer += part
            first = answer.partition(b"\r\n")[0].decode("latin-1")
            if not _CONNECTED(first) or not answer.endswith(b"\r\n\r\n"):
                raise ConnectionError(f"the proxy {proxy.host}:{proxy.port} does not connect to {there}: {first!r}")
        except BaseException:
            connected.close()
            raise


class _Connection(asyncio.Protocol):
    """One connection, called by the event loop with bytes and by the parser with their parts."""

    def __init__(self) -> None:
        self._loop = asyncio.get_running_loop()
        self._parser = httptools.HttpResponseParser(self)
        self._transport: asyncio.WriteTransport | None = None
        # Until the first answer.
        self._tls: ResumingTls | None = None
        # The request in progress.
        self._waiting: asyncio.Future[Answer] | None = None
        self._body: list[bytes] = []
        self._retry_after = ""
        self.used_at = self._loop.time()

    @property
    def is_open(self) -> bool:
        """Return whether another request can be sent."""
        return self._waiting is None and self._transport is not None and not self._transport.is_closing()

    async def ask(self, request: bytes, until: float) -> Answer:
        """Send a request; ``until`` is on the event loop's clock."""
        assert self._transport is not None, "a connection is used once it is connected"
        waiting: asyncio.Future[Answer] = self._loop.create_future()
        self._waiting = waiting
        timer = self._loop.call_at(until, self._fail, TimeoutError("no answer in time"))
        try:
            self._transport.write(request)
            return await waiting
        finally:
            timer.cancel()
            if self._waiting is not None:
                # The caller has given up, and the answer may still arrive.
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
        except (httptools.HttpParserError, httptools.HttpParserUpgrade) as wrong:
            self._fail(ConnectionError(f"the answer is no HTTP/1.1: {wrong}"))

    def on_message_begin(self) -> None:
        if self._waiting is None:
            # Unrequested data: the next request must not get it as its answer.
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
            # Informational: the final answer follows.
            return
        waiting, self._waiting = self._waiting, None
        if self._tls is not None:
            self._tls.keep_session()
            self._tls = None
        if not self._parser.should_keep_alive():
            self.end()
        if waiting is not None and not waiting.done():
            self.used_at = self._loop.time()
            waiting.set_result(Answer(status, b"".join(body), retry_after))

    def _fail(self, why: Exception) -> None:
        """End the connection, and with it the request in progress."""
        self.end()
        if self._waiting is not None and not self._waiting.done():
            self._waiting.set_exception(why)

"""Accept connections of unauthenticated clients, within limits of number, time and memory.

At each limit the same rule applies: the peer (by address) with the most loses a connection. That is the connection with
the oldest completed request, and connections that wait for their client go before those whose request is being
answered. So new connections are always accepted: a kubelet's probe is answered even if another peer holds all
connections half-open, and no peer loses connections because of others.

Each phase of a connection has a deadline for the whole phase, not from byte to byte. The phases are: handshake and
headers of the first request; a request's body and its answer; and the time until the next request's headers are
complete. aiohttp limits the second and third only by the silence between two bytes, or not at all
(`RequestHandler.data_received`, 3.14).
"""

import asyncio
import socket
import ssl
import struct
from collections import Counter
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass
from functools import partial
from typing import Any, cast

import structlog

from mooring.program.config import host_and_port

MakeProtocol = Callable[[], asyncio.Protocol]
_log = structlog.get_logger()
_BACKLOG = 1024
_ACCEPT_BATCH = 64
# struct linger: on, with 0 seconds.
_RESET = struct.pack("ii", 1, 0)
# Seconds until accepting is retried, for example after the process ran out of descriptors.
_ACCEPT_AGAIN_S = 0.1
# Seconds between two log lines about connections that were closed at a limit.
_SAY_AGAIN_S = 60.0


@dataclass(frozen=True, slots=True)
class Limits:
    """Limits of a server: concurrent ``connections``, seconds for each phase, and total ``body_bytes`` of requests.

    Each connection and each request uses one of its peer's ``turns_per_s``; a peer that needs more waits.

    ``head_s`` is the time until the first request's headers are complete, ``request_s`` from then until its answer is
    ready, and ``idle_s`` from then, including the answer's transfer, until the next request's headers are complete.
    ``idle_s`` is longer than the 90 s after which Go's clients close idle connections, so that the clients close first.
    """

    connections: int = 128
    head_s: float = 10.0
    request_s: float = 20.0
    idle_s: float = 100.0
    body_bytes: int = 64 << 20
    turns_per_s: float = 100.0


class Connection:
    """One accepted connection; ``body_bytes`` counts its request's body in memory, ``busy``: it answers a request."""

    def __init__(self, raw_socket: socket.socket, peer: str) -> None:
        self.raw_socket = raw_socket
        self.peer = peer
        self.body_bytes = 0
        self.busy = False
        self.task: asyncio.Task[None] | None = None
        self.protocol: _ConnectionProtocol | None = None
        self._deadline: asyncio.TimerHandle | None = None

    def expire_in(self, seconds: float) -> None:
        """Close the connection after ``seconds``; replaces an earlier deadline."""
        self.forget_deadline()
        self._deadline = asyncio.get_running_loop().call_later(seconds, self.abort)

    def forget_deadline(self) -> None:
        if self._deadline is not None:
            self._deadline.cancel()

    def abort(self) -> None:
        """Close the connection now, without sending the remaining data."""
        if self.protocol is not None and self.protocol.transport is not None:
            # With a reset (tcp_close, for SO_LINGER 0): otherwise the kernel would keep data that the peer does not
            # read.
            with suppress(OSError):
                self.raw_socket.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, _RESET)
            self.protocol.transport.abort()
        elif self.task is not None:
            self.task.cancel()


class Connections:
    """The open connections of one server, ordered by their last completed request, the oldest first."""

    def __init__(self, limits: Limits) -> None:
        self._limits = limits
        self._open: dict[Connection, None] = {}
        self._by_protocol: dict[asyncio.BaseProtocol, Connection] = {}
        self._body_bytes = 0
        self._logged_s = float("-inf")
        # When the next turn of each peer is, if it is in the future.
        self._next_turn_s: dict[str, float] = {}

    def __len__(self) -> int:
        return len(self._open)

    def begin_request(self, protocol: asyncio.BaseProtocol) -> Connection:
        """Record that a request's headers are complete; raise ConnectionResetError if the connection is closed."""
        connection = self._by_protocol.get(protocol)
        if connection is None:
            raise ConnectionResetError("the connection is closed")
        connection.busy = True
        connection.expire_in(self._limits.request_s)
        return connection

    def end_request(self, connection: Connection) -> None:
        """Record that a request's answer is ready, so that its body no longer counts."""
        self._release(connection)
        connection.busy = False
        if connection in self._open:
            del self._open[connection]
            self._open[connection] = None
            connection.expire_in(self._limits.idle_s)

    def hold(self, connection: Connection, received_bytes: int) -> None:
        """Count a part of a request's body; raise ConnectionResetError if its connection is closed.

        If all bodies together exceed the limit, close a connection of the peer with the most bytes.
        """
        connection.body_bytes += received_bytes
        self._body_bytes += received_bytes
        if self._body_bytes > self._limits.body_bytes and connection in self._open:
            self._close_heaviest("request bodies are at their limit", lambda candidate: candidate.body_bytes)
        if connection not in self._open:
            raise ConnectionResetError("the connection is closed")

    async def accept(self, listener: socket.socket, make: MakeProtocol, tls: ssl.SSLContext | None = None) -> None:
        """Accept connections until cancelled; ``make`` creates the protocol of each."""
        loop = asyncio.get_running_loop()
        while True:
            try:
                self._admit(*await loop.sock_accept(listener), make, tls)
                # Accept all that have queued up: if the queue is full, a client retries only after 1 s.
                for _ in range(_ACCEPT_BATCH):
                    self._admit(*listener.accept(), make, tls)
                await asyncio.sleep(0)
            except BlockingIOError:
                # Let the event loop run: while sockets are ready, connections to close would never be closed.
                await asyncio.sleep(0)
            except OSError as error:
                _log.warning("connection not accepted", reason=str(error))
                await asyncio.sleep(_ACCEPT_AGAIN_S)

    def _admit(
        self, raw_socket: socket.socket, address: tuple[Any, ...], make: MakeProtocol, tls: ssl.SSLContext | None
    ) -> None:
        """Accept a connection; at the limit, close another one for it."""
        raw_socket.setblocking(False)
        if len(self._open) >= self._limits.connections:
            self._close_heaviest("connections are at their limit", lambda _: 1)
        connection = Connection(raw_socket, str(address[0]))
        self._open[connection] = None
        connection.expire_in(self._limits.head_s)
        connection.task = asyncio.get_running_loop().create_task(self._converse(connection, make, tls))
        connection.task.add_done_callback(partial(self._remove, connection))

    async def turn(self, connection: Connection) -> None:
        """Wait for the peer's next turn."""
        now_s = asyncio.get_running_loop().time()
        if len(self._next_turn_s) > self._limits.connections:
            self._next_turn_s = {peer: at_s for peer, at_s in self._next_turn_s.items() if at_s > now_s}
        turn_s = max(now_s, self._next_turn_s.get(connection.peer, now_s))
        self._next_turn_s[connection.peer] = turn_s + 1 / self._limits.turns_per_s
        if turn_s > now_s:
            await asyncio.sleep(turn_s - now_s)

    def abort_connections(self) -> None:
        for connection in list(self._open):
            connection.abort()

    async def _converse(self, connection: Connection, make: MakeProtocol, tls: ssl.SSLContext | None) -> None:
        inner = make()
        protocol = connection.protocol = _ConnectionProtocol(inner)
        self._by_protocol[inner] = connection
        # The handshake failed, or the peer left before it.
        with suppress(OSError):
            await self.turn(connection)
            await asyncio.get_running_loop().connect_accepted_socket(lambda: protocol, connection.raw_socket, ssl=tls)
            await protocol.end.wait()

    def _remove(self, connection: Connection, _: object) -> None:
        """Remove a connection; its task may not even have started."""
        connection.forget_deadline()
        self._open.pop(connection, None)
        if connection.protocol is not None:
            self._by_protocol.pop(connection.protocol.inner, None)
        connection.raw_socket.close()

    def _release(self, connection: Connection) -> None:
        self._body_bytes -= connection.body_bytes
        connection.body_bytes = 0

    def _close_heaviest(self, reason: str, weight: Callable[[Connection], int]) -> None:
        """Close a connection of the peer with the largest ``weight``, preferably one that waits for its client."""
        weights = Counter[str]()
        for connection in self._open:
            weights[connection.peer] += weight(connection)
        largest_weight = max(weights.values())
        heavy = (
            connection for connection in self._open if weights[connection.peer] == largest_weight and weight(connection)
        )
        victim = min(heavy, key=lambda connection: connection.busy)
        del self._open[victim]
        self._release(victim)
        victim.abort()
        now_s = asyncio.get_running_loop().time()
        if now_s - self._logged_s >= _SAY_AGAIN_S:
            self._logged_s = now_s
            _log.warning("connection closed", reason=reason, peer=victim.peer, open=len(self._open))


class _ConnectionProtocol(asyncio.Protocol):
    """A protocol that passes its transport and its end to the connection."""

    def __init__(self, inner: asyncio.Protocol) -> None:
        self.inner = inner
        self.transport: asyncio.Transport | None = None
        self.end = asyncio.Event()

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self.transport = cast("asyncio.Transport", transport)
        self.inner.connection_made(transport)

    def connection_lost(self, reason: Exception | None) -> None:
        self.end.set()
        self.inner.connection_lost(reason)

    def data_received(self, data: bytes) -> None:
        self.inner.data_received(data)

    def eof_received(self) -> bool | None:
        return self.inner.eof_received()

    def pause_writing(self) -> None:
        self.inner.pause_writing()

    def resume_writing(self) -> None:
        self.inner.resume_writing()


@asynccontextmanager
async def accept_connections(
    address: str,
    connections: Connections,
    make: MakeProtocol,
    tls: ssl.SSLContext | None = None,
    *,
    share_address: bool = False,
) -> AsyncIterator[None]:
    """Listen on ``address`` (``host:port``, all addresses without a host); raise OSError or ConfigError.

    With ``share_address``, several processes of one user can listen on the same address.
    """
    listeners = _listeners(address, share_address=share_address)
    accepts = [asyncio.create_task(connections.accept(listener, make, tls)) for listener in listeners]
    try:
        yield
    finally:
        for accept in accepts:
            accept.cancel()
        await asyncio.wait(accepts)
        for listener in listeners:
            listener.close()


def _listeners(address: str, *, share_address: bool) -> list[socket.socket]:
    """Return a listening socket for each address of the host, such as one for IPv4 and one for IPv6."""
    host, port = host_and_port(address)
    listeners: list[socket.socket] = []
    try:
        for family, kind, protocol, _, place in _places(host, port):
            listener = socket.socket(family, kind, protocol)
            listeners.append(listener)
            listener.setblocking(False)
            listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            if share_address:
                listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEPORT, 1)
            if family == socket.AF_INET6:
                listener.setsockopt(socket.IPPROTO_IPV6, socket.IPV6_V6ONLY, 1)
            listener.bind(place)
            listener.listen(_BACKLOG)
    except OSError:
        for listener in listeners:
            listener.close()
        raise
    return listeners


def _places(host: str | None, port: int) -> list[tuple[int, int, int, str, tuple[Any, ...]]]:
    addresses = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE)
    # Without a host name, a machine without IPv6 listens only on IPv4.
    usable = [address for address in addresses if host or address[0] == socket.AF_INET or socket.has_dualstack_ipv6()]
    return list(dict.fromkeys(cast("Any", usable)))

"""Connections in memory between simulated processes, the API server among them, with delays that a seed chooses.

What was written keeps its order on a connection, arrives late, and arrives also when its sender has died meanwhile. A
cut-off process is one whose packets wait: they come when it is reached again, as TCP repeats them.
"""

import asyncio
import contextvars
import random
import socket
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import asynccontextmanager, contextmanager
from dataclasses import dataclass, field
from typing import Any, cast

from mooring.http.connections import Connection, Connections, MakeProtocol
from tests.scheduler.simulation.clock import PROCESS, VirtualLoop

ProtocolFactory = Callable[[], asyncio.BaseProtocol]
# The client of the schedulers' Service; all others' connections lead to the API server.
CLIENT = "kube-scheduler"
# How long a packet takes, in seconds; one in `_SLOW` takes up to ten times as long.
_FASTEST_S, _USUALLY_S, _SLOW = 0.0005, 0.01, 20


@dataclass
class Network:
    """All connections; ``accept`` makes the API server's end of one, for the process that connects.

    ``listeners`` are the schedulers that serve: how each answers a connection, and as whose code.
    """

    loop: VirtualLoop
    source: random.Random
    accept: Callable[[str], asyncio.Protocol]
    ends: dict[str, list["End"]] = field(default_factory=dict)
    listeners: dict[str, tuple[ProtocolFactory, contextvars.Context]] = field(default_factory=dict)
    cut_off_until: dict[str, float] = field(default_factory=dict)
    dead: set[str] = field(default_factory=set)

    def connect(self, factory: ProtocolFactory, sock: socket.socket | None) -> tuple[asyncio.Transport, Any]:
        """Connect the process that is running; a socket that it made for that is not needed."""
        if sock is not None:
            sock.close()
        process = PROCESS.get()
        if process in self.dead:
            raise ConnectionRefusedError("a dead process connects to nothing")
        scheduler, accept, context = self._reach(process)
        client = End(self, scheduler, contextvars.copy_context())
        server = End(self, scheduler, context)
        client.peer, server.peer = server, client
        client.protocol, server.protocol = factory(), accept()
        self.ends.setdefault(scheduler, []).append(client if scheduler == process else server)
        client.protocol.connection_made(client)
        context.run(server.protocol.connection_made, server)
        return client, client.protocol

    def _reach(self, process: str) -> tuple[str, ProtocolFactory, contextvars.Context]:
        """Return which scheduler a connection leads to, and its protocol and context."""
        if process != CLIENT:
            return process, lambda: self.accept(process), contextvars.Context()
        if not self.listeners:
            raise ConnectionRefusedError("the Service has no endpoint")
        # Any of them, whether it leads or not.
        chosen = self.source.choice(sorted(self.listeners))
        accept, context = self.listeners[chosen]
        return chosen, accept, context.copy()

    @contextmanager
    def listen(self, accept: ProtocolFactory) -> Iterator[None]:
        """Make the running process reachable by the Service."""
        process = PROCESS.get()
        self.listeners[process] = accept, contextvars.copy_context()
        try:
            yield
        finally:
            self.listeners.pop(process, None)

    def arrival(self, process: str) -> float:
        """Return when a packet of now arrives."""
        delay = self.source.uniform(_FASTEST_S, _USUALLY_S)
        if self.source.randrange(_SLOW) == 0:
            delay *= self.source.uniform(1, 10)
        # Never two at one time: their order would be the timer heap's.
        return max(self.loop.time(), self.cut_off_until.get(process, 0.0)) + delay

    def cut_off(self, process: str, seconds: float) -> None:
        """Let nothing arrive from this process or at it for a time."""
        self.cut_off_until[process] = self.loop.time() + seconds

    def heal(self) -> None:
        self.cut_off_until.clear()

    def bury(self, process: str) -> None:
        """End a killed process's connections: what it wrote still arrives, nothing reaches or leaves it any more."""
        self.dead.add(process)
        self.listeners.pop(process, None)
        for end in self.ends.pop(process, ()):
            end.die()


@asynccontextmanager
async def accepting(_address: str, connections: Connections, make: MakeProtocol, _tls: object) -> AsyncIterator[None]:
    """Stand in for `mooring.http.connections.accept_connections`: a process is reached in memory, by its Service.

    No connection is closed at a limit: a simulated client has no file descriptor.
    """

    def made() -> asyncio.Protocol:
        protocol = make()
        connection = Connection(cast("socket.socket", None), CLIENT)
        connections._by_protocol[protocol] = connection
        connections._open[connection] = None
        return protocol

    with cast("VirtualLoop", asyncio.get_running_loop()).listen(made):
        yield


class End(asyncio.Transport):
    """One end of a connection."""

    peer: "End"
    protocol: Any

    def __init__(self, network: Network, process: str, context: contextvars.Context) -> None:
        super().__init__({})
        self._network = network
        self._process = process
        self._context = context
        self._closing = False
        self._dead = False
        self._paused = False
        self._held: list[bytes] = []
        self._last_arrival = 0.0

    def write(self, data: bytes | bytearray | memoryview) -> None:
        if not self._closing and not self._dead:
            self._send(self.peer.deliver, bytes(data))

    def _send(self, act: Callable[..., None], *args: object) -> None:
        self._last_arrival = max(self._network.arrival(self._process), self._last_arrival + 1e-6)
        self._network.loop.call_at(self._last_arrival, act, *args, context=self.peer._context)

    def deliver(self, data: bytes) -> None:
        if self._paused:
            self._held.append(data)
        elif not self._closing and not self._dead:
            self.protocol.data_received(data)

    def ended(self, error: Exception | None) -> None:
        """Handle the other end's close."""
        if not self._closing and not self._dead:
            self._closing = True
            if error is None:
                self.protocol.eof_received()
            # Who was stopped until now finds data and their end one after the other, not at once.
            self._network.loop.call_soon(self.protocol.connection_lost, error, context=self._context)

    def die(self) -> None:
        """Close as the kernel does for a killed process."""
        if not self._closing:
            self._send(self.peer.ended, None)
        self._dead = True

    def close(self) -> None:
        self._finish(None)

    def abort(self) -> None:
        self._finish(ConnectionResetError("connection reset by the simulation"))

    def _finish(self, error: Exception | None) -> None:
        if not self._closing:
            self._closing = True
            if not self._dead:
                self._send(self.peer.ended, error)
            self._network.loop.call_soon(self.protocol.connection_lost, None, context=self._context)

    def is_closing(self) -> bool:
        return self._closing

    def pause_reading(self) -> None:
        self._paused = True

    def resume_reading(self) -> None:
        self._paused, held, self._held = False, self._held, []
        for data in held:
            self.deliver(data)

    def get_write_buffer_size(self) -> int:
        return 0

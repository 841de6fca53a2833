"""Pass the bytes by which perftest's two sides agree (queue pairs, keys, GIDs) from one pod to the other.

A client connects to 127.0.0.1 in its own pod, where a relay listens. So the sides need no address of each other: there
is none on InfiniBand without IPoIB, and the other pod may be on another host.
"""

import socket
import threading
from collections.abc import Callable
from contextlib import suppress
from typing import Protocol

from cni.kernel import netns

LOOPBACK = "127.0.0.1"
_PIECE_BYTES = 1 << 14


class Connection(Protocol):
    """A stream of bytes; ``recv`` returns none at its end."""

    def recv(self, most: int, /) -> bytes: ...

    def sendall(self, piece: bytes, /) -> None: ...

    def close(self) -> None: ...


class Relay:
    """Listens in a network namespace and passes one connection on; both end when it is closed."""

    def __init__(self, path: str, port: int, connect: Callable[[], Connection]) -> None:
        self._listener = netns.run_in(path, lambda: socket.create_server((LOOPBACK, port)))
        self._connect = connect
        self._connections: list[Connection] = []
        self._thread = threading.Thread(target=self._serve, name=f"relay {path}")
        self._thread.start()

    def __enter__(self) -> "Relay":
        return self

    def __exit__(self, *_: object) -> None:
        with suppress(OSError):
            # Wakes the thread that accepts.
            self._listener.shutdown(socket.SHUT_RDWR)
        self._listener.close()
        for connection in list(self._connections):
            _end(connection)
        self._thread.join()

    def _serve(self) -> None:
        with suppress(OSError):
            inner, _ = self._listener.accept()
            self._connections.append(inner)
            try:
                outer = self._connect()
            except OSError:
                _end(inner)
                return
            self._connections.append(outer)
            back = threading.Thread(target=pump, args=(outer, inner))
            back.start()
            pump(inner, outer)
            back.join()


def pump(source: Connection, sink: Connection) -> None:
    """Pass bytes on until either connection ends; then end both."""
    with suppress(OSError):
        while piece := source.recv(_PIECE_BYTES):
            sink.sendall(piece)
    _end(source)
    _end(sink)


def connect_in(path: str, port: int) -> socket.socket:
    """Connect to a program that listens on 127.0.0.1 in a network namespace."""
    return netns.run_in(path, lambda: socket.create_connection((LOOPBACK, port)))


def _end(connection: Connection) -> None:
    """Close a connection; a thread that reads it wakes up."""
    if isinstance(connection, socket.socket):
        with suppress(OSError):
            connection.shutdown(socket.SHUT_RDWR)
    connection.close()

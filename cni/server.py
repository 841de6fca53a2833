"""The warm server: answers the forwarder's calls, each in a thread, on a socket that only root can reach.

One call of a container at a time: the runtime kills an ADD that takes too long and sends DEL at once, and that DEL must
find what the ADD did. An ADD whose caller is gone by the end is undone.
"""

import fcntl
import os
import socket
import socketserver
import threading
import time
from collections import defaultdict
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path

import structlog

from cni.calls import Answer, answer
from cni.forwarder import parse_request
from mooring.vfport import VfPort

_log = structlog.get_logger()
# What is told of each call: its command, its error code (0: success), and how many seconds it took.
Observe = Callable[[str, int, float], None]


class AlreadyServedError(RuntimeError):
    """Another server has this socket: it is not taken over."""


class Server(socketserver.ThreadingUnixStreamServer):
    """Serve calls at ``path`` until `shutdown`; ``port`` makes the port to the PFs' settings."""

    observe: Observe | None = None
    daemon_threads = False
    request_queue_size = 128

    def __init__(self, path: Path, port: Callable[[], VfPort], defaults: Mapping[str, str]) -> None:
        self._port = port
        self._defaults = defaults
        self._busy: dict[str, threading.Lock] = defaultdict(threading.Lock)
        super().__init__(str(path), _Conversation)
        path.chmod(0o600)

    def answer(self, environment: Mapping[str, str], stdin: bytes) -> Answer:
        with self._busy[environment.get("CNI_CONTAINERID", "")]:
            return answer(environment, stdin, self._port, self._defaults)

    def undo(self, environment: Mapping[str, str], stdin: bytes) -> None:
        """Take back an ADD that nobody waited for."""
        _log.warning("caller is gone, its ADD is undone", container=environment.get("CNI_CONTAINERID"))
        self.answer({**environment, "CNI_COMMAND": "DEL"}, stdin)


class _Conversation(socketserver.StreamRequestHandler):
    server: Server

    def handle(self) -> None:
        environment, stdin = parse_request(self.rfile.read())
        started = time.monotonic()
        done = self.server.answer(environment, stdin)
        if self.server.observe is not None:
            self.server.observe(environment.get("CNI_COMMAND", ""), done.code, time.monotonic() - started)
        try:
            self.connection.sendall(f"{done.status}{done.text}".encode())
        except OSError:
            if environment.get("CNI_COMMAND") == "ADD" and done.status == 0:
                self.server.undo(environment, stdin)


@contextmanager
def serving(path: Path, port: Callable[[], VfPort], defaults: Mapping[str, str]) -> Iterator[Server]:
    """Open the server's socket; raise AlreadyServedError if another server has it."""
    path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
    lock = os.open(path.with_suffix(".lock"), os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
    try:
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            raise AlreadyServedError(f"socket {str(path)!r} is served by another mooring-cni") from None
        path.unlink(missing_ok=True)
        previous = os.umask(0o177)
        try:
            server = Server(path, port, defaults)
        finally:
            os.umask(previous)
        with server:
            yield server
        path.unlink(missing_ok=True)
    finally:
        os.close(lock)


def is_served(path: Path) -> bool:
    """Say whether a server answers at ``path``."""
    with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as probe:
        return probe.connect_ex(str(path)) == 0

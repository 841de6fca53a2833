"""The CNI server: answers the forwarder's calls, each in its own thread, on a socket that only root can open.

Calls of one container run one at a time. The runtime kills an ADD that takes too long and sends DEL immediately, and
that DEL must see what the ADD did. If the caller of an ADD disconnects, the ADD does not start, ends early, or is
undone before the container's next call.
"""

import fcntl
import os
import socket
import socketserver
import sys
import threading
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, nullcontext
from pathlib import Path

import structlog

from cni.forwarder import parse_request
from cni.kernel.inotify import has_hung_up
from cni.server.dispatch import Answer, answer
from mooring.nic.vf_settings import VfSettingsApi

_log = structlog.get_logger()
# Most calls have a few kilobytes. At most _MOST_LARGE larger ones are in memory at a time, and the others wait in their
# sockets: the annotations of a tenant's pods may have 1.5 MB each.
_USUAL_BYTES, _MOST_LARGE = 1 << 16, 4
# Called for each call with its command, its error code (0: success), and its duration in seconds.
Observe = Callable[[str, int, float], None]


class AlreadyServedError(RuntimeError):
    """Another server serves this socket."""


class ContainerLocks:
    """Locks that let calls of one container run one at a time; a container without calls needs no memory."""

    def __init__(self) -> None:
        self._guard = threading.Lock()
        self._calls: dict[str, list[threading.Lock]] = {}

    @contextmanager
    def of(self, container: str) -> Iterator[None]:
        """Hold a container's lock while the block runs; calls without one (STATUS, GC, VERSION) do not wait."""
        with self._guard:
            calls = self._calls.setdefault(container, []) if container else []
            turn = calls[0] if calls else threading.Lock()
            calls.append(turn)
        try:
            with turn:
                yield
        finally:
            with self._guard:
                calls.pop()
                if not calls and container:
                    del self._calls[container]

    def __len__(self) -> int:
        return len(self._calls)


class Server(socketserver.ThreadingUnixStreamServer):
    """Serves calls at the socket ``path`` until `shutdown`; ``vf_settings`` creates the access to the PFs' settings."""

    observe: Observe | None = None
    daemon_threads = False
    request_queue_size = 128

    def __init__(
        self,
        path: Path,
        vf_settings: Callable[[], VfSettingsApi],
        defaults: Mapping[str, object],
        *,
        ipam_files: tuple[str, ...] | None = (),
        enforces_offer: bool = True,
    ) -> None:
        self._vf_settings = vf_settings
        self._defaults = defaults
        self._ipam_files = ipam_files
        self._enforces_offer = enforces_offer
        self.turns = ContainerLocks()
        self.large_calls = threading.BoundedSemaphore(_MOST_LARGE)
        super().__init__(str(path), _RequestHandler)
        path.chmod(0o600)

    def answer_call(self, caller: socket.socket, environment: Mapping[str, str], stdin: bytes) -> None:
        """Answer one call; an ADD whose caller disconnected does not start, or is undone before the next call."""
        container = environment.get("CNI_CONTAINERID", "")
        is_add = environment.get("CNI_COMMAND") == "ADD"
        with self.turns.of(container):
            if is_add and has_hung_up(caller.fileno()):
                _log.warning("caller disconnected before its ADD started", container=container)
                return
            reply = self._answer(environment, stdin, caller.fileno())
            if not _send(caller, reply) and is_add and reply.status == 0:
                _log.warning("caller disconnected, its ADD is undone", container=container)
                self._answer({**environment, "CNI_COMMAND": "DEL"}, stdin, caller=None)

    def _answer(self, environment: Mapping[str, str], stdin: bytes, caller: int | None) -> Answer:
        start_s = time.monotonic()
        reply = answer(
            environment,
            stdin,
            self._vf_settings,
            self._defaults,
            caller,
            enforces_places=True,
            ipam_files=self._ipam_files,
            enforces_offer=self._enforces_offer,
        )
        if self.observe is not None:
            self.observe(environment.get("CNI_COMMAND", ""), reply.code, time.monotonic() - start_s)
        return reply

    def handle_error(self, request: object, client_address: object) -> None:
        """Log the error that ended a connection, usually because the caller was killed during its call."""
        _log.warning("connection ended early", reason=str(sys.exception()))


class _RequestHandler(socketserver.StreamRequestHandler):
    server: Server

    def handle(self) -> None:
        request = self.rfile.read(_USUAL_BYTES)
        with self.server.large_calls if len(request) == _USUAL_BYTES else nullcontext():
            environment, stdin = parse_request(request + self.rfile.read())
            del request
            self.server.answer_call(self.connection, environment, stdin)


def _send(caller: socket.socket, reply: Answer) -> bool:
    """Send an answer; return False if the peer no longer reads."""
    if has_hung_up(caller.fileno()):
        return False
    try:
        caller.sendall(f"{reply.status}{reply.text}".encode())
    except OSError:
        return False
    return True


@contextmanager
def serve_socket(
    path: Path,
    vf_settings: Callable[[], VfSettingsApi],
    defaults: Mapping[str, object],
    *,
    ipam_files: tuple[str, ...] | None = (),
    enforces_offer: bool = True,
) -> Iterator[Server]:
    """Serve at ``path`` while the block runs; raise AlreadyServedError if another server does."""
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
            server = Server(path, vf_settings, defaults, ipam_files=ipam_files, enforces_offer=enforces_offer)
        finally:
            os.umask(previous)
        with server:
            yield server
        path.unlink(missing_ok=True)
    finally:
        os.close(lock)

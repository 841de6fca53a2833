"""Own the shim's socket: one server for each path, for root only, and always a socket at the path.

A lock decides which server owns the path. It ends with its process, and `cri_shim.handover` passes it on. A server
listens on its own socket, ``<path>.<pid>``, and puts a hard link to it at the path. The reason is grpc: it cannot adopt
a descriptor, replaces any file at a unix path (even a running server's socket), and unlinks the name that it bound when
it ends. With its own name, a server can also be reached, and restore its socket at the path, if the path is gone or is
the link of mooring-shim-bypass to the runtime's socket.
"""

import fcntl
import os
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import BinaryIO

import grpc

SCHEME = "unix://"
_OWNER_MODE = 0o600


class ListenError(RuntimeError):
    """A socket that cannot be served; the text has the socket and the reason."""


def socket_path(address: str) -> Path:
    """Return the path of ``unix:///run/…``; raise ListenError for any other kind of address."""
    path = Path(address.removeprefix(SCHEME))
    if not address.startswith(SCHEME) or not path.is_absolute():
        raise ListenError(f"address {address!r} is not a unix socket such as 'unix:///run/mooring/cri.sock'")
    return path


def lock(path: Path) -> BinaryIO:
    """Lock ``<path>.lock`` until the returned file is closed; raise ListenError if another process holds it."""
    path.parent.mkdir(mode=0o755, parents=True, exist_ok=True)
    descriptor = os.open(f"{path}.lock", os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, _OWNER_MODE)
    lock_file = os.fdopen(descriptor, "rb")
    try:
        fcntl.flock(lock_file, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        lock_file.close()
        raise ListenError(f"socket {str(path)!r} is served by another process, which holds its lock") from None
    return lock_file


class OwnSocket:
    """A server's socket: at its own name beside ``path``, and at ``path`` once the server owns that."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self.name = path.with_name(f"{path.name}.{os.getpid()}")
        self._identity: tuple[int, int] | None = None

    def bind(self, server: grpc.aio.Server) -> None:
        """Let ``server`` listen at the socket's own name, with mode 0600 from the start; raise ListenError."""
        self.name.unlink(missing_ok=True)
        with restrict_to_root():
            try:
                server.add_insecure_port(f"{SCHEME}{self.name}")
            except RuntimeError as error:
                raise ListenError(f"socket {str(self.name)!r} cannot be bound: {error}") from error
        self._identity = _identity(self.name)

    @property
    def is_at_path(self) -> bool:
        return self._identity is not None and _identity(self.path) == self._identity

    @property
    def is_bypassed(self) -> bool:
        """Return whether the path is a link that bypasses the shim."""
        return self.path.is_symlink()

    def place(self) -> None:
        """Put the socket at the path, and remove sockets that killed servers left; the caller holds the lock."""
        temporary = self.path.with_name(f".{self.name.name}")
        temporary.unlink(missing_ok=True)
        temporary.hardlink_to(self.name)
        temporary.replace(self.path)
        # A rename to the same file does nothing and keeps the temporary name (rename(2)).
        temporary.unlink(missing_ok=True)
        for leftover in self.path.parent.glob(f"{self.path.name}.*"):
            if leftover.suffix[1:].isdigit() and leftover != self.name:
                leftover.unlink(missing_ok=True)

    def remove(self) -> None:
        """Remove the socket's two names; files of other processes at the path stay."""
        for name in (self.name, self.path):
            if self._identity is not None and _identity(name) == self._identity:
                name.unlink(missing_ok=True)


@contextmanager
def restrict_to_root() -> Iterator[None]:
    """Create files for their owner only while the block runs."""
    mask = os.umask(0o777 & ~_OWNER_MODE)
    try:
        yield
    finally:
        os.umask(mask)


def _identity(path: Path) -> tuple[int, int] | None:
    with suppress(FileNotFoundError):
        status = path.stat()
        return status.st_dev, status.st_ino
    return None

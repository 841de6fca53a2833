"""Own the shim's socket: one server for each path, root only, and no stale socket in the way.

grpc replaces any file at a unix path, even a running server's socket; so a lock decides who may bind, and ends with its
holder.
"""

import fcntl
import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import grpc

SCHEME = "unix://"
_ROOT_ONLY = 0o600


class ListenError(RuntimeError):
    """A socket that cannot be served: which, and why."""


def socket_path(address: str) -> Path:
    """Return the path of ``unix:///run/…``; raise ListenError for any other kind of address."""
    path = Path(address.removeprefix(SCHEME))
    if not address.startswith(SCHEME) or not path.is_absolute():
        raise ListenError(f"address {address!r} is not a unix socket such as 'unix:///run/mooring/cri.sock'")
    return path


@contextmanager
def owned(path: Path) -> Iterator[None]:
    """Hold ``<path>.lock`` while the block runs; raise ListenError if another server holds it."""
    path.parent.mkdir(mode=0o755, parents=True, exist_ok=True)
    lock = os.open(f"{path}.lock", os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, _ROOT_ONLY)
    try:
        _lock(lock, path)
        yield
    finally:
        os.close(lock)


def _lock(descriptor: int, path: Path) -> None:
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        raise ListenError(f"socket {str(path)!r} is served by another process, which holds its lock") from None


def bind(server: grpc.aio.Server, path: Path) -> None:
    """Let ``server`` listen at ``path`` with mode 0600 from its first moment; the caller owns the path."""
    path.unlink(missing_ok=True)
    mask = os.umask(0o777 & ~_ROOT_ONLY)
    try:
        server.add_insecure_port(f"{SCHEME}{path}")
    except RuntimeError as unbound:
        raise ListenError(f"socket {str(path)!r} cannot be bound: {unbound}") from unbound
    finally:
        os.umask(mask)

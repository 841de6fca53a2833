"""Find and close the kubelet's connections to the runtime's socket, which bypass the shim.

A link at the path affects only new connections. The kubelet keeps a connection that it made through the link as long as
the runtime does, and only the two ends of a unix socket can close it (sock_diag's SOCK_DESTROY supports only TCP and
UDP). pidfd_getfd(2) gives this process a descriptor of the kubelet's own socket, and shutdown(2) on it ends the
connection for both. grpc then reconnects at once, by the path.
"""

import ctypes
import errno
import os
import socket
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

# The syscall number on all architectures (Linux 5.6; pidfd_getfd(2)).
_PIDFD_GETFD = 438
_KUBELET, _KUBELET_GROUP = "kubelet", "/kubelet.service"
_libc = ctypes.CDLL(None, use_errno=True)


@dataclass(frozen=True, slots=True)
class Connection:
    """A socket of a process, identified by its inode."""

    pid: int
    inode: str


def close_connections(runtime: Path, proc: Path = Path("/proc")) -> frozenset[Connection]:
    """Close the kubelet's connections to the socket ``runtime``, and return them.

    Raise OSError for a process whose sockets cannot be read, after closing those of the others: any process may have
    the kubelet's name.
    """
    connections: set[Connection] = set()
    errors: list[OSError] = []
    for pid in _kubelets(proc):
        try:
            connections.update(_close_matching(pid, runtime, proc))
        except (ProcessLookupError, FileNotFoundError):
            continue
        except OSError as error:
            errors.append(error)
    if errors:
        raise errors[0]
    return frozenset(connections)


def open_among(connections: frozenset[Connection], proc: Path = Path("/proc")) -> frozenset[Connection]:
    """Return the connections that are still open."""
    open_connections = {
        Connection(pid, inode)
        for pid in {connection.pid for connection in connections}
        for _, inode in _sockets(pid, proc)
    }
    return connections & open_connections


def _kubelets(proc: Path) -> Iterator[int]:
    """Yield the ids of processes in the kubelet's unit or with its name."""
    for folder in proc.iterdir():
        if folder.name.isdigit():
            with suppress(OSError):
                group = (folder / "cgroup").read_text().rstrip()
                if group.endswith(_KUBELET_GROUP) or (folder / "comm").read_text().strip() == _KUBELET:
                    yield int(folder.name)


def _sockets(pid: int, proc: Path) -> Iterator[tuple[int, str]]:
    """Yield descriptor number and inode of each socket of a process; nothing if the process has ended."""
    with suppress(ProcessLookupError, FileNotFoundError):
        for link in (proc / str(pid) / "fd").iterdir():
            with suppress(FileNotFoundError):
                target = str(link.readlink())
                if target.startswith("socket:"):
                    yield int(link.name), target


def _close_matching(pid: int, runtime: Path, proc: Path) -> Iterator[Connection]:
    process = os.pidfd_open(pid)
    try:
        for number, inode in _sockets(pid, proc):
            with suppress(ProcessLookupError), _copy_socket(process, number) as connection:
                if _peer(connection) == runtime.resolve():
                    connection.shutdown(socket.SHUT_RDWR)
                    yield Connection(pid, inode)
    finally:
        os.close(process)


def _copy_socket(process: int, number: int) -> socket.socket:
    """Return a copy of the socket that another process has as descriptor ``number``; raise OSError."""
    descriptor: int = _libc.syscall(_PIDFD_GETFD, process, number, 0)
    if descriptor < 0:
        code = ctypes.get_errno()
        if code == errno.EBADF:
            raise ProcessLookupError(code, "closed in the meantime")
        raise OSError(code, f"pidfd_getfd: {os.strerror(code)}")
    return socket.socket(fileno=descriptor)


def _peer(connection: socket.socket) -> Path | None:
    """Return the resolved path of the unix socket at the other end of a connection; None for other sockets."""
    if connection.family != socket.AF_UNIX:
        return None
    with suppress(OSError):
        name = connection.getpeername()
        return Path(name).resolve() if isinstance(name, str) and name else None
    return None

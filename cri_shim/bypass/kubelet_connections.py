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
    there: set[Connection] = set()
    refusals: list[OSError] = []
    for pid in _kubelets(proc):
        try:
            there.update(_closed(pid, runtime, proc))
        except (ProcessLookupError, FileNotFoundError):
            continue
        except OSError as refused:
            refusals.append(refused)
    if refusals:
        raise refusals[0]
    return frozenset(there)


def open_among(connections: frozenset[Connection], proc: Path = Path("/proc")) -> frozenset[Connection]:
    """Return the connections that are still open."""
    found = {Connection(pid, inode) for pid in {each.pid for each in connections} for _, inode in _sockets(pid, proc)}
    return connections & found


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


def _closed(pid: int, runtime: Path, proc: Path) -> Iterator[Connection]:
    process = os.pidfd_open(pid)
    try:
        for number, inode in _sockets(pid, proc):
            with suppress(ProcessLookupError), _copied(process, number) as connection:
                if _peer(connection) == runtime.resolve():
                    connection.shutdown(socket.SHUT_RDWR)
                    yield Connection(pid, inode)
    finally:
        os.close(process)


def _copied(process: int, number: int) -> socket.socket:
    """Return a copy of the socket that another process has as descriptor ``number``; raise OSError."""
    descriptor: int = _libc.syscall(_PIDFD_GETFD, process, number, 0)
    if descriptor < 0:
        refused = ctypes.get_errno()
        if refused == errno.EBADF:
            raise ProcessLookupError(refused, "closed in the meantime")
        raise OSError(refused, f"pidfd_getfd: {os.strerror(refused)}")
    return socket.socket(fileno=descriptor)


def _peer(connection: socket.socket) -> Path | None:
    """Return the resolved path of the unix socket at the other end of a connection; None for other sockets."""
    if connection.family != socket.AF_UNIX:
        return None
    with suppress(OSError):
        name = connection.getpeername()
        return Path(name).resolve() if isinstance(name, str) and name else None
    return None

"""Hand a socket over to a new process: the side of the old process."""

import asyncio
import os
import socket
import struct
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any, BinaryIO

import structlog

from cri_shim.handover.messages import LIMIT_S, MOST_BYTES, PROTOCOL, dump, meeting_place, read
from cri_shim.listen import restrict_to_root
from cri_shim.notify import Systemd

_PROC = Path("/proc")
# struct ucred: pid, uid, gid (unix(7)).
_CREDENTIALS = struct.Struct("3i")
_AGAIN_S = 60.0
_log = structlog.get_logger()


@contextmanager
def listen_for_successor(path: Path) -> Iterator[socket.socket]:
    """Listen for processes that want to take over ``path``, which this process owns; raise OSError.

    An existing socket belongs to a process that ended, or to the one that handed over to this process.
    """
    place = meeting_place(path)
    place.unlink(missing_ok=True)
    with socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET | socket.SOCK_CLOEXEC) as listener:
        with restrict_to_root():
            listener.bind(str(place))
        listener.listen()
        listener.setblocking(False)
        yield listener


async def give(listener: socket.socket, lock: BinaryIO, systemd: Systemd, let_go: Callable[[int], None]) -> None:
    """Wait for a process that takes over; return when it owns the socket and this process's ``lock`` is closed.

    ``let_go`` gets the pid of that process. It notifies systemd, and stops the work that only one process may do. A
    process that fails before that, or does not belong to this service, changes nothing.
    """
    while True:
        try:
            if await _meet(listener, lock, systemd, let_go):
                return
        except OSError as reason:
            # For example, there is no free file descriptor.
            _log.warning("no process can take over", reason=str(reason))
            await asyncio.sleep(_AGAIN_S)


async def _meet(listener: socket.socket, lock: BinaryIO, systemd: Systemd, let_go: Callable[[int], None]) -> bool:
    """Hand over to the next process that asks; return whether it owns the socket now."""
    taker, _ = await asyncio.get_running_loop().sock_accept(listener)
    with taker:
        pid, uid, _ = _CREDENTIALS.unpack(taker.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, _CREDENTIALS.size))
        try:
            async with asyncio.timeout(LIMIT_S):
                await _agree(taker, pid, uid, lock, systemd)
            let_go(pid)
        except (OSError, ValueError) as reason:
            _log.warning("handover failed", to=pid, reason=str(reason) or type(reason).__name__)
            return False
        lock.close()
        # If it has ended in between, systemd restarts the unit, because it is the main process.
        with suppress(OSError):
            taker.send(dump({"yours": True}))
        return True


async def _agree(taker: socket.socket, pid: int, uid: int, lock: BinaryIO, systemd: Systemd) -> None:
    """Wait until the new process serves; raise OSError or ValueError with the reason if it does not."""
    loop = asyncio.get_running_loop()
    if refusal := _refusal(read(await loop.sock_recv(taker, MOST_BYTES)), pid, uid):
        taker.send(dump({"refused": refusal}))
        raise PermissionError(refusal)
    greeting = {"pid": os.getpid(), "notify": systemd.socket, "watchdog_s": systemd.watchdog_s}
    socket.send_fds(taker, [dump(greeting)], [lock.fileno()])
    read(await loop.sock_recv(taker, MOST_BYTES))


def _refusal(hello: Mapping[str, Any], pid: int, uid: int) -> str:
    if (protocol := hello.get("handover")) != PROTOCOL:
        return f"the running shim supports handover protocol {PROTOCOL}, not {protocol!r}: restart it"
    if uid != os.geteuid():
        return f"process {pid} belongs to another user"
    # systemd stops a unit by its control group; a process of another group would keep running.
    if _control_group(pid) != _control_group(os.getpid()):
        return f"process {pid} is in another control group: use systemctl reload"
    return ""


def _control_group(pid: int) -> str:
    return (_PROC / str(pid) / "cgroup").read_text()

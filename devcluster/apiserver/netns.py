"""Listen inside other network namespaces from one process."""

import ctypes
import os
import socket
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

_CLONE_NEWNET = 0x4000_0000  # linux/sched.h
_NAMED = Path("/run/netns")  # where `ip netns` keeps its names


def listen_in(netns: str, host: str, port: int) -> socket.socket:
    """Return a listening socket inside a namespace, given by name or path; raise OSError.

    A thread enters the namespace, makes the socket and ends: the process itself stays where it is. Loopback in there
    must be up already.
    """
    path = Path(netns) if "/" in netns else _NAMED / netns
    with ThreadPoolExecutor(max_workers=1) as one_shot:
        return one_shot.submit(_listen, path, host, port).result()


def _listen(path: Path, host: str, port: int) -> socket.socket:
    libc = ctypes.CDLL(None, use_errno=True)
    with path.open("rb") as namespace:
        if libc.setns(namespace.fileno(), _CLONE_NEWNET) != 0:
            code = ctypes.get_errno()
            raise OSError(code, os.strerror(code), str(path))
    return socket.create_server((host, port), backlog=1024)

"""Listen and connect inside other network namespaces from one process."""

import ctypes
import os
import socket
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

_CLONE_NEWNET = 0x4000_0000  # linux/sched.h
_CONNECT_S = 5.0
_NAMED = Path("/run/netns")  # Where `ip netns` keeps its names.


def listen_in(netns: str, host: str, port: int) -> socket.socket:
    """Return a listening socket inside a namespace, given by name or path; raise OSError.

    Loopback in there must be up already.
    """
    return _made_in(netns, lambda: socket.create_server((host, port), backlog=1024))


def connect_in(namespaces: Sequence[str], host: str, port: int) -> socket.socket:
    """Return a socket that is connected to an address in whichever of the namespaces has it; raise OSError.

    Without namespaces the address is this process' own.
    """
    if not namespaces:
        return socket.create_connection((host, port), timeout=_CONNECT_S)
    failure = OSError(f"no network has {host}")
    for netns in namespaces:
        try:
            return _made_in(netns, lambda: socket.create_connection((host, port), timeout=_CONNECT_S))
        except OSError as elsewhere:
            failure = elsewhere
    raise failure


def _made_in(netns: str, make: Callable[[], socket.socket]) -> socket.socket:
    """Make a socket in a thread that enters the namespace and ends: the process itself stays where it is."""
    path = Path(netns) if "/" in netns else _NAMED / netns
    with ThreadPoolExecutor(max_workers=1) as one_shot:
        return one_shot.submit(_enter_and_make, path, make).result()


def _enter_and_make(path: Path, make: Callable[[], socket.socket]) -> socket.socket:
    libc = ctypes.CDLL(None, use_errno=True)
    with path.open("rb") as namespace:
        if libc.setns(namespace.fileno(), _CLONE_NEWNET) != 0:
            code = ctypes.get_errno()
            raise OSError(code, os.strerror(code), str(path))
    return make()

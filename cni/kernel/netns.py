"""Run work inside another network namespace, and identify namespaces.

Work runs in one-shot threads, so that nothing keeps the namespace alive afterwards: a thread that enters a namespace
ends in it, and closes its descriptors and sockets before. A namespace is identified by its cookie (SO_NETNS_COOKIE,
Linux 5.14), because paths and inode numbers are reused immediately.
"""

import ctypes
import os
import socket
import struct
import threading
from collections.abc import Callable
from contextlib import suppress
from typing import TypeVar

T = TypeVar("T")
_CLONE_NEWNET = 0x40000000
_SO_NETNS_COOKIE = 71
_libc = ctypes.CDLL(None, use_errno=True)


class NetnsGoneError(OSError):
    """The network namespace that a path named no longer exists."""


def run_in(path: str, work: Callable[[], T]) -> T:
    """Run ``work`` in the namespace at ``path`` and return its result; raise NetnsGoneError or the error of ``work``.

    It runs in a one-shot thread, and the caller waits for it.
    """
    outcome: list[T] = []
    failure: list[BaseException] = []

    def visit() -> None:
        try:
            enter(path)
            outcome.append(work())
        except BaseException as error:  # noqa: BLE001 - carried over to the caller's thread and raised there
            failure.append(error)

    thread = threading.Thread(target=visit, name=f"netns {path}")
    thread.start()
    thread.join()
    if failure:
        raise failure[0]
    return outcome[0]


def start_in(path: str, work: Callable[[], None]) -> None:
    """Start ``work`` in the namespace at ``path`` without waiting for it; do nothing if the namespace is gone.

    The thread keeps the namespace alive until it ends, so ``work`` must be short.
    """

    def visit() -> None:
        with suppress(NetnsGoneError):
            enter(path)
            work()

    threading.Thread(target=visit, name=f"netns {path}").start()


def cookie_of(path: str) -> int:
    """Return the cookie of the namespace at ``path``; raise NetnsGoneError."""
    return run_in(path, own_cookie)


def is_same(path: str, cookie: int) -> bool:
    """Return whether the namespace at ``path`` is still the one with that cookie."""
    try:
        return cookie_of(path) == cookie
    except NetnsGoneError:
        return False


def enter(path: str) -> None:
    """Put the calling thread into the namespace at ``path`` for the rest of its life; raise NetnsGoneError."""
    try:
        # The path may be anything; opening a pipe would block without O_NONBLOCK.
        descriptor = os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC)
    except OSError as error:
        raise NetnsGoneError(error.errno, f"network namespace {path!r}: {error.strerror}") from error
    try:
        if _libc.setns(descriptor, _CLONE_NEWNET) != 0:
            number = ctypes.get_errno()
            raise NetnsGoneError(number, f"network namespace {path!r}: {os.strerror(number)}")
    finally:
        os.close(descriptor)


def own_cookie() -> int:
    """Return the cookie of the calling thread's namespace."""
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM | socket.SOCK_CLOEXEC) as probe:
        (cookie,) = struct.unpack("=Q", probe.getsockopt(socket.SOL_SOCKET, _SO_NETNS_COOKIE, 8))
        return int(cookie)

"""Notice files removed from a folder or put into it: inotify by libc, which the standard library does not offer.

Source: inotify(7), include/uapi/linux/inotify.h. An event only shows that the caller should check again.
"""

import ctypes
import os
import select
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

# IN_MOVED_TO, IN_DELETE: records are put in place by rename, and removed.
_MASK = 0x80 | 0x200
_libc = ctypes.CDLL(None, use_errno=True)


class Watch:
    """Folders under watch; the descriptor is the caller's to close, by `watching`."""

    def __init__(self, descriptor: int) -> None:
        self._descriptor = descriptor

    def add(self, folder: Path) -> None:
        """Watch a folder, once; one that does not exist gives no events."""
        _libc.inotify_add_watch(self._descriptor, os.fsencode(folder), _MASK)

    def wait(self, limit_s: float, caller: int | None = None) -> bool:
        """Return as soon as a watched folder changes, or after ``limit_s`` seconds.

        Return False, immediately, when the peer of the socket ``caller`` has closed it.
        """
        poll = select.poll()
        poll.register(self._descriptor, select.POLLIN)
        if caller is not None:
            poll.register(caller, 0)
        ready = dict(poll.poll(max(limit_s, 0) * 1000))
        if self._descriptor in ready:
            os.read(self._descriptor, 65536)
        return caller not in ready


def hung_up(caller: int) -> bool:
    """Return whether the peer of a socket has closed it; that it sends no more data does not suffice."""
    poll = select.poll()
    poll.register(caller, 0)
    return bool(poll.poll(0))


@contextmanager
def watching(*folders: Path) -> Iterator[Watch]:
    """Watch folders from now on; raise OSError if the kernel has no watches left."""
    descriptor = _libc.inotify_init1(os.O_CLOEXEC | os.O_NONBLOCK)
    if descriptor < 0:
        number = ctypes.get_errno()
        raise OSError(number, f"inotify: {os.strerror(number)}")
    try:
        watch = Watch(descriptor)
        for folder in folders:
            watch.add(folder)
        yield watch
    finally:
        os.close(descriptor)

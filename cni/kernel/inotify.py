"""Wait until a file is added to a folder or removed from it, with inotify, which the standard library lacks.

Source: inotify(7), include/uapi/linux/inotify.h. An event only means that the caller should check again.
"""

import ctypes
import os
import select
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

# IN_MOVED_TO and IN_DELETE: records are created by rename, and deleted.
_MASK = 0x80 | 0x200
_libc = ctypes.CDLL(None, use_errno=True)


class Watch:
    """The watched folders; `watch_folders` closes the descriptor."""

    def __init__(self, descriptor: int) -> None:
        self._descriptor = descriptor

    def add(self, folder: Path) -> None:
        """Watch a folder; one that does not exist causes no events."""
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


def has_hung_up(caller: int) -> bool:
    """Return whether the peer has closed its socket completely, not only for sending."""
    poll = select.poll()
    poll.register(caller, 0)
    return bool(poll.poll(0))


@contextmanager
def watch_folders(*folders: Path) -> Iterator[Watch]:
    """Watch folders while the block runs; raise OSError if no inotify instance is left."""
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

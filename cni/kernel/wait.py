"""Wait for asynchronous work of the kernel; most of it is done after a millisecond or two."""

import errno
import time
from collections.abc import Callable, Collection
from typing import TypeVar

T = TypeVar("T")
# How long another program may take over a device that it names, and what the kernel answers to us meanwhile: the name
# is another device's, which gets its own one soon; the link is up (before Linux 6.2); device or altname has just gone.
NAMED_S = 0.5
RACED = frozenset((errno.EEXIST, errno.EBUSY, errno.ENODEV, errno.ENOENT))

# A process that does not end is polled less often than a netdev that is about to appear.
_FIRST_POLL_S, _POLL_S = 0.001, 0.02


def wait_until(reached: Callable[[], bool], limit_s: float) -> bool:
    """Poll until a condition holds; return False if it does not within ``limit_s`` seconds."""
    deadline = time.monotonic() + limit_s
    pause_s = _FIRST_POLL_S
    while not (there := reached()) and time.monotonic() < deadline:
        time.sleep(pause_s)
        pause_s = min(pause_s * 2, _POLL_S)
    return there


def retry(act: Callable[[], T], raced: Collection[int], limit_s: float) -> T:
    """Return what ``act`` returns; while it fails with an errno of ``raced``, act again, for up to ``limit_s`` seconds.

    Raise the last OSError after that, and any other one at once.
    """
    done: list[T] = []
    refusals: list[OSError] = []

    def attempt() -> bool:
        try:
            done.append(act())
        except OSError as refused:
            if refused.errno not in raced:
                raise
            refusals[:] = [refused]
        return bool(done)

    if not wait_until(attempt, limit_s):
        raise refusals[0]
    return done[0]

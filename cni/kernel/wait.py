"""Wait for asynchronous work of the kernel, most of which takes a millisecond or two."""

import errno
import time
from collections.abc import Callable, Collection
from typing import TypeVar

T = TypeVar("T")
# How long another program may take to rename a device, in seconds, and the errors of the kernel during that time: the
# name still belongs to another device; the link is up (before Linux 6.2); the device or altname has just gone.
RENAME_S = 0.5
RENAME_ERRNOS = frozenset((errno.EEXIST, errno.EBUSY, errno.ENODEV, errno.ENOENT))

# The pause doubles up to _POLL_S: most conditions hold within milliseconds, some take seconds.
_FIRST_POLL_S, _POLL_S = 0.001, 0.02


def wait_until(condition: Callable[[], bool], limit_s: float) -> bool:
    """Poll until a condition holds; return False if it does not within ``limit_s`` seconds."""
    deadline = time.monotonic() + limit_s
    pause_s = _FIRST_POLL_S
    while not (holds := condition()) and time.monotonic() < deadline:
        time.sleep(pause_s)
        pause_s = min(pause_s * 2, _POLL_S)
    return holds


def retry(act: Callable[[], T], errnos: Collection[int], limit_s: float) -> T:
    """Call ``act`` and return its result; repeat it for ``limit_s`` seconds while it fails with one of ``errnos``.

    Raise the last OSError after that, and any other OSError at once.
    """
    results: list[T] = []
    errors: list[OSError] = []

    def attempt() -> bool:
        try:
            results.append(act())
        except OSError as error:
            if error.errno not in errnos:
                raise
            errors[:] = [error]
        return bool(results)

    if not wait_until(attempt, limit_s):
        raise errors[0]
    return results[0]

"""Wait for asynchronous work of the kernel; most of it is done after a millisecond or two."""

import time
from collections.abc import Callable

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

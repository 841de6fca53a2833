"""Return the memory of freed objects to the kernel.

glibc never returns memory between objects in use, so a program that has once read a hundred megabytes would keep them.
Source: malloc_trim(3). Other C libraries do not have this function; there nothing is done.
"""

import ctypes

_trim = getattr(ctypes.CDLL(None), "malloc_trim", None)


def trim_memory() -> None:
    """Return free memory to the kernel; this takes milliseconds, and other threads continue meanwhile."""
    if _trim is not None:
        _trim(ctypes.c_size_t(0))

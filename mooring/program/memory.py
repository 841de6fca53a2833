"""Give memory back to the kernel that freed objects have left in the heap.

glibc keeps what lies between others, for ever: a program that has read a hundred megabytes at once would keep them.
Source: malloc_trim(3). Other C libraries have none, and nothing is done there.
"""

import ctypes

_trim = getattr(ctypes.CDLL(None), "malloc_trim", None)


def give_back() -> None:
    """Do so; it takes milliseconds, and other threads go on meanwhile."""
    if _trim is not None:
        _trim(ctypes.c_size_t(0))

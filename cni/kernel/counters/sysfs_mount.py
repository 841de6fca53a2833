"""Open the sysfs of a network namespace without mounting it at a path.

Below ``net`` and ``infiniband``, sysfs shows each namespace its own devices: the classes are tagged with a namespace
(net_class in net/core/net-sysfs.c, ib_class in drivers/infiniband/core/device.c). A mount shows the devices of the
namespace in which it was created (sysfs_init_fs_context in fs/sysfs/mount.c). fsmount(2) creates a mount that is not
attached to a path and ends with its descriptor. No mount namespace changes, and nothing remains if the thread is
killed.
"""

import ctypes
import os
from collections.abc import Iterator
from contextlib import contextmanager

# include/uapi/asm-generic/unistd.h: the same on every architecture (Linux 5.2).
_FSOPEN, _FSCONFIG, _FSMOUNT = 430, 431, 432
_CLOEXEC, _CMD_CREATE = 1, 6
# MOUNT_ATTR_RDONLY, NOSUID, NODEV, NOEXEC of include/uapi/linux/mount.h.
_MOUNT_ATTRIBUTES = 0x1 | 0x2 | 0x4 | 0x8
_libc = ctypes.CDLL(None, use_errno=True)


@contextmanager
def own_sysfs() -> Iterator[int]:
    """Yield a descriptor of the root of sysfs of the calling thread's network namespace; raise OSError."""
    context = _check_result(_libc.syscall(_FSOPEN, b"sysfs", _CLOEXEC))
    try:
        _check_result(_libc.syscall(_FSCONFIG, context, _CMD_CREATE, None, None, 0))
        root = _check_result(_libc.syscall(_FSMOUNT, context, _CLOEXEC, _MOUNT_ATTRIBUTES))
    finally:
        os.close(context)
    try:
        yield root
    finally:
        os.close(root)


def _check_result(result: int) -> int:
    if result < 0:
        number = ctypes.get_errno()
        raise OSError(number, f"cannot mount sysfs of a network namespace: {os.strerror(number)}")
    return result

"""List the ids of a link's tcx programs, attached by BPF_PROG_ATTACH or a BPF link (Linux 6.6).

The programs stay when the link moves to another namespace. Only unregister_netdevice detaches them (dev_tcx_uninstall
in net/core/dev.c). Source: kernel/bpf/{syscall,tcx,mprog}.c, include/uapi/linux/bpf.h.
"""

import ctypes
import errno
import os
import platform
import struct
from collections.abc import Mapping
from types import MappingProxyType

# The syscall number of bpf(2), for which C libraries have no function; 280 on architectures with the generic table.
_SYSCALLS: Mapping[str, int] = MappingProxyType({"x86_64": 321, "ppc64le": 361, "s390x": 351})
_GENERIC = 280
_PROG_QUERY = 16
_TCX_INGRESS, _TCX_EGRESS = 46, 47
# target_ifindex, attach_type, query_flags, attach_flags, prog_ids, count, and fields of later kernels.
_QUERY, _COUNT_AT = struct.Struct("=IIIIQI36x"), 24
# BPF_MPROG_MAX.
_MOST_PROGRAMS = 64
_libc = ctypes.CDLL(None, use_errno=True)


def tcx_programs(index: int) -> tuple[int, ...]:
    """Return the ids of a link's tcx programs; a kernel without tcx has none. Raise OSError."""
    try:
        return tuple(number for kind in (_TCX_INGRESS, _TCX_EGRESS) for number in _query(index, kind))
    except OSError as unknown:
        # EINVAL: an attach type that the kernel does not know; ENOSYS: a kernel without BPF.
        if unknown.errno in (errno.EINVAL, errno.ENOSYS):
            return ()
        raise


def _query(index: int, attach_type: int) -> tuple[int, ...]:
    ids = (ctypes.c_uint32 * _MOST_PROGRAMS)()
    request = ctypes.create_string_buffer(_QUERY.pack(index, attach_type, 0, 0, ctypes.addressof(ids), _MOST_PROGRAMS))
    number = _SYSCALLS.get(platform.machine(), _GENERIC)
    if _libc.syscall(number, _PROG_QUERY, request, _QUERY.size) < 0:
        error = ctypes.get_errno()
        if error == errno.ENOENT:
            # No program was ever attached (bpf_mprog_query without an entry, before Linux 6.7).
            return ()
        raise OSError(error, os.strerror(error))
    (count,) = struct.unpack_from("=I", request, _COUNT_AT)
    return tuple(ids[:count])

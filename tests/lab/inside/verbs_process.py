"""Hold verbs objects on one RDMA device until killed, as an application of a pod does with the vendor's library.

python verbs_process.py PCI {context|qp}      prints "ready" once the kernel has made them
"""

import ctypes
import signal
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

_UNRELIABLE_DATAGRAM = 4
_VERBS = ctypes.CDLL("libibverbs.so.1", use_errno=True)


class _QpInitAttr(ctypes.Structure):
    """``struct ibv_qp_init_attr`` of libibverbs' verbs.h, with its ``struct ibv_qp_cap``."""

    _fields_ = (
        *((name, ctypes.c_void_p) for name in ("qp_context", "send_cq", "recv_cq", "srq")),
        *((name, ctypes.c_uint32) for name in ("max_send_wr", "max_recv_wr", "max_send_sge", "max_recv_sge")),
        *(("max_inline_data", ctypes.c_uint32), ("qp_type", ctypes.c_int), ("sq_sig_all", ctypes.c_int)),
    )


def call(name: str, *arguments: Any) -> int:
    """Call a function of the library that returns a pointer; raise OSError for NULL."""
    function: Callable[..., int | None] = getattr(_VERBS, name)
    function.restype = ctypes.c_void_p  # type: ignore[attr-defined]
    if not (made := function(*arguments)):
        raise OSError(ctypes.get_errno(), name)
    return made


def device_of(pci: str) -> ctypes.c_void_p:
    (wanted,) = (path.name for path in Path("/sys/bus/pci/devices", pci, "infiniband").iterdir())
    count = ctypes.c_int()
    listed = ctypes.cast(call("ibv_get_device_list", ctypes.byref(count)), ctypes.POINTER(ctypes.c_void_p))
    _VERBS.ibv_get_device_name.restype = ctypes.c_char_p
    devices = {_VERBS.ibv_get_device_name(ctypes.c_void_p(listed[n])): listed[n] for n in range(count.value)}
    return ctypes.c_void_p(devices[wanted.encode()])


def main(pci: str, what: str) -> None:
    context = ctypes.c_void_p(call("ibv_open_device", device_of(pci)))
    if what == "qp":
        pd = ctypes.c_void_p(call("ibv_alloc_pd", context))
        cq = call("ibv_create_cq", context, 16, None, None, 0)
        wanted = _QpInitAttr(None, cq, cq, None, 4, 4, 1, 1, 0, _UNRELIABLE_DATAGRAM, 0)
        call("ibv_create_qp", pd, ctypes.byref(wanted))
    print("ready", flush=True)
    signal.pause()


main(*sys.argv[1:])

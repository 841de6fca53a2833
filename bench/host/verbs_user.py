"""A process that holds queue pairs on an RDMA device, by libibverbs: what a pod's RDMA program looks like to a DEL.

python -m bench.host.verbs_user DEVICE NUMBER        prints "ready", and ends when its standard input does
"""

import ctypes
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager

_RC = 2


class _QueuePairAttributes(ctypes.Structure):
    """struct ibv_qp_init_attr of infiniband/verbs.h."""

    _fields_ = (
        *((name, ctypes.c_void_p) for name in ("qp_context", "send_cq", "recv_cq", "srq")),
        *((name, ctypes.c_uint32) for name in ("max_send_wr", "max_recv_wr", "max_send_sge", "max_recv_sge")),
        *((name, ctypes.c_uint32) for name in ("max_inline_data", "qp_type")),
        ("sq_sig_all", ctypes.c_int),
    )


@contextmanager
def holding(netns: str, device: str, number: int) -> Iterator[None]:
    """Run with a process in a named network namespace that holds queue pairs; without one if ``number`` is 0."""
    if not number:
        yield
        return
    command = ("ip", "netns", "exec", netns, sys.executable, "-m", "bench.host.verbs_user", device, str(number))
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as user:
        assert user.stdout is not None
        assert user.stdout.readline() == "ready\n", "the process has not made its queue pairs"
        yield
        user.kill()


def _verbs() -> ctypes.CDLL:
    """Load the library; its functions return pointers, None for a failure."""
    verbs = ctypes.CDLL("libibverbs.so.1", use_errno=True)
    for name in ("get_device_list", "get_device_name", "open_device", "alloc_pd", "create_cq", "create_qp"):
        getattr(verbs, f"ibv_{name}").restype = ctypes.c_void_p
    verbs.ibv_get_device_name.restype = ctypes.c_char_p
    return verbs


def _open(verbs: ctypes.CDLL, name: str) -> int:
    listed = ctypes.cast(verbs.ibv_get_device_list(None), ctypes.POINTER(ctypes.c_void_p))
    index = 0
    while (device := listed[index]) is not None:
        if verbs.ibv_get_device_name(ctypes.c_void_p(device)) == name.encode():
            return _made(verbs.ibv_open_device(ctypes.c_void_p(device)), "context")
        index += 1
    raise SystemExit(f"no rdma device {name!r}")


def _made(pointer: int | None, what: str) -> int:
    if pointer is None:
        raise SystemExit(f"no {what}: errno {ctypes.get_errno()}")
    return pointer


def main() -> None:
    name, number = sys.argv[1], int(sys.argv[2])
    verbs = _verbs()
    context = _open(verbs, name)
    domain = _made(verbs.ibv_alloc_pd(ctypes.c_void_p(context)), "protection domain")
    queue = _made(verbs.ibv_create_cq(ctypes.c_void_p(context), 16, None, None, 0), "completion queue")
    wanted = _QueuePairAttributes(None, queue, queue, None, 1, 1, 1, 1, 0, _RC, 0)
    for _ in range(number):
        _made(verbs.ibv_create_qp(ctypes.c_void_p(domain), ctypes.byref(wanted)), "queue pair")
    print("ready", flush=True)
    sys.stdin.read(1)


if __name__ == "__main__":
    main()

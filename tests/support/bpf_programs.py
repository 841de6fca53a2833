"""Attach a BPF program to a link of this network namespace, as a pod with CAP_NET_ADMIN and CAP_BPF does.

    python -m tests.support.bpf_programs HOW LINK

HOW is ``xdp`` (by netlink, generic: stays without this process), ``xdp-link`` or ``tcx-link`` (by a BPF link, for as
long as this process lives), or ``tcx`` (BPF_PROG_ATTACH: stays). XDP programs drop every frame, tcx ones pass them.
Prints "attached"; with a BPF link it then waits for its end. x86_64 only. Source: include/uapi/linux/bpf.h.
"""

import ctypes
import os
import socket
import struct
import sys
import time

from cni.kernel import rtnetlink
from cni.kernel.netdev import netdev_state
from mooring.nic.netlink_codec import NESTED, pack_attributes, u32

_SYSCALL, _PROG_LOAD, _PROG_ATTACH, _LINK_CREATE = 321, 5, 8, 28
_XDP_PROGRAM, _SCHED_CLS, _XDP_DROP, _TCX_NEXT = 6, 3, 1, 0xFFFFFFFF
_TCX_INGRESS, _XDP = 46, 37
# BPF_ALU64 | BPF_MOV | BPF_K of r0, and BPF_EXIT.
_MOVE, _EXIT = 0xB7, 0x95
_libc = ctypes.CDLL(None, use_errno=True)


def bpf(command: int, attributes: bytes) -> int:
    buffer = ctypes.create_string_buffer(attributes.ljust(128, b"\0"), 128)
    result = _libc.syscall(_SYSCALL, command, buffer, 128)
    if result < 0:
        raise OSError(ctypes.get_errno(), os.strerror(ctypes.get_errno()))
    return int(result)


def load(kind: int, verdict: int) -> int:
    """Load a program that returns one number; return its descriptor."""
    code = struct.pack("=BBhI", _MOVE, 0, 0, verdict) + struct.pack("=BBhi", _EXIT, 0, 0, 0)
    instructions, licence = ctypes.create_string_buffer(code), ctypes.create_string_buffer(b"GPL")
    return bpf(_PROG_LOAD, struct.pack("=IIQQ", kind, 2, ctypes.addressof(instructions), ctypes.addressof(licence)))


def attach(how: str, index: int) -> None:
    if how.startswith("xdp"):
        program, kind = load(_XDP_PROGRAM, _XDP_DROP), _XDP
    else:
        program, kind = load(_SCHED_CLS, _TCX_NEXT), _TCX_INGRESS
    if how == "xdp":
        generic = pack_attributes([(1, u32(program)), (3, u32(2))])
        rtnetlink.exchange(rtnetlink.SET_LINK, rtnetlink.link_header(index), [(43 | NESTED, generic)])
    elif how == "tcx":
        bpf(_PROG_ATTACH, struct.pack("=IIII", index, program, kind, 0))
    else:
        bpf(_LINK_CREATE, struct.pack("=IIII", program, index, kind, 2 if kind == _XDP else 0))


def main() -> int:
    how, name = sys.argv[1:]
    index = socket.if_nametoindex(name)
    attach(how, index)
    found = netdev_state.read(index)
    assert found[how.partition("-")[0]], found
    sys.stdout.write("attached\n")
    sys.stdout.flush()
    while how.endswith("link"):
        time.sleep(3600)
    return 0


if __name__ == "__main__":
    sys.exit(main())

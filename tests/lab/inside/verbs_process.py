"""Hold verbs objects on one RDMA device until killed, as an application of a pod: no provider library is needed.

python verbs_process.py PCI {context|qp}      prints "ready" once the kernel has made them

The write() commands of include/uapi/rdma/ib_user_verbs.h; the device is the PCI function's own.
"""

import ctypes
import os
import signal
import struct
import sys
from pathlib import Path

_GET_CONTEXT, _ALLOC_PD, _CREATE_CQ, _CREATE_QP = 0, 3, 18, 24
_UNRELIABLE_DATAGRAM = 4


def command(device: int, number: int, body: bytes, response_bytes: int) -> bytes:
    """Give one command; a response's address goes before the rest, and lengths are in words of 4 bytes."""
    response = ctypes.create_string_buffer(response_bytes)
    whole = struct.pack("=Q", ctypes.addressof(response)) + body
    os.write(device, struct.pack("=IHH", number, 2 + len(whole) // 4, response_bytes // 4) + whole)
    return response.raw


def main(pci: str, what: str) -> None:
    (verbs,) = Path("/sys/bus/pci/devices", pci, "infiniband_verbs").iterdir()
    device = os.open(f"/dev/infiniband/{verbs.name}", os.O_RDWR)
    command(device, _GET_CONTEXT, b"", 8)
    if what == "qp":
        pd = command(device, _ALLOC_PD, b"", 4)
        cq, _ = struct.unpack("=II", command(device, _CREATE_CQ, struct.pack("=QIIiI", 0, 16, 0, -1, 0), 8))
        wanted = struct.pack("=Q4sIII5I4B", 0, pd, cq, cq, 0, 4, 4, 1, 1, 0, 1, _UNRELIABLE_DATAGRAM, 0, 0)
        command(device, _CREATE_QP, wanted, 32)
    print("ready", flush=True)
    signal.pause()


main(*sys.argv[1:])

"""RTNETLINK by hand: one request and its answer, in the network namespace of the calling thread.

A VF takes a dozen requests, and one session of a general library costs more than all of them: 0.4 ms to open, 1 ms to
read one link. Shapes and numbers: include/uapi/linux/{netlink,rtnetlink,if_link,if_addr,fib_rules}.h. Every failure is
the kernel's own, as OSError.
"""

import os
import socket
import struct
from collections.abc import Iterable, Iterator

from mooring.nic.rdma_netlink import Attribute

DEL_LINK, GET_LINK, SET_LINK, NEW_LINK_PROP, DEL_LINK_PROP = 17, 18, 19, 108, 109
NEW_ADDRESS, GET_ADDRESS, NEW_ROUTE, GET_ROUTE = 20, 22, 24, 26
NEW_RULE, DEL_RULE, GET_RULE = 32, 33, 34
# Modifiers of a NEW request: refuse what exists, create what does not, append to what exists.
EXCLUSIVE, CREATE, APPEND = 0x200, 0x400, 0x800
DUMP = 0x300
NESTED = 0x8000
_REQUEST, _ACK = 0x1, 0x4
_ERROR, _DONE = 2, 3
_HEADER = struct.Struct("=IHHII")
_ATTRIBUTE = struct.Struct("=HH")
_CODE = struct.Struct("=i")
# ifinfomsg: family, type, index, flags, and which of the flags are meant.
_IFINFO = struct.Struct("=BxHiII")
LINK_HEADER_SIZE = _IFINFO.size
_MOST_BYTES = 1 << 18


def exchange(
    kind: int, header: bytes, attributes: Iterable[Attribute] = (), flags: int = 0, most_bytes: int = _MOST_BYTES
) -> list[bytes]:
    """Send a request and return the body of each message of its answer; raise OSError with the kernel's errno.

    What one datagram has beyond ``most_bytes`` is lost.
    """
    wanted = flags | _REQUEST | (0 if flags & DUMP == DUMP else _ACK)
    body = header + b"".join(pack(*attribute) for attribute in attributes)
    answer: list[bytes] = []
    with socket.socket(socket.AF_NETLINK, socket.SOCK_RAW | socket.SOCK_CLOEXEC, socket.NETLINK_ROUTE) as route:
        route.send(_HEADER.pack(_HEADER.size + len(body), kind, wanted, 1, 0) + body)
        while True:
            for found, content in _messages(route.recv(most_bytes)):
                if found in (_ERROR, _DONE):
                    _raise_refusal(content)
                    return answer
                answer.append(content)


def link_header(index: int) -> bytes:
    """Return the header of a request about one link that leaves its flags as they are."""
    return _IFINFO.pack(0, 0, index, 0, 0)


def pack(kind: int, value: bytes) -> bytes:
    """Return an attribute's bytes; one with nested attributes has their bytes as its value and NESTED in its type."""
    return _ATTRIBUTE.pack(_ATTRIBUTE.size + len(value), kind) + value + bytes(-len(value) % 4)


def _messages(received: bytes) -> Iterator[tuple[int, bytes]]:
    offset = 0
    while offset + _HEADER.size <= len(received):
        length, kind, *_ = _HEADER.unpack_from(received, offset)
        yield kind, received[offset + _HEADER.size : offset + length]
        offset += max(length + 3 & ~3, _HEADER.size)


def _raise_refusal(content: bytes) -> None:
    """Raise for a negative errno; 0 acknowledges, and the end of a dump may carry nothing."""
    code = _CODE.unpack_from(content)[0] if len(content) >= _CODE.size else 0
    if code < 0:
        raise OSError(-code, os.strerror(-code))

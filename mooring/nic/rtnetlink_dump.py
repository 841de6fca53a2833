"""Lists of RTNETLINK by hand, in the network namespace of the calling thread; failures are OSErrors.

A general library takes 1 ms to read one link, and a node has hundreds. Formats: include/uapi/linux/netlink.h.
"""

import errno
import os
import socket
import struct
from collections.abc import Iterable, Iterator

_HEADER = struct.Struct("=IHHII")
_ATTRIBUTE = struct.Struct("=HH")
_CODE = struct.Struct("=i")
_REQUEST_DUMP = 0x1 | 0x300
_ERROR, _DONE = 2, 3
# NLM_F_DUMP_INTR: something has changed meanwhile, and the list may lack what has not.
_INTERRUPTED = 0x10
_MOST_LISTS = 20
_MOST_BYTES = 1 << 18


def dump(kind: int, header: bytes, attributes: Iterable[tuple[int, bytes]] = ()) -> list[bytes]:
    """Return the body of each message of a whole list, of one state of the kernel; raise OSError, EAGAIN without."""
    body = header + b"".join(
        _ATTRIBUTE.pack(_ATTRIBUTE.size + len(value), each) + value + bytes(-len(value) % 4)
        for each, value in attributes
    )
    request = _HEADER.pack(_HEADER.size + len(body), kind, _REQUEST_DUMP, 1, 0) + body
    for _ in range(_MOST_LISTS):
        with socket.socket(socket.AF_NETLINK, socket.SOCK_RAW | socket.SOCK_CLOEXEC, socket.NETLINK_ROUTE) as route:
            route.send(request)
            if (answer := _whole(route)) is not None:
                return answer
    raise OSError(errno.EAGAIN, "the host's links or routes change all the time")


def _whole(route: socket.socket) -> list[bytes] | None:
    """Return a list, None for one that was interrupted."""
    answer: list[bytes] = []
    is_whole = True
    while True:
        for kind, flags, body in _messages(route.recv(_MOST_BYTES)):
            is_whole = is_whole and not flags & _INTERRUPTED
            if kind in (_ERROR, _DONE):
                code = _CODE.unpack_from(body)[0] if len(body) >= _CODE.size else 0
                if code < 0:
                    raise OSError(-code, os.strerror(-code))
                return answer if is_whole else None
            answer.append(body)


def _messages(received: bytes) -> Iterator[tuple[int, int, bytes]]:
    offset = 0
    while offset + _HEADER.size <= len(received):
        length, kind, flags, *_ = _HEADER.unpack_from(received, offset)
        yield kind, flags, received[offset + _HEADER.size : offset + length]
        offset += max(length + 3 & ~3, _HEADER.size)

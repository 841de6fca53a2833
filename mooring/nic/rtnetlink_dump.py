"""Lists of RTNETLINK by hand, in the network namespace of the calling thread; failures are OSErrors.

A general library takes 1 ms to read one link, and a node has hundreds.
"""

import errno
import socket
from collections.abc import Iterable

from mooring.nic.netlink_codec import (
    DUMP,
    INTERRUPTED,
    REQUEST,
    Attribute,
    pack_attributes,
    pack_message,
    read_messages,
)

_MOST_LISTS = 20
_MOST_BYTES = 1 << 18


def dump(kind: int, header: bytes, attributes: Iterable[Attribute] = ()) -> list[bytes]:
    """Return the body of each message of a whole list, of one state of the kernel; raise OSError, EAGAIN without."""
    request = pack_message(kind, REQUEST | DUMP, header + pack_attributes(attributes))
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
        for message in read_messages(route.recv(_MOST_BYTES)):
            is_whole = is_whole and not message.flags & INTERRUPTED
            if message.is_last:
                return answer if is_whole else None
            answer.append(message.body)

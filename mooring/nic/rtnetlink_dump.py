"""Read lists of RTNETLINK without a library, in the network namespace of the calling thread; failures are OSErrors.

A general library needs 1 ms for each link, and a node has hundreds.
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
    """Return the body of each message of a consistent list; raise OSError, EAGAIN if the list keeps changing."""
    request = pack_message(kind, REQUEST | DUMP, header + pack_attributes(attributes))
    for _ in range(_MOST_LISTS):
        with socket.socket(socket.AF_NETLINK, socket.SOCK_RAW | socket.SOCK_CLOEXEC, socket.NETLINK_ROUTE) as route:
            route.send(request)
            if (answer := _whole(route)) is not None:
                return answer
    raise OSError(errno.EAGAIN, "the host's links or routes keep changing")


def _whole(route: socket.socket) -> list[bytes] | None:
    """Return the list, None if it changed meanwhile."""
    answer: list[bytes] = []
    is_whole = True
    while True:
        for message in read_messages(route.recv(_MOST_BYTES)):
            is_whole = is_whole and not message.flags & INTERRUPTED
            if message.is_last:
                return answer if is_whole else None
            answer.append(message.body)

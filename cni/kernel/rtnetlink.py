"""Send one RTNETLINK request and read its answer, in the network namespace of the calling thread.

A VF takes a dozen requests. One session of a general library costs more than all of them: 0.4 ms to open, 1 ms to read
one link. The numbers are from include/uapi/linux/{rtnetlink,if_link,if_addr,fib_rules}.h. Failures are the kernel's, as
OSError.
"""

import socket
from collections.abc import Iterable

from mooring.nic.netlink_codec import (
    ACK,
    DUMP,
    LINK_HEADER,
    REQUEST,
    Attribute,
    pack_attributes,
    pack_message,
    read_messages,
)

DEL_LINK, GET_LINK, SET_LINK, NEW_LINK_PROP, DEL_LINK_PROP = 17, 18, 19, 108, 109
NEW_ADDRESS, GET_ADDRESS, NEW_ROUTE, GET_ROUTE = 20, 22, 24, 26
NEW_RULE, DEL_RULE, GET_RULE = 32, 33, 34
_MOST_BYTES = 1 << 18


def exchange(
    kind: int, header: bytes, attributes: Iterable[Attribute] = (), flags: int = 0, most_bytes: int = _MOST_BYTES
) -> list[bytes]:
    """Send a request and return the body of each message of its answer; raise OSError with the kernel's errno.

    The kernel truncates a datagram that is longer than ``most_bytes``.
    """
    flags |= REQUEST | (0 if flags & DUMP == DUMP else ACK)
    request = pack_message(kind, flags, header + pack_attributes(attributes))
    answer: list[bytes] = []
    with socket.socket(socket.AF_NETLINK, socket.SOCK_RAW | socket.SOCK_CLOEXEC, socket.NETLINK_ROUTE) as route:
        route.send(request)
        while True:
            for message in read_messages(route.recv(most_bytes)):
                if message.is_last:
                    return answer
                answer.append(message.body)


def link_header(index: int) -> bytes:
    """Return the header of a request for one link (by index) that does not change its flags."""
    return LINK_HEADER.pack(0, 0, index, 0, 0)

"""NETLINK_RDMA, which pyroute2 does not support: messages of the RDMA core's client NLDEV, and one exchange of them.

Numbers and formats: include/uapi/rdma/rdma_netlink.h and include/uapi/linux/netlink.h. The network namespace of the
calling thread decides which devices are visible. A kernel without the RDMA core refuses the socket with
EPROTONOSUPPORT.
"""

import os
import socket
import struct
from collections.abc import Iterator, Mapping, Sequence

GET, SET, SYS_GET, SYS_SET, RES_GET, RES_QP_GET, RES_CM_ID_GET, RES_CTX_GET = 1, 2, 6, 7, 9, 10, 11, 22
GET_CHARDEV, CHARDEV_TYPE, CHARDEV = 15, 69, 72
DEV_INDEX, DEV_NAME = 1, 2
RES_SUMMARY, RES_SUMMARY_ENTRY, RES_SUMMARY_ENTRY_NAME, RES_SUMMARY_ENTRY_CURR = 15, 16, 17, 18
RES_QP, RES_QP_ENTRY, RES_PID, RES_CM_ID, RES_CM_ID_ENTRY, RES_CTX, RES_CTX_ENTRY = 19, 20, 28, 31, 32, 86, 87
SYS_ATTR_NETNS_MODE, NET_NS_FD = 66, 68

Attribute = tuple[int, bytes]
_NETLINK_RDMA = 20
_NLDEV = 5 << 10
_REQUEST, _ACK, _DUMP = 0x001, 0x004, 0x300
_ERROR, _DONE = 2, 3
# The flags NLA_F_NESTED and NLA_F_NET_BYTEORDER are above the type's bits.
_TYPE = 0x3FFF
_HEADER = struct.Struct("=IHHII")
_ATTRIBUTE = struct.Struct("=HH")
_MOST_BYTES = 1 << 16


def exchange(command: int, attributes: Mapping[int, bytes], *, dump: bool = False) -> list[Sequence[Attribute]]:
    """Send a command and return the attributes of each message of its answer; raise OSError with the kernel's errno."""
    answer: list[Sequence[Attribute]] = []
    with socket.socket(socket.AF_NETLINK, socket.SOCK_RAW | socket.SOCK_CLOEXEC, _NETLINK_RDMA) as netlink:
        netlink.bind((0, 0))
        netlink.send(request(command, attributes, dump=dump))
        while True:
            messages, ended = read_answer(netlink.recv(_MOST_BYTES))
            answer += messages
            if ended:
                return answer


def request(command: int, attributes: Mapping[int, bytes], *, dump: bool = False) -> bytes:
    """Return the bytes of a request; any but a dump requests an acknowledgement."""
    body = pack_attributes(attributes)
    return _HEADER.pack(_HEADER.size + len(body), _NLDEV | command, _REQUEST | (_DUMP if dump else _ACK), 1, 0) + body


def pack_attributes(attributes: Mapping[int, bytes]) -> bytes:
    """Return the bytes of attributes, each padded to four; nothing is nested."""
    return b"".join(
        _ATTRIBUTE.pack(_ATTRIBUTE.size + len(value), kind) + value + bytes(-len(value) % 4)
        for kind, value in attributes.items()
    )


def read_answer(received: bytes, header: int = 0) -> tuple[list[Sequence[Attribute]], bool]:
    """Return the messages in one datagram, and whether the answer ends with it; raise OSError for an error.

    ``header`` is the size in bytes of the family's own header between netlink's header and the attributes.
    """
    messages: list[Sequence[Attribute]] = []
    offset = 0
    while offset + _HEADER.size <= len(received):
        length, kind, *_ = _HEADER.unpack_from(received, offset)
        body = received[offset + _HEADER.size : offset + length]
        if kind in (_ERROR, _DONE):
            # Both begin with a negative errno, 0 for an acknowledgement; DONE carried none before Linux 4.14.
            code = struct.unpack_from("=i", body)[0] if len(body) >= 4 else 0
            if code < 0:
                raise OSError(-code, os.strerror(-code))
            return messages, True
        messages.append(tuple(read_attributes(body[header:])))
        offset += max(length + 3 & ~3, _HEADER.size)
    return messages, False


def read_attributes(body: bytes) -> Iterator[Attribute]:
    """Yield type and value of each attribute; a nested one's value is read by the same function."""
    offset = 0
    while offset + _ATTRIBUTE.size <= len(body):
        length, kind = _ATTRIBUTE.unpack_from(body, offset)
        yield kind & _TYPE, body[offset + _ATTRIBUTE.size : offset + length]
        offset += max(length + 3 & ~3, _ATTRIBUTE.size)


def number(value: bytes) -> int:
    """Read an unsigned integer of any size in the host's byte order."""
    return int.from_bytes(value, "little" if socket.htons(1) != 1 else "big")


def u32(value: int) -> bytes:
    return struct.pack("=I", value)


def text(value: bytes) -> str:
    """Read a string that ends with a zero byte; bytes that are not UTF-8 become lone surrogates, as in file names."""
    return value.split(b"\0", 1)[0].decode(errors="surrogateescape")


def packed_text(value: str) -> bytes:
    """Return a string, as `text` read it, with its ending zero byte."""
    return value.encode(errors="surrogateescape") + b"\0"

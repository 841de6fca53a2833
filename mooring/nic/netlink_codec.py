"""Encode and decode netlink messages and attributes of any family.

Formats are from include/uapi/linux/netlink.h, headers of links from include/uapi/linux/rtnetlink.h. Integers are in the
host's byte order. A length that is too small for a header counts as the header's length, so every read terminates.
"""

import os
import struct
import sys
from collections.abc import Iterable, Iterator, Sequence
from typing import NamedTuple

Attribute = tuple[int, bytes]
# NLM_F_*. The second line has flags of requests that create: fail if it exists, create it if it does not, append to it.
REQUEST, ACK, DUMP = 0x1, 0x4, 0x300
EXCLUSIVE, CREATE, APPEND = 0x200, 0x400, 0x800
# NLM_F_DUMP_INTR in an answer: something has changed during the list, which may be incomplete.
INTERRUPTED = 0x10
# The upper bits of an attribute's type are the flags NLA_F_NESTED and NLA_F_NET_BYTEORDER.
NESTED, _TYPE = 0x8000, 0x3FFF
# struct ifinfomsg: family, type, index, flags, and the mask of changed flags.
LINK_HEADER = struct.Struct("=BxHiII")
# struct rtmsg: family, length of destination and source, tos, table, protocol, scope, type, and flags.
ROUTE_HEADER = struct.Struct("=8BI")
_ERROR, _DONE = 2, 3
_HEADER = struct.Struct("=IHHII")
_ATTRIBUTE = struct.Struct("=HH")
_CODE = struct.Struct("=i")


class Message(NamedTuple):
    """A message of an answer; ``body`` starts with the header of its family."""

    kind: int
    flags: int
    body: bytes

    @property
    def is_last(self) -> bool:
        """Whether the answer ends with this message; raise OSError with the kernel's errno for an error message.

        Errors and the end of a list start with a negative errno, which is 0 for an acknowledgement. Before Linux 4.14
        the end of a list has no errno.
        """
        if self.kind not in (_ERROR, _DONE):
            return False
        code = _CODE.unpack_from(self.body)[0] if len(self.body) >= _CODE.size else 0
        if code < 0:
            raise OSError(-code, os.strerror(-code))
        return True


def pack_message(kind: int, flags: int, body: bytes) -> bytes:
    """Return the bytes of one message."""
    return _HEADER.pack(_HEADER.size + len(body), kind, flags, 1, 0) + body


def read_messages(datagram: bytes) -> Iterator[Message]:
    """Yield the messages of one datagram."""
    offset = 0
    while offset + _HEADER.size <= len(datagram):
        length, kind, flags, *_ = _HEADER.unpack_from(datagram, offset)
        yield Message(kind, flags, datagram[offset + _HEADER.size : offset + length])
        offset += max(length + 3 & ~3, _HEADER.size)


def read_answer(datagram: bytes, header: int = 0) -> tuple[list[Sequence[Attribute]], bool]:
    """Return the attributes of each message in one datagram, and whether the answer ends with it; raise OSError.

    ``header`` is the size in bytes of the family's own header before the attributes.
    """
    messages: list[Sequence[Attribute]] = []
    for message in read_messages(datagram):
        if message.is_last:
            return messages, True
        messages.append(tuple(read_attributes(message.body[header:])))
    return messages, False


def pack_attribute(kind: int, value: bytes) -> bytes:
    """Return an attribute's bytes; nested attributes are passed as the bytes of ``value``, with NESTED in ``kind``."""
    return _ATTRIBUTE.pack(_ATTRIBUTE.size + len(value), kind) + value + bytes(-len(value) % 4)


def pack_attributes(attributes: Iterable[Attribute]) -> bytes:
    """Return the bytes of attributes, each padded to four."""
    return b"".join(pack_attribute(kind, value) for kind, value in attributes)


def read_attributes(body: bytes) -> Iterator[Attribute]:
    """Yield type and value of each attribute; read a nested attribute's value with the same function."""
    for kind, begin, end in attributes_at(body):
        yield kind, body[begin:end]


def attributes_at(body: bytes, offset: int = 0) -> Iterator[tuple[int, int, int]]:
    """Yield type, begin and end of each attribute from ``offset`` on.

    Callers need the positions if the kernel gives a nested list a wrong length.
    """
    while offset + _ATTRIBUTE.size <= len(body):
        length, kind = _ATTRIBUTE.unpack_from(body, offset)
        yield kind & _TYPE, offset + _ATTRIBUTE.size, max(offset + length, offset + _ATTRIBUTE.size)
        offset += max(length + 3 & ~3, _ATTRIBUTE.size)


def number(value: bytes) -> int:
    """Return an unsigned integer of any size."""
    return int.from_bytes(value, sys.byteorder)


def u32(value: int) -> bytes:
    return struct.pack("=I", value)


def text(value: bytes) -> str:
    """Return a zero-terminated string; bytes that are not UTF-8 become lone surrogates, as in file names."""
    return value.split(b"\0", 1)[0].decode(errors="surrogateescape")


def packed_text(value: str) -> bytes:
    """Return the bytes of a string that `text` has read, with the terminating zero."""
    return value.encode(errors="surrogateescape") + b"\0"

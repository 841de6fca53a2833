"""Messages and attributes of netlink, of any family: their bytes, and the error that an answer is.

Formats: include/uapi/linux/netlink.h; of links' headers: include/uapi/linux/rtnetlink.h. Integers are in the host's
byte order. A length too small for a header is taken for the header's, so that no input is read for ever.
"""

import os
import struct
import sys
from collections.abc import Iterable, Iterator, Sequence
from typing import NamedTuple

Attribute = tuple[int, bytes]
# NLM_F_*. A request that makes something may refuse what exists, create what does not, append to what exists.
REQUEST, ACK, DUMP = 0x1, 0x4, 0x300
EXCLUSIVE, CREATE, APPEND = 0x200, 0x400, 0x800
# NLM_F_DUMP_INTR, in an answer: something has changed meanwhile, and the list may lack what has not.
INTERRUPTED = 0x10
# Above the bits of an attribute's type are NLA_F_NESTED and NLA_F_NET_BYTEORDER.
NESTED, _TYPE = 0x8000, 0x3FFF
# struct ifinfomsg: family, type, index, flags, and which of the flags are meant.
LINK_HEADER = struct.Struct("=BxHiII")
# struct rtmsg: family, length of destination and source, tos, table, protocol, scope, type, and flags.
ROUTE_HEADER = struct.Struct("=8BI")
_ERROR, _DONE = 2, 3
_HEADER = struct.Struct("=IHHII")
_ATTRIBUTE = struct.Struct("=HH")
_CODE = struct.Struct("=i")


class Message(NamedTuple):
    """A message of an answer; ``body`` begins with its family's own header."""

    kind: int
    flags: int
    body: bytes

    @property
    def is_last(self) -> bool:
        """Whether the answer ends with this one; raise OSError with the kernel's errno if it is a refusal.

        Errors and the end of a list begin with a negative errno, 0 for an acknowledgement; the end of a list carried
        none before Linux 4.14.
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


def read_messages(received: bytes) -> Iterator[Message]:
    """Yield the messages of one datagram."""
    offset = 0
    while offset + _HEADER.size <= len(received):
        length, kind, flags, *_ = _HEADER.unpack_from(received, offset)
        yield Message(kind, flags, received[offset + _HEADER.size : offset + length])
        offset += max(length + 3 & ~3, _HEADER.size)


def read_answer(received: bytes, header: int = 0) -> tuple[list[Sequence[Attribute]], bool]:
    """Return the attributes of each message in one datagram, and whether the answer ends with it; raise OSError.

    ``header`` is the size in bytes of the family's own header before the attributes.
    """
    messages: list[Sequence[Attribute]] = []
    for message in read_messages(received):
        if message.is_last:
            return messages, True
        messages.append(tuple(read_attributes(message.body[header:])))
    return messages, False


def pack_attribute(kind: int, value: bytes) -> bytes:
    """Return an attribute's bytes; one with nested attributes has their bytes as its value and NESTED in its type."""
    return _ATTRIBUTE.pack(_ATTRIBUTE.size + len(value), kind) + value + bytes(-len(value) % 4)


def pack_attributes(attributes: Iterable[Attribute]) -> bytes:
    """Return the bytes of attributes, each padded to four."""
    return b"".join(pack_attribute(kind, value) for kind, value in attributes)


def read_attributes(body: bytes) -> Iterator[Attribute]:
    """Yield type and value of each attribute; a nested one's value is read by the same function."""
    for kind, begin, end in attributes_at(body):
        yield kind, body[begin:end]


def attributes_at(body: bytes, offset: int = 0) -> Iterator[tuple[int, int, int]]:
    """Yield type, begin and end of each attribute from ``offset`` on: where a length is known to be wrong."""
    while offset + _ATTRIBUTE.size <= len(body):
        length, kind = _ATTRIBUTE.unpack_from(body, offset)
        yield kind & _TYPE, offset + _ATTRIBUTE.size, max(offset + length, offset + _ATTRIBUTE.size)
        offset += max(length + 3 & ~3, _ATTRIBUTE.size)


def number(value: bytes) -> int:
    """Read an unsigned integer of any size."""
    return int.from_bytes(value, sys.byteorder)


def u32(value: int) -> bytes:
    return struct.pack("=I", value)


def text(value: bytes) -> str:
    """Read a string that ends with a zero byte; bytes that are not UTF-8 become lone surrogates, as in file names."""
    return value.split(b"\0", 1)[0].decode(errors="surrogateescape")


def packed_text(value: str) -> bytes:
    """Return a string, as `text` read it, with its ending zero byte."""
    return value.encode(errors="surrogateescape") + b"\0"

"""Call Version at a CRI socket with the standard library: send one HTTP/2 request, and classify its answer.

The contents of the answer are not decoded. A unary call that succeeds sends a message, which is a DATA frame. One that
fails sends headers that end the stream (gRPC's PROTOCOL-HTTP2.md, "Trailers-Only"). Frames are as in RFC 9113. Header
fields are literals of RFC 7541 ("without Indexing"), with lengths below 127 in one byte.
"""

import socket
import struct
import time
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

_PREFACE = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n"
_DATA, _HEADERS, _RST_STREAM, _SETTINGS, _GOAWAY = 0x0, 0x1, 0x3, 0x4, 0x7
_END_STREAM, _END_HEADERS = 0x1, 0x4
_STREAM = 1
_HEAD = struct.Struct(">BHBBI")  # Length in 24 bits, type, flags, stream.
_FIELDS = (
    (":method", "POST"),
    (":scheme", "http"),
    (":path", "/runtime.v1.RuntimeService/Version"),
    (":authority", "localhost"),
    ("content-type", "application/grpc"),
    ("te", "trailers"),
)
_EMPTY_MESSAGE = bytes(5)  # Not compressed, 0 bytes long.
# struct ucred: pid, uid, gid (unix(7)).
_CREDENTIALS = struct.Struct("3i")


@dataclass(frozen=True, slots=True)
class Probe:
    """The outcome of a call, and the id of the process that listens at the socket (None without a connection)."""

    outcome: Literal["answers", "fails", "hangs"]
    pid: int | None = None


def call_version(path: Path, limit_s: float) -> Probe:
    """Call Version at the socket ``path`` and return the outcome within ``limit_s`` seconds."""
    ends_s = time.monotonic() + limit_s
    pid = None
    with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM | socket.SOCK_CLOEXEC) as caller:
        try:
            caller.settimeout(limit_s)
            caller.connect(str(path))
            pid = _CREDENTIALS.unpack(caller.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, _CREDENTIALS.size))[0]
            caller.sendall(_request())
            return Probe("answers" if _has_message(caller, ends_s) else "fails", pid)
        except TimeoutError:
            return Probe("hangs", pid)
        except OSError:
            return Probe("fails", pid)


def _request() -> bytes:
    block = b"".join(
        bytes([0, len(name)]) + name.encode() + bytes([len(value)]) + value.encode() for name, value in _FIELDS
    )
    headers = _frame(_HEADERS, _END_HEADERS, _STREAM, block)
    return _PREFACE + _frame(_SETTINGS, 0, 0, b"") + headers + _frame(_DATA, _END_STREAM, _STREAM, _EMPTY_MESSAGE)


def _frame(kind: int, flags: int, stream: int, payload: bytes) -> bytes:
    return _HEAD.pack(len(payload) >> 16, len(payload) & 0xFFFF, kind, flags, stream) + payload


def _has_message(caller: socket.socket, ends_s: float) -> bool:
    """Read frames until the answer; return whether it has a message. Raise TimeoutError or OSError."""
    while True:
        high, low, kind, flags, stream = _HEAD.unpack(_read(caller, _HEAD.size, ends_s))
        length = (high << 16) + low
        _read(caller, length, ends_s)
        if kind == _GOAWAY:
            return False
        if stream == _STREAM:
            if kind == _DATA and length >= len(_EMPTY_MESSAGE):
                return True
            if kind == _RST_STREAM or flags & _END_STREAM:
                return False


def _read(caller: socket.socket, length: int, ends_s: float) -> bytes:
    """Read ``length`` bytes; raise ConnectionError if the connection ends, or TimeoutError."""
    content = b""
    while len(content) < length:
        caller.settimeout(max(ends_s - time.monotonic(), 0.001))
        part = caller.recv(length - len(content))
        if not part:
            raise ConnectionError("the connection closed")
        content += part
    return content

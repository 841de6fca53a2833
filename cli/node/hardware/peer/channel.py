"""Connections between the two hosts of a test, which a one-time token authenticates in both directions.

The side that listens sends 32 random bytes, the other one its own, the purpose of the connection, and an HMAC-SHA256
of all of it with the token as key. Both sides then derive a key for each direction. Every frame carries an HMAC of its
number and content, so that nobody without the token can send, change, repeat or leave out a frame. Nothing is
encrypted. The token has 128 random bits, so that it cannot be guessed from what is heard on the network.

    frame: length (4 bytes), content, HMAC-SHA256 (32 bytes)
"""

import hmac
import secrets
import socket
import struct
import time
from contextlib import suppress

from cli.node.errors import NodeError

MOST_BYTES = 1 << 16
PURPOSE_BYTES = 16
_NONCE_BYTES, _MAC_BYTES = 32, 32
_LENGTH = struct.Struct(">I")
_VERSION = b"mooring hardware-test 1\n"
_GREETING_S, _IDLE_S = 5.0, 300.0


class ChannelError(NodeError, OSError):
    """The other side is not a test with the same token, or broke the rules."""


def new_token() -> str:
    return secrets.token_hex(16)


class Channel:
    """An authenticated connection; it may be relayed, as a stream of bytes."""

    def __init__(self, connection: socket.socket, sending: bytes, receiving: bytes) -> None:
        self._socket = connection
        self._sending, self._receiving = sending, receiving
        self._sent = self._received = 0
        connection.settimeout(_IDLE_S)

    def send(self, content: bytes) -> None:
        mac = _frame_mac(self._sending, self._sent, content)
        self._sent += 1
        self._socket.sendall(_LENGTH.pack(len(content)) + content + mac)

    def receive(self) -> bytes:
        """Return a frame's content, empty if the other side has closed; raise ChannelError."""
        head = _exactly(self._socket, _LENGTH.size)
        if not head:
            return b""
        (length,) = _LENGTH.unpack(head)
        if length > MOST_BYTES:
            raise ChannelError(f"a frame of {length} bytes exceeds {MOST_BYTES}")
        rest = _exactly(self._socket, length + _MAC_BYTES)
        content, mac = rest[:length], rest[length:]
        if not hmac.compare_digest(mac, _frame_mac(self._receiving, self._received, content)):
            raise ChannelError("a frame is not from the holder of the token")
        self._received += 1
        return content

    # As a stream of bytes, for a relay.
    def recv(self, most: int, /) -> bytes:
        del most
        return self.receive()

    def sendall(self, piece: bytes, /) -> None:
        for at in range(0, len(piece), MOST_BYTES):
            self.send(piece[at : at + MOST_BYTES])

    def close(self) -> None:
        with suppress(OSError):
            self._socket.shutdown(socket.SHUT_RDWR)
        self._socket.close()


def connect(address: tuple[str, int], token: str, purpose: str) -> Channel:
    """Connect to a host that lends VFs; raise ChannelError or OSError."""
    connection = socket.create_connection(address, timeout=_GREETING_S)
    try:
        greeting = _exactly(connection, len(_VERSION) + _NONCE_BYTES)
        if greeting[: len(_VERSION)] != _VERSION:
            raise ChannelError("no hardware-test of this version listens there")
        theirs, ours = greeting[len(_VERSION) :], secrets.token_bytes(_NONCE_BYTES)
        padded = purpose.encode().ljust(PURPOSE_BYTES)
        said = theirs + ours + padded
        connection.sendall(ours + padded + _mac(token, b"connects", said))
        if not hmac.compare_digest(_exactly(connection, _MAC_BYTES), _mac(token, b"listens", said)):
            raise ChannelError("the other side does not have the token")
        return Channel(connection, _mac(token, b"to listener", said), _mac(token, b"to connector", said))
    except BaseException:
        connection.close()
        raise


def admit(connection: socket.socket, token: str) -> tuple[str, Channel]:
    """Return the purpose of a connection and its channel; raise ChannelError or OSError for one without the token."""
    deadline = time.monotonic() + _GREETING_S
    connection.settimeout(_GREETING_S)
    try:
        ours = secrets.token_bytes(_NONCE_BYTES)
        connection.sendall(_VERSION + ours)
        answer = _exactly(connection, _NONCE_BYTES + PURPOSE_BYTES + _MAC_BYTES, deadline)
        theirs, proof = answer[:-_MAC_BYTES], answer[-_MAC_BYTES:]
        said = ours + theirs
        if not hmac.compare_digest(proof, _mac(token, b"connects", said)):
            raise ChannelError("a connection without the token")
        connection.sendall(_mac(token, b"listens", said))
        purpose = theirs[_NONCE_BYTES:].decode().strip()
        return purpose, Channel(connection, _mac(token, b"to connector", said), _mac(token, b"to listener", said))
    except BaseException:
        connection.close()
        raise


def _mac(token: str, label: bytes, content: bytes) -> bytes:
    return hmac.digest(token.encode(), label + b"\0" + content, "sha256")


def _frame_mac(key: bytes, number: int, content: bytes) -> bytes:
    return hmac.digest(key, struct.pack(">Q", number) + content, "sha256")


def _exactly(connection: socket.socket, count: int, deadline: float | None = None) -> bytes:
    """Return so many bytes, none if the other side has closed before the first; raise ChannelError in between.

    A side that sends byte by byte is given up at the deadline.
    """
    data = b""
    while len(data) < count:
        if deadline is not None and time.monotonic() > deadline:
            raise ChannelError("the other side is too slow")
        piece = connection.recv(count - len(data))
        if not piece:
            if not data:
                return b""
            raise ChannelError("the other side closed the connection within a frame")
        data += piece
    return data

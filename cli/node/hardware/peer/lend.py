"""The host that lends VFs to a test on another host: it attaches them, and runs perftest's servers on them.

The other host says which: requests are JSON in frames, and each has one answer.

    {"do":"lend","count":2}                          {"ends":2}
    {"do":"listen","end":0,"options":["-s","65536"]} {}
    {"do":"stop","end":0}                            {}
    an error                                         {"error":"…"}

It can choose nothing else: the program is perftest's, and its options are those of `plan.stream`, within bounds.
"""

import json
import socket
import threading
import time
from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager, ExitStack, suppress
from typing import Any

from cli.node.errors import NodeError
from cli.node.hardware.peer.channel import Channel, admit
from cli.node.hardware.plan.stream import check_options
from cli.node.hardware.traffic.perftest import Receiver
from cli.node.hardware.traffic.relay import Connection, pump
from mooring.parsing import decode

CONTROL, RELAY = "control", "relay "
MOST_ENDS = 2
# So many connections without the token end it.
_MOST_STRANGERS = 10
# A timeout of 0 would mean not to wait at all.
_LEAST_S = 0.001

# Attaches as many VFs as are asked for, or fewer.
Lender = Callable[[int], AbstractContextManager[Sequence[Receiver]]]


def serve(listener: socket.socket, token: str, wait_s: float, lender: Lender) -> None:
    """Wait for the other host, and do what it asks until it closes; raise NodeError.

    Only one control connection is admitted, so that the token is of no use afterwards.
    """
    control = _await_control(listener, token, wait_s)
    session = _Session(lender)
    listener.settimeout(None)
    relays = threading.Thread(target=_accept_relays, args=(listener, token, session), name="relays")
    relays.start()
    try:
        session.run(control)
    finally:
        control.close()
        session.close()
        with suppress(OSError):
            # Wakes the thread that accepts.
            listener.shutdown(socket.SHUT_RDWR)
        relays.join()


def _await_control(listener: socket.socket, token: str, wait_s: float) -> Channel:
    deadline = time.monotonic() + wait_s
    for _ in range(_MOST_STRANGERS):
        try:
            listener.settimeout(max(deadline - time.monotonic(), _LEAST_S))
            connection, _peer = listener.accept()
        except TimeoutError as error:
            raise NodeError(f"no other host came within {wait_s:.0f} s") from error
        with suppress(OSError, UnicodeDecodeError):
            purpose, channel = admit(connection, token)
            if purpose == CONTROL:
                return channel
            channel.close()
    raise NodeError(f"{_MOST_STRANGERS} connections came without the token: stopped")


def _accept_relays(listener: socket.socket, token: str, session: "_Session") -> None:
    """Pass connections to perftest's servers on, until the listener is closed."""
    strangers = 0
    while strangers < _MOST_STRANGERS:
        try:
            connection, _ = listener.accept()
        except OSError:
            return
        try:
            purpose, channel = admit(connection, token)
        except (OSError, UnicodeDecodeError):
            strangers += 1
            continue
        session.relay(purpose, channel)


class _Session:
    """What one control connection asks; relays come from another thread."""

    def __init__(self, lender: Lender) -> None:
        self._lender = lender
        self._lent = ExitStack()
        self._ends: Sequence[Receiver] = ()
        self._servers: dict[int, ExitStack] = {}
        self._relayed: list[Connection] = []
        self._threads: list[threading.Thread] = []

    def run(self, control: Channel) -> None:
        with self._lent:
            while request := control.receive():
                control.send(json.dumps(self._answer(request)).encode())

    def _answer(self, request: bytes) -> dict[str, Any]:
        try:
            document = decode(request)
            match document:
                case {"do": "lend", "count": int(count)} if not self._ends:
                    self._ends = self._lent.enter_context(self._lender(min(max(count, 1), MOST_ENDS)))
                    return {"ends": len(self._ends)}
                case {"do": "listen", "end": int(number), "options": list(words)} if number not in self._servers:
                    server = ExitStack()
                    server.enter_context(self._end(number).listening(check_options(words)))
                    self._servers[number] = server
                    self._lent.push(server)
                    return {}
                case {"do": "stop", "end": int(number)} if number in self._servers:
                    self._servers.pop(number).close()
                    return {}
        except (NodeError, OSError, ValueError) as error:
            return {"error": str(error)}
        return {"error": f"the request {request[:100]!r} is not known here"}

    def _end(self, number: int) -> Receiver:
        if not 0 <= number < len(self._ends):
            raise ValueError(f"end {number} is none of {len(self._ends)}")
        return self._ends[number]

    def relay(self, purpose: str, channel: Channel) -> None:
        """Pass a connection on to the server of an end."""
        try:
            number = purpose.removeprefix(RELAY)
            inner = self._end(int(number) if number.isdigit() else -1).connect()
        except (OSError, ValueError):
            channel.close()
            return
        self._relayed += [channel, inner]
        for pair in ((channel, inner), (inner, channel)):
            thread = threading.Thread(target=pump, args=pair, name=purpose)
            thread.start()
            self._threads.append(thread)

    def close(self) -> None:
        for connection in self._relayed:
            connection.close()
        for thread in self._threads:
            thread.join()

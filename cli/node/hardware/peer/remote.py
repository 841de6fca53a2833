"""The host that measures: VFs of another host as receivers of its traffic."""

import json
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

from cli.node.hardware.commands import CommandError
from cli.node.hardware.peer.channel import Channel, connect
from cli.node.hardware.peer.lend import CONTROL, RELAY
from cli.node.hardware.traffic.perftest import Receiver
from cli.node.hardware.traffic.relay import Connection
from mooring.parsing import decode


@dataclass(frozen=True, slots=True)
class Peer:
    """A host that lends VFs: where it listens, and its token."""

    address: tuple[str, int]
    token: str

    @contextmanager
    def receivers(self, count: int) -> Iterator[Sequence[Receiver]]:
        """Borrow VFs until the end of the context; raise ChannelError, CommandError or OSError."""
        control = connect(self.address, self.token, CONTROL)
        try:
            lent = _ask(control, {"do": "lend", "count": count})["ends"]
            yield [_RemoteReceiver(self, control, number) for number in range(int(lent))]
        finally:
            control.close()


@dataclass(frozen=True, slots=True)
class _RemoteReceiver:
    """One VF of the other host."""

    peer: Peer
    control: Channel
    number: int

    @contextmanager
    def listening(self, options: Sequence[str]) -> Iterator[None]:
        _ask(self.control, {"do": "listen", "end": self.number, "options": list(options)})
        try:
            yield
        finally:
            _ask(self.control, {"do": "stop", "end": self.number})

    def connect(self) -> Connection:
        return connect(self.peer.address, self.peer.token, f"{RELAY}{self.number}")


def _ask(control: Channel, request: dict[str, Any]) -> dict[str, Any]:
    control.send(json.dumps(request).encode())
    said = control.receive() or b'{"error":"it closed the connection"}'
    try:
        answer: dict[str, Any] = dict(decode(said))
    except (TypeError, ValueError) as wrong:
        raise CommandError(f"the other host: answer {said[:100]!r} is not a JSON object: {wrong}") from wrong
    if "error" in answer:
        raise CommandError(f"the other host: {answer['error']}")
    return answer

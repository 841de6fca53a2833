"""A test between two hosts, on one: the lending side in a thread, and its VFs' pods in namespaces of their own."""

import re
import socket
import threading
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field

import pytest

from cli.node.errors import NodeError
from cli.node.hardware.commands import CommandError
from cli.node.hardware.peer import channel
from cli.node.hardware.peer.address import how_to_reach, listening, peer_address
from cli.node.hardware.peer.channel import Channel, ChannelError, admit, connect, new_token
from cli.node.hardware.peer.lend import CONTROL, serve
from cli.node.hardware.peer.remote import Peer
from cli.node.hardware.plan.stream import check_options, stream_for
from cli.node.hardware.traffic import perftest
from cli.node.hardware.traffic.endpoints import Endpoint
from cli.node.hardware.traffic.perftest import LocalReceiver, Pair, Receiver
from mooring.program.config import ConfigError

STREAM = stream_for(400_000, 1)


@dataclass(slots=True)
class Host:
    """The lending host: what it lends, and how its session ended."""

    ends: Sequence[Endpoint] = ()
    token: str = field(default_factory=new_token)
    lent: list[str] = field(default_factory=list)
    failure: NodeError | None = None
    address: tuple[str, int] = ("127.0.0.1", 0)
    wait_s: float = 60.0
    thread: threading.Thread | None = None
    refusal: str = ""

    @contextmanager
    def lend(self, count: int) -> Iterator[Sequence[Receiver]]:
        if self.refusal:
            raise CommandError(self.refusal)
        self.lent.append(f"lent {count}")
        yield [LocalReceiver(end) for end in self.ends[:count]]
        self.lent.append("back")

    def run(self, listener: socket.socket) -> None:
        try:
            with listener:
                serve(listener, self.token, self.wait_s, self.lend)
        except NodeError as failed:
            self.failure = failed

    def start(self) -> None:
        listener = listening("127.0.0.1:0")
        self.address = listener.getsockname()[:2]
        self.thread = threading.Thread(target=self.run, args=(listener,))
        self.thread.start()

    def end(self) -> NodeError | None:
        assert self.thread is not None
        self.thread.join()
        return self.failure


@pytest.mark.root
def test_vfs_of_another_host_receive_and_are_given_back(ends: list[Endpoint], rate: object) -> None:
    """Two pairs at once, timed, counted and observed; afterwards nobody listens, so the token is of no use."""
    host = Host(ends[2:])
    host.start()
    with Peer(host.address, host.token).receivers(2) as receivers:
        pairs = [Pair(end, receiver) for end, receiver in zip(ends, receivers, strict=False)]
        assert len(pairs) == 2
        measured = perftest.measure(pairs, STREAM)
        assert list(measured.mbps) == pytest.approx([97_000, 97_000], abs=1)
        assert perftest.send(pairs[0], STREAM, 10) == 10 * STREAM.qps * STREAM.message_bytes
        assert len(perftest.observe(pairs[1], STREAM, [(lambda: None, 2)])[0]) == 2
    assert host.end() is None
    assert host.lent == ["lent 2", "back"]
    with pytest.raises(OSError, match="refused"):
        connect(host.address, host.token, CONTROL)


def test_without_the_token_nothing_is_lent() -> None:
    """Neither side goes on; ten such connections end it."""
    host = Host()
    host.start()
    for _ in range(10):
        with pytest.raises((ChannelError, ConnectionError)), Peer(host.address, "0" * 32).receivers(2):
            pass
    assert str(host.end()) == "10 connections came without the token: stopped"
    assert host.lent == []


def test_it_does_not_wait_for_ever() -> None:
    """The person who was to type the command has gone."""
    host = Host(wait_s=0.01)
    host.start()
    assert str(host.end()) == "no other host came within 0 s"


def test_a_connection_that_sends_byte_by_byte_is_given_up(monkeypatch: pytest.MonkeyPatch) -> None:
    """It would hold the only greeting for minutes."""
    monkeypatch.setattr(channel, "_GREETING_S", 0.2)
    ours, theirs = socket.socketpair()
    with ours, theirs:
        ended = threading.Event()

        def drip() -> None:
            while not ended.wait(0.01):
                try:
                    theirs.sendall(b"x")
                except OSError:
                    return

        with ThreadOf(drip):
            with pytest.raises(ChannelError, match="too slow"):
                admit(ours, new_token())
            ended.set()


def test_a_listener_without_the_token_is_found_out() -> None:
    """It could only repeat what it hears."""
    with socket.create_server(("127.0.0.1", 0)) as listener:
        address = listener.getsockname()[:2]
        stranger = ThreadOf(lambda: admit(listener.accept()[0], new_token()))
        with stranger, pytest.raises(ChannelError, match="does not have the token"):
            connect(address, new_token(), CONTROL)

        def greet_as_ssh() -> None:
            with listener.accept()[0] as connection:
                connection.sendall(b"SSH-2.0-OpenSSH_9.2p1 Debian" + b" " * 60)

        with ThreadOf(greet_as_ssh), pytest.raises(ChannelError, match="no hardware-test of this version"):
            connect(address, new_token(), CONTROL)


class ThreadOf:
    """Run something that may fail in a thread, and wait for its end."""

    def __init__(self, work: Callable[[], object]) -> None:
        self._work = work
        self._thread = threading.Thread(target=self._run)

    def _run(self) -> None:
        try:
            self._work()
        except OSError:
            return

    def __enter__(self) -> None:
        self._thread.start()

    def __exit__(self, *_: object) -> None:
        self._thread.join()


@pytest.fixture
def wire() -> Iterator[tuple[socket.socket, socket.socket, Channel, Channel]]:
    """Make a channel from one end to the other, and the raw sockets in between."""
    first, second = socket.socketpair()
    key, back = b"k" * 32, b"b" * 32
    yield first, second, Channel(first, key, back), Channel(second, back, key)
    first.close()
    second.close()


def test_a_frame_that_is_changed_repeated_or_moved_is_refused(
    wire: tuple[socket.socket, socket.socket, Channel, Channel],
) -> None:
    """Each has a number and a direction."""
    first, second, sender, receiver = wire
    sender.send(b"one")
    frame = second.recv(1000)
    first.sendall(frame + frame)
    assert receiver.receive() == b"one"
    with pytest.raises(ChannelError, match="holder of the token"):
        receiver.receive()
    first.sendall(frame.replace(b"one", b"two"))
    with pytest.raises(ChannelError, match="holder of the token"):
        receiver.receive()
    second.sendall(frame)
    with pytest.raises(ChannelError, match="holder of the token"):
        sender.receive()
    first.sendall(b"\xff\xff\xff\xff")
    with pytest.raises(ChannelError, match="exceeds 65536"):
        receiver.receive()


@pytest.mark.parametrize("answer", [b"{", b"1", b"[" * 60_000])
def test_an_answer_that_is_not_an_object_is_reported(answer: bytes) -> None:
    """The message has its first 100 bytes."""
    with socket.create_server(("127.0.0.1", 0)) as listener:
        token = new_token()

        def answer_once() -> None:
            _, control = admit(listener.accept()[0], token)
            control.receive()
            control.send(answer)
            control.close()

        address = listener.getsockname()[:2]
        why = rf"the other host: answer {re.escape(repr(answer[:100]))} is not a JSON object"
        with ThreadOf(answer_once), pytest.raises(CommandError, match=why), Peer(address, token).receivers(1):
            pass


def test_the_other_host_can_run_nothing_but_a_stream() -> None:
    """Options that write files or name devices are refused, and so are numbers that would fill the memory."""
    for stream in (STREAM.options, STREAM.count_options(100), STREAM.endless_options):
        assert check_options(list(stream)) == stream
    for words in (["--out_json_file", "/etc/passwd"], ["-d", "mlx5_0"], ["-s", "2000000"], ["-q"], ["-D", "-1"], [7]):
        with pytest.raises(ValueError, match="is none of a stream"):
            check_options(words)


def test_what_is_not_known_is_answered_with_an_error() -> None:
    """The session goes on."""
    host = Host()
    host.start()
    control = connect(host.address, host.token, CONTROL)
    for request in (b"{", b'{"do":"shell"}', b'{"do":"listen","end":3,"options":[]}', b'{"do":"stop","end":0}'):
        control.send(request)
        assert b'"error"' in control.receive()
    control.close()
    assert host.end() is None


def test_a_host_that_lends_nothing_is_an_error_of_the_other_one() -> None:
    """Its reason is shown."""
    host = Host(refusal="no VFs")
    host.start()
    with pytest.raises(CommandError, match="the other host: no VFs"), Peer(host.address, host.token).receivers(2):
        pass
    assert host.end() is None


def test_a_person_gets_the_command_for_the_other_host() -> None:
    """With the address that was given, or each of this host's."""
    with listening("127.0.0.1:0") as listener:
        port = listener.getsockname()[1]
        address, token, command = how_to_reach(listener, "ab12")
        assert (address, token) == (f"address 127.0.0.1:{port}", "token   ab12")
        assert command.endswith(f"hardware-test --vfs --traffic --peer 127.0.0.1:{port} --token ab12")
    with listening(":0") as listener:
        assert f":{listener.getsockname()[1]}" in next(iter(how_to_reach(listener, "ab12")))
    assert peer_address("[fd00::5]:4000") == ("fd00::5", 4000)
    for wrong in ("10.0.0.5", ":4000", "10.0.0.5:0"):
        with pytest.raises(ConfigError, match="is not"):
            peer_address(wrong)

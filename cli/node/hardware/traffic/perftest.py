"""Run perftest between pods: all servers first, then all clients at once, and what each of them reports."""

import re
import subprocess
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager, ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Protocol

from cli.node.hardware.commands import CommandError
from cli.node.hardware.plan.stream import PORT, PROGRAM, Stream, messages_in, overlap, result_of
from cli.node.hardware.traffic.endpoints import Endpoint
from cli.node.hardware.traffic.relay import LOOPBACK, Connection, Relay, connect_in

_START_S, _MORE_S = 60.0, 60.0
_POLL_S = 0.02
_SHOWN_CHARS = 300
# perftest prints GIDs as decimal numbers.
_ADDRESS = re.compile(r"\s*(?:GID|local address|remote address)\b", re.ASCII)


class Receiver(Protocol):
    """The side of a pair that is sent to: a pod of this host, or of another one."""

    def listening(self, options: Sequence[str]) -> AbstractContextManager[None]:
        """Run perftest's server with options, from when it listens until the context ends; raise CommandError."""

    def connect(self) -> Connection:
        """Connect to the server that listens; raise OSError."""


@dataclass(frozen=True, slots=True)
class Pair:
    """A pod that sends, and where it sends to."""

    sender: Endpoint
    receiver: Receiver


@dataclass(frozen=True, slots=True)
class Measurement:
    """The rate of each pair in Mb/s, and the share of the measured time in which all of them were sending."""

    mbps: tuple[float, ...]
    overlap: float


@dataclass(frozen=True, slots=True)
class LocalReceiver:
    """A pod of this host."""

    end: Endpoint

    @contextmanager
    def listening(self, options: Sequence[str]) -> Iterator[None]:
        with _Program((*self.end.pod.inside, PROGRAM, *options, *self.end.device_options, "-p", str(PORT))) as server:
            server.await_listening()
            yield

    def connect(self) -> Connection:
        return connect_in(self.end.pod.netns, PORT)


def measure(pairs: Sequence[Pair], stream: Stream) -> Measurement:
    """Return what pairs move that send at the same time; raise CommandError."""
    with _clients(pairs, stream.options) as clients:
        limit_s = stream.duration_s + _MORE_S
        outputs = _all_outputs(clients, limit_s)
    rates = tuple(stream.mbps(client.messages(output), stream.measured_s) for client, output, _ in outputs)
    return Measurement(rates, overlap(stream, [end for _, _, end in outputs]))


def send(pair: Pair, stream: Stream, messages: int) -> int:
    """Send a number of messages on each queue pair; return how many bytes of data those are; raise CommandError."""
    with _clients([pair], stream.count_options(messages)) as (client,):
        client.messages(client.output(_MORE_S))
    return messages * stream.qps * stream.message_bytes


def observe(pair: Pair, stream: Stream, steps: Sequence[tuple[Callable[[], object], int]]) -> list[list[float]]:
    """Do something and observe the traffic for some seconds, step by step, while it flows; return Mb/s by second.

    The first step is done before the traffic begins. perftest's own clock is not read: each of its lines counts from
    the one before.
    """
    (first, _), *_ = steps
    first()
    found: list[list[float]] = []
    limit_s = _MORE_S + 3 * sum(seconds for _, seconds in steps)
    with _clients([pair], stream.endless_options) as (client,):
        stop = threading.Timer(limit_s, client.kill)
        stop.start()
        try:
            reports = client.reports(stream)
            for number, (act, seconds) in enumerate(steps):
                if number:
                    act()
                found.append([next(reports) for _ in range(seconds)])
        finally:
            stop.cancel()
    return found


@contextmanager
def _clients(pairs: Sequence[Pair], options: Sequence[str]) -> Iterator[list["_Program"]]:
    """Start all servers and relays, then all clients."""
    with ExitStack() as stack:
        for pair in pairs:
            stack.enter_context(pair.receiver.listening(options))
            stack.enter_context(Relay(pair.sender.pod.netns, PORT, pair.receiver.connect))
        commands = [_client(pair.sender, options) for pair in pairs]
        yield [stack.enter_context(_Program(command)) for command in commands]


def _client(sender: Endpoint, options: Sequence[str]) -> tuple[str, ...]:
    # Without stdbuf perftest's reports stay in its buffer.
    program = (*sender.pod.inside, "stdbuf", "-oL", PROGRAM)
    return (*program, *options, *sender.device_options, "-p", str(PORT), LOOPBACK)


def _all_outputs(clients: Sequence["_Program"], limit_s: float) -> list[tuple["_Program", str, float]]:
    """Return what each client printed and when it ended."""
    found: dict[int, tuple[_Program, str, float] | CommandError] = {}

    def wait(number: int, client: "_Program") -> None:
        try:
            found[number] = (client, client.output(limit_s), time.monotonic())
        except CommandError as error:
            found[number] = error

    threads = [threading.Thread(target=wait, args=each) for each in enumerate(clients)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    outputs = []
    for number in range(len(clients)):
        each = found[number]
        if isinstance(each, CommandError):
            raise each
        outputs.append(each)
    return outputs


class _Program:
    """A process that is killed at the end of the context."""

    def __init__(self, command: Sequence[str]) -> None:
        try:
            self._process = subprocess.Popen(
                command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, process_group=0
            )
        except OSError as error:
            raise CommandError(f"{command[0]}: {error}") from error

    def __enter__(self) -> "_Program":
        return self

    def __exit__(self, *_: object) -> None:
        self.kill()
        self._process.wait()
        if self._process.stdout is not None:
            self._process.stdout.close()

    def kill(self) -> None:
        self._process.kill()

    def output(self, limit_s: float) -> str:
        """Return everything that it prints; raise CommandError if it does not end in time."""
        try:
            return self._process.communicate(timeout=limit_s)[0]
        except subprocess.TimeoutExpired as error:
            raise CommandError(f"{PROGRAM} did not end within {limit_s:.0f} s") from error

    def messages(self, output: str) -> int:
        """Return how many messages it counted; raise CommandError if it failed."""
        found = result_of(output)
        if found is None or self._process.returncode != 0:
            raise CommandError(f"{PROGRAM} measured nothing: {_last_words(output)!r}")
        return found

    def reports(self, stream: Stream) -> Iterator[float]:
        """Yield the rate of each of its lines in Mb/s; raise CommandError when it ends."""
        assert self._process.stdout is not None, "it is a pipe"
        output, before = "", None
        for line in self._process.stdout:
            now, messages = time.monotonic(), messages_in(line)
            output += line
            if messages is not None and before is not None:
                yield stream.mbps(messages, now - before)
            # The head of the table is printed when the traffic begins.
            if messages is not None or "#bytes" in line:
                before = now
        raise CommandError(f"{PROGRAM} stopped: {_last_words(output)!r}")

    def await_listening(self) -> None:
        """Wait until its namespace has a listening socket (state 0A) at perftest's port."""
        deadline = time.monotonic() + _START_S
        listening = re.compile(rf":{PORT:04X} [0-9A-F:]+ 0A ")
        folder = Path(f"/proc/{self._process.pid}/net")
        while not any(listening.search(_text(folder / kind)) for kind in ("tcp", "tcp6")):
            if self._process.poll() is not None or time.monotonic() > deadline:
                self.kill()
                raise CommandError(f"{PROGRAM} does not listen: {_last_words(self._process.communicate()[0])!r}")
            time.sleep(_POLL_S)


def _text(path: Path) -> str:
    try:
        return path.read_text()
    except OSError:
        return ""


def _last_words(output: str) -> str:
    """Return the end of an output, without the lines that only separate, and without those with addresses."""
    lines = [line.strip() for line in output.splitlines() if line.strip(" -*") and not _ADDRESS.match(line)]
    return "; ".join(lines)[-_SHOWN_CHARS:]

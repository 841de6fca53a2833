"""Writes by connections of our own: every way an HTTP/1.1 answer may come, or not, on both event loops, with TLS."""

import asyncio
import socket
import ssl
from collections.abc import Awaitable, Callable
from contextlib import ExitStack
from pathlib import Path

import pytest
import uvloop
from yarl import URL

from mooring.kube import connections as module
from mooring.kube.connections import Answer, Connections
from tests.support.listener import Serve, listening
from tests.support.polling import until

OK = b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nok"
REQUEST = b"POST /x HTTP/1.1\r\nHost: h\r\nContent-Length: 2\r\n\r\n{}"
Use = Callable[[Connections], Awaitable[None]]


@pytest.fixture(scope="module")
def tls(certificate: tuple[Path, Path]) -> tuple[ssl.SSLContext, ssl.SSLContext]:
    """Make a server's context for 127.0.0.1, and a client's that trusts it."""
    theirs = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH)
    theirs.load_cert_chain(*certificate)
    return theirs, ssl.create_default_context(cafile=str(certificate[0]))


Contexts = tuple[ssl.SSLContext, ssl.SSLContext]


@pytest.fixture(params=["asyncio plain", "asyncio tls", "uvloop plain", "uvloop tls"])
def served(request: pytest.FixtureRequest, tls: Contexts) -> Callable[[Serve, Use], int]:
    """Let ``use`` talk to what ``serve`` answers; give how many connections it took."""
    loop, way = request.param.split()
    theirs, ours = tls if way == "tls" else (None, None)

    async def meet(serve: Serve, use: Use) -> int:
        accepted = 0

        async def accept(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
            nonlocal accepted
            accepted += 1
            await serve(reader, writer)

        async with asyncio.timeout(90), listening(accept, theirs) as port:
            connections = Connections(URL(f"{'https' if ours else 'http'}://127.0.0.1:{port}"), ours, None)
            await use(connections)
            connections.close()
        return accepted

    def run(serve: Serve, use: Use) -> int:
        with asyncio.Runner(loop_factory=uvloop.new_event_loop if loop == "uvloop" else None) as runner:
            return runner.run(meet(serve, use))

    return run


def always(*pieces: bytes, ends: bool = False) -> Serve:
    """Answer each request with these pieces, one by one; then close where ``ends``."""

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        while True:
            await reader.readexactly(len(REQUEST))
            for piece in pieces:
                writer.write(piece)
                await writer.drain()
                await asyncio.sleep(0)
            if ends:
                return

    return serve


class Counted:
    """Answers each request, or none; it counts the requests of each connection."""

    def __init__(self) -> None:
        self.answers = True
        self.requests: list[int] = []

    async def serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        index = len(self.requests)
        self.requests.append(0)
        while True:
            await reader.readexactly(len(REQUEST))
            self.requests[index] += 1
            if self.answers:
                writer.write(OK)


async def ask(connections: Connections, timeout_s: float = 10.0) -> Answer:
    return await connections.ask(REQUEST, timeout_s, lambda: None)


async def until_none_is_open(connections: Connections) -> None:
    """Wait until what the server did to the connections has come."""
    await until(lambda: not any(one.is_open for one in connections._free))


LARGE = b"x" * 3_000_000


@pytest.mark.parametrize(
    ("pieces", "answer"),
    [
        ([OK], Answer(200, b"ok", "")),
        ([bytes([one]) for one in OK], Answer(200, b"ok", "")),
        (
            [b"HTTP/1.1 201 Created\r\nTransfer-Encoding: chunked\r\n\r\n1\r\no\r\n1\r\nk\r\n0\r\n\r\n"],
            (201, b"ok", ""),
        ),
        ([b"HTTP/1.1 100 Continue\r\n\r\nHTTP/1.1 103 Early Hints\r\nRetry-After: 9\r\n\r\n", OK], (200, b"ok", "")),
        ([b"HTTP/1.1 429 \r\nretry-AFTER: 7\r\nContent-Length: 0\r\n\r\n"], (429, b"", "7")),
        ([b"HTTP/1.1 204 No Content\r\n\r\n"], (204, b"", "")),
        ([b"HTTP/1.1 200 OK\r\nContent-Length: 3000000\r\n\r\n", LARGE], (200, LARGE, "")),
    ],
    ids=["whole", "byte by byte", "chunked", "informational", "retry after", "no content", "large"],
)
def test_an_answer_is_read_whole_however_it_comes(
    pieces: list[bytes], answer: Answer, served: Callable[[Serve, Use], int]
) -> None:
    """Twice on one connection: what the first left behind would be seen in the second."""

    async def use(connections: Connections) -> None:
        for _ in range(2):
            assert await ask(connections) == answer

    assert served(always(*pieces), use) == 1


@pytest.mark.parametrize(
    "answer",
    [
        b"",
        b"HTTP/1.1 200 OK\r\nContent-Le",
        OK[:-1],
        b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n5\r\nok",
        b"HTTP/1.1 200 OK\r\n\r\nas long as the connection",
        b"SSH-2.0-OpenSSH_9.2\r\n",
        b"HTTP/1.1 200 OK\r\nContent-Length: nine\r\n\r\n",
        b"HTTP/1.1 101 Switching Protocols\r\nConnection: upgrade\r\nUpgrade: websocket\r\n\r\n",
    ],
)
def test_what_is_not_a_whole_answer_is_an_error_and_ends_the_connection(
    answer: bytes, served: Callable[[Serve, Use], int]
) -> None:
    """The next caller gets a connection of its own."""

    async def use(connections: Connections) -> None:
        for _ in range(2):
            with pytest.raises(OSError, match=r"ended before its answer|is not HTTP/1\.1"):
                await ask(connections)

    assert served(always(answer, ends=True), use) == 2


@pytest.mark.parametrize("unasked", [b"H", OK[:20], OK, b"\r\n" + OK[:1]])
@pytest.mark.parametrize("apart", [False, True])
def test_what_comes_unasked_is_never_the_next_requests(
    unasked: bytes, apart: bool, served: Callable[[Serve, Use], int]
) -> None:
    """Neither is its beginning, such as of a 408 that a proxy sends before it ends an idle connection."""

    async def use(connections: Connections) -> None:
        for _ in range(2):
            assert await ask(connections) == Answer(200, b"ok", "")
            await until_none_is_open(connections)

    assert served(always(OK, unasked) if apart else always(OK + unasked), use) == 2


def test_an_answer_that_does_not_come_ends_the_wait_and_the_connection(served: Callable[[Serve, Use], int]) -> None:
    """The wait ends by time, or when a caller cancels the request: the late answer is dropped."""
    server = Counted()

    async def use(connections: Connections) -> None:
        server.answers = False
        # On a busy machine the time may be over before the server has the request.
        while not any(server.requests):
            with pytest.raises(TimeoutError):
                await ask(connections, 0.1)
        count = sum(server.requests)
        task = asyncio.create_task(ask(connections))
        await until(lambda: sum(server.requests) > count)
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task
        server.answers = True
        assert await ask(connections) == Answer(200, b"ok", "")

    served(server.serve, use)
    assert max(server.requests) == 1


def test_a_connection_that_ended_while_nobody_used_it_is_not_tried(served: Callable[[Serve, Use], int]) -> None:
    """The request would be lost, and whether it was carried out unknown."""

    async def use(connections: Connections) -> None:
        for _ in range(3):
            assert await ask(connections) == Answer(200, b"ok", "")
            await until_none_is_open(connections)

    assert served(always(OK, ends=True), use) == 3


def test_a_connection_that_was_idle_for_long_is_not_tried(
    served: Callable[[Serve, Use], int], monkeypatch: pytest.MonkeyPatch
) -> None:
    """The server may be about to end it."""

    async def use(connections: Connections) -> None:
        for idle_s in (module._IDLE_S, module._IDLE_S, 0.0):
            assert await ask(connections) == Answer(200, b"ok", "")
            monkeypatch.setattr(module, "_IDLE_S", idle_s)
            await asyncio.sleep(0.01)
        assert await ask(connections) == Answer(200, b"ok", "")

    assert served(always(OK), use) == 2


def test_a_request_that_was_answered_in_time_has_no_limit_left(served: Callable[[Serve, Use], int]) -> None:
    """Its connection may serve the next request, for as long as that takes."""
    server = Counted()

    async def use(connections: Connections) -> None:
        limit_s = 0.1
        while True:
            try:
                assert await ask(connections, limit_s) == Answer(200, b"ok", "")
                break
            except TimeoutError:
                # A busy machine. The connection is gone with the request.
                limit_s *= 4
        # A timer that was set before runs out before this one: a loop's timers end in their order.
        await asyncio.sleep(limit_s)
        assert await ask(connections) == Answer(200, b"ok", "")

    served(server.serve, use)
    assert max(server.requests) == 2


def test_requests_at_once_have_a_connection_each_and_keep_their_answers(served: Callable[[Serve, Use], int]) -> None:
    """The server answers once all are there, so one that waits for another connection fails; later ones use these."""
    arrived: set[bytes] = set()

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        while True:
            path = (await reader.readuntil(b"\r\n\r\n")).split()[1]
            arrived.add(path)
            await until(lambda: len(arrived) >= 20)
            writer.write(b"HTTP/1.1 200 OK\r\nContent-Length: 4\r\n\r\n" + path[-4:])

    async def one(connections: Connections, number: int) -> None:
        for turn in range(10):
            path = b"/%04d" % (number * 10 + turn)
            answer = await connections.ask(b"POST " + path + b" HTTP/1.1\r\nHost: h\r\n\r\n", 10.0, lambda: None)
            assert answer.body == path[1:]

    async def use(connections: Connections) -> None:
        await asyncio.gather(*(one(connections, number) for number in range(20)))

    assert served(serve, use) == 20


def test_a_short_burst_opens_few_connections(served: Callable[[Serve, Use], int]) -> None:
    """A request takes one that became free meanwhile: a handshake costs more than an answer."""

    async def use(connections: Connections) -> None:
        assert await asyncio.gather(*(ask(connections) for _ in range(200))) == [Answer(200, b"ok", "")] * 200

    assert served(always(OK), use) <= 100


def test_a_request_that_its_guard_refuses_is_not_sent_and_the_connection_is_kept(
    served: Callable[[Serve, Use], int],
) -> None:
    """The connection is kept, since nothing was written on it."""

    def refuse() -> None:
        raise PermissionError("not now")

    async def use(connections: Connections) -> None:
        with pytest.raises(PermissionError):
            await connections.ask(REQUEST, 10.0, refuse)
        assert await ask(connections) == Answer(200, b"ok", "")

    assert served(always(OK), use) == 1


async def test_an_address_that_does_not_answer_leaves_time_for_the_next() -> None:
    """A name with several addresses, the first of a server that is gone: its packets are dropped, not refused."""

    async def answer(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.readexactly(len(REQUEST))
        writer.write(OK)

    async def meet(deaf: socket.socket, port: int) -> None:
        addresses = [deaf.getsockname(), ("127.0.0.1", port)]

        async def known(*_: object, **__: object) -> list[tuple[object, ...]]:
            return [(socket.AF_INET, socket.SOCK_STREAM, socket.IPPROTO_TCP, "", one) for one in addresses]

        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(asyncio.get_running_loop(), "getaddrinfo", known)
            assert await ask(Connections(URL("http://api.example:6443"), None, None), 5.0) == Answer(200, b"ok", "")

    with socket.create_server(("127.0.0.1", 0), backlog=0) as deaf, ExitStack() as stack:
        for _ in range(3):
            # Until its queue is full: then it answers no new connection.
            waiting = stack.enter_context(socket.socket())
            waiting.setblocking(False)
            waiting.connect_ex(deaf.getsockname())
        async with listening(answer) as port:
            await meet(deaf, port)

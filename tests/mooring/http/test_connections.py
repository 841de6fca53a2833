"""What clients that nobody has authenticated can hold of a server, and that the others are answered meanwhile."""

import asyncio
import io
import select
import socket
import ssl
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import aiohttp
import pytest
from aiohttp import web

from devcluster.processes import free_ports
from mooring.http.application import listen, read_body
from mooring.http.connections import Limits
from mooring.program.config import ConfigError
from tests.support.certificates import Authority
from tests.support.polling import until

# Longer than any test may take: only what is tested ends a wait.
FOREVER_S = 3600.0
LARGEST = 4 << 20


def limits(
    connections: int = 8, head_s: float = FOREVER_S, request_s: float = FOREVER_S, idle_s: float = FOREVER_S
) -> Limits:
    return Limits(connections, head_s, request_s, idle_s, body_bytes=LARGEST)


@asynccontextmanager
async def serving(limits: Limits, tls: ssl.SSLContext | None = None) -> AsyncIterator[int]:
    """Serve /ok and /echo, which reads a body, and yield the port."""

    async def ok(_: web.Request) -> web.Response:
        return web.Response(text="ok")

    async def echo(request: web.Request) -> web.Response:
        return web.Response(text=str(len(await read_body(request, LARGEST))))

    (port,) = free_ports(1)
    async with listen(f"127.0.0.1:{port}", [web.get("/ok", ok), web.post("/echo", echo)], limits, tls):
        yield port


class Client:
    """A client that sends what it is told, and sees when it is closed."""

    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.reader = reader
        self.writer = writer

    async def send(self, text: str) -> None:
        self.writer.write(text.encode())
        await self.writer.drain()

    async def closed(self) -> bool:
        """Wait until the server has closed the connection."""
        try:
            return await self.reader.read() is not None
        except ConnectionError:
            return True

    def is_open(self) -> bool:
        return not self.reader.at_eof() and self.reader.exception() is None


@asynccontextmanager
async def clients(port: int, count: int, address: str = "127.0.0.2") -> AsyncIterator[list[Client]]:
    """Connect so many times from an address of this machine."""
    opened = [Client(*await asyncio.open_connection("127.0.0.1", port, local_addr=(address, 0))) for _ in range(count)]
    try:
        yield opened
    finally:
        for client in opened:
            client.writer.transport.abort()


async def asked(port: int, path: str = "/ok") -> int:
    """Ask over a new connection, as a kubelet's probe does."""
    async with aiohttp.ClientSession() as session, session.get(f"http://127.0.0.1:{port}{path}") as answer:
        return answer.status


@pytest.mark.parametrize(
    "begun", ["", "GET /ok HTTP/1.1\r\nHost: x\r\n", "POST /echo HTTP/1.1\r\nContent-Length: 9\r\n\r\n"]
)
async def test_a_newcomer_is_answered_when_somebody_holds_every_connection(begun: str) -> None:
    """Silent ones, headers and bodies without an end: the one that has waited for the longest makes room."""
    async with serving(limits(8)) as port, clients(port, 8) as held:
        for client in held:
            await client.send(begun)
        assert await asked(port) == 200
        assert await held[0].closed()
        assert all(client.is_open() for client in held[1:])


async def test_a_peer_with_many_connections_costs_another_none() -> None:
    """Who has the most loses one, whichever is older, and whatever is asked there."""
    async with serving(limits(8)) as port, clients(port, 1, "127.0.0.3") as (quiet,), clients(port, 30) as many:
        assert await asked(port) == 200
        assert all([await client.closed() for client in many[:23]])
        await quiet.send("GET /ok HTTP/1.1\r\nHost: x\r\n\r\n")
        assert (await quiet.reader.readline()).startswith(b"HTTP/1.1 200")


async def test_what_is_being_answered_stays_where_others_only_wait() -> None:
    """Of one peer's connections, too, the waiting ones go first."""
    async with serving(limits(3)) as port, clients(port, 3) as (busy, *_):
        await busy.send("POST /echo HTTP/1.1\r\nHost: x\r\nExpect: 100-continue\r\nContent-Length: 2\r\n\r\n1")
        assert await busy.reader.readuntil(b"\r\n\r\n") == b"HTTP/1.1 100 Continue\r\n\r\n"
        async with clients(port, 6):
            assert await asked(port) == 200
            await busy.send("2")
            assert (await busy.reader.readline()).startswith(b"HTTP/1.1 200")


async def test_headers_that_take_too_long_end_the_connection() -> None:
    """However often a byte comes; the silence between two of them is not what counts."""
    async with serving(limits(head_s=0.2)) as port, clients(port, 2) as (silent, slow):

        async def drip() -> None:
            while True:
                await slow.send("x")
                await asyncio.sleep(0.01)

        dripping = asyncio.create_task(drip())
        assert await silent.closed()
        assert await slow.closed()
        dripping.cancel()
        await asyncio.wait([dripping])
        assert dripping.cancelled() or isinstance(dripping.exception(), ConnectionError)


async def test_a_body_that_takes_too_long_ends_the_connection() -> None:
    """Nothing is left of its request."""
    async with serving(limits(request_s=0.5)) as port, clients(port, 1) as (slow,):
        await slow.send("POST /echo HTTP/1.1\r\nHost: x\r\nContent-Length: 9\r\n\r\n1234")
        assert await slow.closed()
        assert await asked(port) == 200


async def test_a_connection_without_a_next_request_ends() -> None:
    """One with a next request within the time goes on."""
    async with serving(limits(idle_s=1.0)) as port, clients(port, 1) as (idle,):
        for _ in range(2):
            await idle.send("GET /ok HTTP/1.1\r\nHost: x\r\n\r\n")
            assert (await idle.reader.readline()).startswith(b"HTTP/1.1 200")
            await idle.reader.readuntil(b"\r\n\r\nok")
        assert await idle.closed()


async def test_an_answer_that_is_not_fetched_ends_the_connection() -> None:
    """The transfer of an answer is part of what follows a request."""
    size = 16 << 20

    async def large(_: web.Request) -> web.Response:
        return web.Response(body=bytes(size))

    (port,) = free_ports(1)
    async with listen(f"127.0.0.1:{port}", [web.get("/large", large)], limits(idle_s=0.2)):
        with socket.create_connection(("127.0.0.1", port)) as client:
            client.sendall(b"GET /large HTTP/1.1\r\nHost: x\r\n\r\n")
            # POLLHUP: the server has ended it; until then there is something to read, or nothing.
            poll = select.poll()
            poll.register(client, 0)
            await until(lambda: poll.poll(0))


async def test_bodies_are_bounded_together() -> None:
    """Who holds the most loses a connection, and somebody else's request is answered."""
    part = "x" * (LARGEST - 1)
    async with serving(limits()) as port, clients(port, 2) as greedy:
        for client in greedy:
            await client.send(f"POST /echo HTTP/1.1\r\nHost: x\r\nContent-Length: {LARGEST}\r\n\r\n")
        sent = [asyncio.create_task(client.send(part)) for client in greedy]
        done, _ = await asyncio.wait(
            [asyncio.create_task(client.closed()) for client in greedy], return_when="FIRST_COMPLETED"
        )
        assert len(done) == 1
        await asyncio.wait(sent)
        async with (
            aiohttp.ClientSession() as session,
            session.post(f"http://127.0.0.1:{port}/echo", data=b"y" * 1000) as answer,
        ):
            assert await answer.text() == "1000"


async def test_a_body_over_the_largest_is_refused() -> None:
    """By status 413, before it is read to its end."""
    async with (
        serving(Limits()) as port,
        aiohttp.ClientSession() as session,
        session.post(f"http://127.0.0.1:{port}/echo", data=io.BytesIO(bytes(LARGEST + 1))) as answer,
    ):
        assert answer.status == 413


async def test_a_handshake_that_takes_too_long_ends_the_connection(tmp_path: Path) -> None:
    """TLS that is never begun counts like headers that never end, and makes room like them."""
    server = Authority(tmp_path, "authority").sign("server")
    tls = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH)
    tls.load_cert_chain(*server)
    async with serving(limits(head_s=0.2), tls) as port, clients(port, 2) as silent:
        assert all([await client.closed() for client in silent])
    trust = ssl.create_default_context(cafile=str(tmp_path / "authority.crt"))
    async with serving(limits(4), tls) as port, clients(port, 9) as silent, aiohttp.ClientSession() as session:
        async with session.get(f"https://127.0.0.1:{port}/ok", ssl=trust) as answer:
            assert answer.status == 200
        assert all([await client.closed() for client in silent[:6]])


async def test_what_is_not_http_is_answered_and_not_logged(caplog: pytest.LogCaptureFixture) -> None:
    """Nobody fills the log by it."""
    async with serving(limits()) as port, clients(port, 1) as (client,):
        await client.send("\0\0\0\r\n\r\n")
        assert (await client.reader.readline()).startswith(b"HTTP/1.0 400")
        assert not caplog.records


async def test_an_address_that_is_taken_or_none_is_an_error() -> None:
    """As before anything is accepted."""
    async with serving(limits()) as port:
        with pytest.raises(OSError, match="in use"):
            async with listen(f"127.0.0.1:{port}", []):
                pass
    with pytest.raises(ConfigError):
        async with listen("nowhere", []):
            pass


async def test_all_addresses_are_meant_where_no_host_is_named() -> None:
    """IPv4, and IPv6 where the machine has it."""
    (port,) = free_ports(1)

    async def ok(_: web.Request) -> web.Response:
        return web.Response(text="ok")

    hosts = ["127.0.0.1", *(["[::1]"] if socket.has_dualstack_ipv6() else [])]
    async with listen(f":{port}", [web.get("/ok", ok)]), aiohttp.ClientSession() as session:
        for host in hosts:
            async with session.get(f"http://{host}:{port}/ok") as answer:
                assert answer.status == 200

"""A connection after the first resumes its TLS session, on both event loops; one that cannot makes a full handshake."""

import asyncio
import ssl
from collections.abc import Callable, Coroutine
from contextlib import AsyncExitStack
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest
import uvloop
from yarl import URL

from mooring.kube.connections import Connections
from tests.support.listener import listening
from tests.support.polling import until

REQUEST = b"GET /x HTTP/1.1\r\nHost: h\r\n\r\n"
# The server ends each connection, so that the next request needs another one.
CLOSING = b"HTTP/1.1 200 OK\r\nContent-Length: 0\r\nConnection: close\r\n\r\n"
Work = Callable[["TlsServer"], Coroutine[Any, Any, None]]
Run = Callable[[Work], None]


@pytest.fixture(params=["asyncio", "uvloop"])
def run(request: pytest.FixtureRequest) -> Run:
    """Run to the end on an event loop, with a server that ends with it."""

    async def with_server(work: Work) -> None:
        server = TlsServer()
        try:
            await asyncio.wait_for(work(server), 90)
        finally:
            await server.end()

    def on_loop(work: Work) -> None:
        with asyncio.Runner(loop_factory=uvloop.new_event_loop if request.param == "uvloop" else None) as runner:
            runner.run(with_server(work))

    return on_loop


@dataclass
class TlsServer:
    """A server on one port, which may begin again there; ``resumed`` has an entry for each connection."""

    resumed: list[bool] = field(default_factory=list)
    port: int = 0
    _life: AsyncExitStack = field(default_factory=AsyncExitStack)

    async def begin(self, tls: ssl.SSLContext | None, answer: bytes = CLOSING) -> None:
        async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
            if tls is not None:
                self.resumed.append(writer.get_extra_info("ssl_object").session_reused)
            await reader.readuntil(b"\r\n\r\n" if tls is not None else b"\x01")
            writer.write(answer)
            await writer.drain()

        self.port = await self._life.enter_async_context(listening(serve, tls, self.port))

    async def end(self) -> None:
        await self._life.aclose()


Certificate = tuple[Path, Path]


def of_server(certificate: Certificate) -> ssl.SSLContext:
    """Return a server's context, with keys of its own for its tickets."""
    context = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH)
    context.load_cert_chain(*certificate)
    return context


def of_client(certificate: Certificate) -> ssl.SSLContext:
    """Return a client's context that trusts the server."""
    return ssl.create_default_context(cafile=str(certificate[0]))


async def ask(connections: Connections) -> int:
    return (await connections.ask(REQUEST, 10.0, lambda: None)).status


def test_later_connections_resume_the_session_of_the_first(run: Run, certificate: Certificate) -> None:
    async def work(server: TlsServer) -> None:
        await server.begin(of_server(certificate))
        connections = Connections(URL(f"https://127.0.0.1:{server.port}"), of_client(certificate), None)
        assert [await ask(connections) for _ in range(3)] == [200] * 3
        assert server.resumed == [False, True, True]

    run(work)


def test_connections_of_one_context_share_its_session_and_no_others(run: Run, certificate: Certificate) -> None:
    async def work(server: TlsServer) -> None:
        shared = of_client(certificate)
        await server.begin(of_server(certificate))
        url = URL(f"https://127.0.0.1:{server.port}")
        for context in (shared, shared, of_client(certificate)):
            assert await ask(Connections(url, context, None)) == 200
        assert server.resumed == [False, True, False]

    run(work)


def test_a_server_with_other_keys_for_its_tickets_gets_a_full_handshake(run: Run, certificate: Certificate) -> None:
    async def work(server: TlsServer) -> None:
        await server.begin(of_server(certificate))
        connections = Connections(URL(f"https://127.0.0.1:{server.port}"), of_client(certificate), None)
        assert await ask(connections) == 200
        await server.end()
        await server.begin(of_server(certificate))
        assert [await ask(connections), await ask(connections)] == [200, 200]
        assert server.resumed == [False, False, True]

    run(work)


def test_after_a_failed_handshake_no_session_is_resumed(run: Run, certificate: Certificate) -> None:
    async def work(server: TlsServer) -> None:
        tls = of_server(certificate)
        await server.begin(tls)
        connections = Connections(URL(f"https://127.0.0.1:{server.port}"), of_client(certificate), None)
        assert await ask(connections) == 200
        await server.end()
        await server.begin(None, b"this is no TLS\r\n")
        with pytest.raises(ssl.SSLError):
            await ask(connections)
        await server.end()
        await server.begin(tls)
        assert await ask(connections) == 200
        await until(lambda: len(server.resumed) == 2)
        assert server.resumed == [False, False]

    run(work)


def test_a_certificate_that_is_not_trusted_is_refused_however_often(run: Run, certificate: Certificate) -> None:
    async def work(server: TlsServer) -> None:
        await server.begin(of_server(certificate))
        connections = Connections(URL(f"https://127.0.0.1:{server.port}"), ssl.create_default_context(), None)
        for _ in range(2):
            with pytest.raises(ssl.SSLCertVerificationError):
                await ask(connections)

    run(work)

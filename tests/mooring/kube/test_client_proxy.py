"""Reads, watches and writes through an HTTP proxy, to a server with TLS that sees who acts for whom."""

import asyncio
import ssl
from collections.abc import AsyncIterator, Callable, Coroutine
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest
import uvloop
from yarl import URL

from mooring.kube.access import Access
from mooring.kube.client import Client
from mooring.kube.failures import Unknown
from mooring.kube.kubeconfig.proxy import Proxy
from tests.support.listener import listening

BODY = b'{"kind":"Node"}'
ANSWER = b"HTTP/1.1 200 OK\r\nContent-Length: %d\r\n\r\n%b" % (len(BODY), BODY)


@dataclass
class ConnectProxy:
    """A proxy that knows one server, by a name that no DNS has; ``asked`` are the heads of its requests."""

    target: int
    status: str = "200 Connection established"
    asked: list[str] = field(default_factory=list)
    port: int = 0

    async def serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.asked.append((await reader.readuntil(b"\r\n\r\n")).decode())
        writer.write(f"HTTP/1.1 {self.status}\r\nVia: p\r\n\r\n".encode())
        if not self.status.startswith("200"):
            return
        theirs, ours = await asyncio.open_connection("127.0.0.1", self.target)
        await asyncio.gather(_copy(reader, ours), _copy(theirs, writer))
        await ours.wait_closed()


async def _copy(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    try:
        while data := await reader.read(65536):
            writer.write(data)
            await writer.drain()
    except OSError:
        pass
    finally:
        writer.close()


@asynccontextmanager
async def served(certificate: tuple[Path, Path], status: str) -> AsyncIterator[tuple[ConnectProxy, list[str]]]:
    """Serve a TLS server and the proxy before it; yield the proxy and the heads that the server gets."""
    heads: list[str] = []

    async def answer(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        while True:
            head = (await reader.readuntil(b"\r\n\r\n")).decode()
            heads.append(head)
            await reader.readexactly(2 if head.startswith("PATCH") else 0)
            writer.write(ANSWER)

    theirs = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH)
    theirs.load_cert_chain(*certificate)
    async with listening(answer, theirs) as port:
        proxy = ConnectProxy(port, status)
        async with listening(proxy.serve) as proxy.port:
            yield proxy, heads


def run(work: Callable[[], Coroutine[Any, Any, None]], loop: str) -> None:
    with asyncio.Runner(loop_factory=uvloop.new_event_loop if loop == "uvloop" else None) as runner:
        runner.run(asyncio.wait_for(work(), 90))


def access(proxy: ConnectProxy, certificate: tuple[Path, Path]) -> Access:
    """Return the way to a server that only the proxy knows; its certificate is for another name."""
    tls = ssl.create_default_context(cafile=str(certificate[0]))
    fixed = (("Impersonate-User", "jane"), ("Impersonate-Group", "dev"), ("Impersonate-Group", "ops"))
    through = Proxy(URL(f"http://127.0.0.1:{proxy.port}"), "Basic bWU6cA==")
    return Access("https://api.invalid:6443", tls, "127.0.0.1", fixed_headers=fixed, proxy=through)


@pytest.mark.parametrize("loop", ["asyncio", "uvloop"])
def test_reads_and_writes_go_through_the_proxy_to_the_server(loop: str, certificate: tuple[Path, Path]) -> None:
    """The proxy looks up the name, the certificate is held against tls-server-name, and a person acts as another."""

    async def work() -> None:
        async with served(certificate, "200 OK") as (proxy, heads), Client(access(proxy, certificate)) as client:
            assert await client.request("GET", "/api/v1/nodes/n1") == BODY
            assert await client.request("PATCH", "/api/v1/nodes/n1", b"{}") == BODY
        assert [head.splitlines()[0] for head in proxy.asked] == ["CONNECT api.invalid:6443 HTTP/1.1"] * 2
        assert all("Proxy-Authorization: Basic bWU6cA==" in head for head in proxy.asked)
        for head in heads:
            lines = head.splitlines()
            assert "Impersonate-User: jane" in lines
            assert [line for line in lines if line.startswith("Impersonate-Group")] == [
                "Impersonate-Group: dev",
                "Impersonate-Group: ops",
            ]
            assert "Proxy-Authorization" not in head

    run(work, loop)


@pytest.mark.parametrize("method", ["GET", "PATCH"])
def test_a_proxy_that_refuses_is_named(method: str, certificate: tuple[Path, Path]) -> None:
    """Nothing reached the server; the message has the proxy's own status."""

    async def work() -> None:
        status = "407 Proxy Authentication Required"
        async with served(certificate, status) as (proxy, heads), Client(access(proxy, certificate)) as client:
            with pytest.raises(Unknown, match="407"):
                await client.request(method, "/api/v1/nodes/n1", b"{}" if method == "PATCH" else b"")
            assert heads == []

    run(work, "asyncio")

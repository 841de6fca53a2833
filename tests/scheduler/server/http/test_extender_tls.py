"""The extender over HTTPS: which clients are answered, and what a renewal changes."""

import asyncio
import ssl
import subprocess
import sys
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import aiohttp
import pytest

from bench.served.apiservers import free_ports
from mooring.kube.access import Access
from mooring.kube.client import Client
from mooring.program.config import ConfigError
from scheduler.server.http.extender_handlers import ExtenderHandlers
from scheduler.server.http.extender_server import serve, server_tls
from scheduler.server.loop import ApiClients, Loop
from scheduler.server.report_writer import ReportWriter
from scheduler.state.machine import Machine
from tests.support.certificates import Authority, Pair

STANDS_BY = "this scheduler does not lead"


@pytest.fixture
def authority(tmp_path: Path) -> Authority:
    return Authority(tmp_path, "authority")


@pytest.fixture
def server(authority: Authority) -> Pair:
    return authority.sign("server")


@pytest.fixture
def stranger(tmp_path: Path) -> Authority:
    return Authority(tmp_path, "stranger")


@asynccontextmanager
async def serving(server: Pair, client_ca: Path | None = None) -> AsyncIterator[str]:
    """Start a listening standby, and yield its URL."""
    (port,) = free_ports(1)
    nowhere = Client(Access("http://127.0.0.1:1"))
    clients, machine = ApiClients(nowhere, nowhere), Machine("mooring")
    loop = Loop(machine, clients, ReportWriter(nowhere, "mooring"), lambda: 0.0)
    extender_handlers = ExtenderHandlers(machine.extender_pods, loop, clients, lambda: 0.0)
    tls = server_tls(str(server.certificate), str(server.key), str(client_ca or ""))
    async with serve(f"127.0.0.1:{port}", extender_handlers, tls):
        yield f"https://127.0.0.1:{port}/scheduler/filter"


async def ask(url: str, authority: Authority, client: Pair | None = None) -> str:
    """Ask over a new connection, as a client that trusts this authority; return the answer's text."""
    tls = ssl.create_default_context(cafile=str(authority.own.certificate))
    if client is not None:
        tls.load_cert_chain(*client)
    async with aiohttp.ClientSession() as session, session.post(url, ssl=tls, data=b"{}") as answer:
        return await answer.text()


async def test_the_server_proves_its_identity(authority: Authority, server: Pair, stranger: Authority) -> None:
    """A client that trusts its authority is answered, over TLS and nothing else."""
    async with serving(server) as url:
        assert await ask(url, authority) == STANDS_BY
        with pytest.raises(aiohttp.ClientConnectorCertificateError):
            await ask(url, stranger)
        with pytest.raises(aiohttp.ClientError):
            await ask(url.replace("https", "http"), authority)


async def test_only_clients_with_a_certificate_of_the_ca_are_answered(
    authority: Authority, server: Pair, stranger: Authority
) -> None:
    """One without a certificate is refused, and so is one of another authority, or self-signed."""
    async with serving(server, authority.own.certificate) as url:
        assert await ask(url, authority, authority.sign("client")) == STANDS_BY
        for refused in (None, stranger.sign("other"), stranger.own):
            with pytest.raises((aiohttp.ClientError, ssl.SSLError)):
                await ask(url, authority, refused)


async def test_renewed_files_are_used_from_the_next_connection_on(
    authority: Authority, server: Pair, stranger: Authority
) -> None:
    """The server's certificate and the clients' authority; a half-finished renewal changes nothing."""
    trusted = authority.own.certificate.with_name("clients.crt")
    trusted.write_bytes(authority.own.certificate.read_bytes())
    known, other, renewed = authority.sign("client"), stranger.sign("other"), stranger.sign("renewed")
    async with serving(server, trusted) as url:
        server.certificate.write_bytes(renewed.certificate.read_bytes())
        assert await ask(url, authority, known) == STANDS_BY
        server.key.write_bytes(renewed.key.read_bytes())
        assert await ask(url, stranger, known) == STANDS_BY
        trusted.write_bytes(stranger.own.certificate.read_bytes())
        assert await ask(url, stranger, other) == STANDS_BY
        with pytest.raises((aiohttp.ClientError, ssl.SSLError)):
            await ask(url, stranger, known)
        server.key.unlink()
        assert await ask(url, stranger, other) == STANDS_BY


async def test_a_silent_client_delays_no_other(authority: Authority, server: Pair) -> None:
    """Its handshake waits by itself."""
    async with serving(server) as url:
        _, silent = await asyncio.open_connection("127.0.0.1", int(url.split(":")[2].partition("/")[0]))
        assert await ask(url, authority) == STANDS_BY
        silent.close()
        await silent.wait_closed()


def test_unusable_files_are_reported_at_the_start(authority: Authority, server: Pair, tmp_path: Path) -> None:
    """A key without a certificate, a client CA alone, a file that is not there, a key of another certificate."""
    good, key = str(server.certificate), str(server.key)
    for files in (("", key, ""), (good, "", ""), ("", "", good), (good, str(tmp_path / "none"), ""), (good, key, key)):
        with pytest.raises(ConfigError, match="TLS of the extender"):
            server_tls(*files)
    with pytest.raises(ConfigError, match="mismatch"):
        server_tls(good, str(authority.own.key), "")
    assert server_tls("", "", "") is None
    (kubeconfig := tmp_path / "kubeconfig").write_text(_KUBECONFIG)
    # A process of its own: a program's set-up binds the log to the present stderr, for all tests that follow.
    command = [sys.executable, "-m", "scheduler", "--kubeconfig", str(kubeconfig), "--extender-tls-cert", good]
    ended = subprocess.run(command, capture_output=True, text=True, check=False)
    assert ended.returncode == 2
    assert "TLS of the extender needs a certificate and its key" in ended.stderr


_KUBECONFIG = """
current-context: c
contexts: [{name: c, context: {cluster: c, user: u}}]
clusters: [{name: c, cluster: {server: "http://127.0.0.1:1"}}]
users: [{name: u, user: {}}]
"""

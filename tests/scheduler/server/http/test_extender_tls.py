"""The extender over HTTPS: which clients are answered, and what a renewal changes."""

import asyncio
import ssl
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import NamedTuple

import aiohttp
import pytest

from mooring.program.config import ConfigError
from scheduler.server.http.extender_server import server_tls
from tests.scheduler.server.stage import ExtenderStage
from tests.support.certificates import Authority, Pair

STANDS_BY = "this scheduler does not lead"


class Parties(NamedTuple):
    """The authority that the server and its clients trust, the server's certificate, and another authority."""

    authority: Authority
    server: Pair
    stranger: Authority


@pytest.fixture
def parties(tmp_path: Path) -> Parties:
    authority = Authority(tmp_path, "authority")
    return Parties(authority, authority.sign("server"), Authority(tmp_path, "stranger"))


@asynccontextmanager
async def serving(extender: ExtenderStage, server: Pair, client_ca: Path | str = "") -> AsyncIterator[str]:
    """Start a listening standby, and yield its URL."""
    tls = server_tls(str(server.certificate), str(server.key), str(client_ca))
    async with extender.answering(leads=False, tls=tls):
        yield f"https://{extender.address}/scheduler/filter"


async def ask(url: str, authority: Authority, client: Pair | None = None) -> str:
    """Ask over a new connection, as a client that trusts this authority; return the answer's text."""
    tls = ssl.create_default_context(cafile=str(authority.own.certificate))
    if client is not None:
        tls.load_cert_chain(*client)
    async with aiohttp.ClientSession() as session, session.post(url, ssl=tls, data=b"{}") as answer:
        return await answer.text()


async def test_the_server_proves_its_identity(extender: ExtenderStage, parties: Parties) -> None:
    """A client that trusts its authority is answered, over TLS and nothing else, whatever silent client came first."""
    async with serving(extender, parties.server) as url:
        _, silent = await asyncio.open_connection("127.0.0.1", int(url.split(":")[2].partition("/")[0]))
        assert await ask(url, parties.authority) == STANDS_BY
        with pytest.raises(aiohttp.ClientConnectorCertificateError):
            await ask(url, parties.stranger)
        with pytest.raises(aiohttp.ClientError):
            await ask(url.replace("https", "http"), parties.authority)
        silent.close()
        await silent.wait_closed()


async def test_only_clients_of_the_ca_are_answered(extender: ExtenderStage, parties: Parties) -> None:
    """One without a certificate is refused, and so is one of another authority, or self-signed."""
    authority, server, stranger = parties
    async with serving(extender, server, authority.own.certificate) as url:
        assert await ask(url, authority, authority.sign("client")) == STANDS_BY
        for refused in (None, stranger.sign("other"), stranger.own):
            with pytest.raises((aiohttp.ClientError, ssl.SSLError)):
                await ask(url, authority, refused)


async def test_renewed_files_are_used_from_the_next_connection_on(extender: ExtenderStage, parties: Parties) -> None:
    """The server's certificate and the clients' authority; a half-finished renewal changes nothing."""
    authority, server, stranger = parties
    trusted = authority.own.certificate.with_name("clients.crt")
    trusted.write_bytes(authority.own.certificate.read_bytes())
    known, other, renewed = authority.sign("client"), stranger.sign("other"), stranger.sign("renewed")
    async with serving(extender, server, trusted) as url:
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


def test_unusable_files_are_reported_at_the_start(parties: Parties, tmp_path: Path) -> None:
    """A key without a certificate, a client CA alone, a file that is not there, a key of another certificate."""
    good, key = str(parties.server.certificate), str(parties.server.key)
    for files in (("", key, ""), (good, "", ""), ("", "", good), (good, str(tmp_path / "none"), ""), (good, key, key)):
        with pytest.raises(ConfigError, match="TLS of the extender"):
            server_tls(*files)
    with pytest.raises(ConfigError, match="mismatch"):
        server_tls(good, str(parties.authority.own.key), "")
    assert server_tls("", "", "") is None

"""Connections are kept, and given up as soon as their next answer could be another request's; reads' and writes'."""

import asyncio
import ssl
import subprocess
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from pathlib import Path

import pytest

from mooring.kube.access import Access
from mooring.kube.client import Client
from mooring.kube.failures import Unknown
from tests.support.listener import listening
from tests.support.polling import until

# What a server answers, and what it would answer to another request.
BODY, OTHER = b'{"kind":"Ok"}', b'{"kind":"No"}'
OK = b"HTTP/1.1 200 OK\r\nContent-Length: %d\r\n\r\n%s" % (len(BODY), BODY)
Answers = Callable[[bytes], bytes | None]
# Reads and writes go different connections.
EACH = pytest.mark.parametrize("method", ["GET", "POST"])


class Server:
    """Answers each request by a plan: bytes to write, or None to close; it counts connections and requests."""

    def __init__(self, answers: Answers) -> None:
        self.answers = answers
        self.connections = 0
        self.requests: list[bytes] = []
        self.writers: list[asyncio.StreamWriter] = []

    async def serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.connections += 1
        self.writers.append(writer)
        while True:
            head = await reader.readuntil(b"\r\n\r\n")
            self.requests.append(head)
            answer = self.answers(head)
            if answer is None:
                return
            writer.write(answer)


@asynccontextmanager
async def _served(answers: Answers, tls: ssl.SSLContext | None = None) -> AsyncIterator[tuple[Server, str]]:
    server = Server(answers)
    async with listening(server.serve, tls) as port:
        yield server, f"{'https' if tls else 'http'}://127.0.0.1:{port}"


@EACH
async def test_requests_one_after_the_other_share_a_connection(method: str) -> None:
    """They carry host, path with the server's own prefix, and query."""
    async with _served(lambda _: OK) as (server, url), Client(Access(f"{url}/k8s/c1")) as client:
        for _ in range(5):
            assert await client.request(method, "/x", params={"a": "b"}) == BODY
        assert server.connections == 1
        host = url.removeprefix("http://").encode()
        assert server.requests[0].startswith(method.encode() + b" /k8s/c1/x?a=b HTTP/1.1\r\nHost: " + host)


@EACH
async def test_as_many_connections_as_requests_at_once_and_no_more_than_allowed(method: str) -> None:
    """Further requests wait for a connection: none is answered before all connections have one."""
    left = 3

    def answer(_: bytes) -> bytes:
        nonlocal left
        left -= 1
        return OK if left < 0 else b""

    async with _served(answer) as (server, url), Client(Access(url), connections=3) as client:
        asked = asyncio.gather(*(client.request(method, "/x") for _ in range(40)))
        await until(lambda: len(server.requests) >= 3)
        for writer in server.writers:
            writer.write(OK)
        assert await asked == [BODY] * 40
        assert server.connections == 3


@EACH
async def test_a_connection_that_the_server_ends_is_not_used_again(method: str) -> None:
    """The server sends `Connection: close`, or ends the connection without an answer."""
    closing = OK.replace(b"OK\r\n", b"OK\r\nConnection: close\r\n")
    async with _served(lambda _: closing) as (server, url), Client(Access(url)) as client:
        for _ in range(3):
            assert await client.request(method, "/x") == BODY
        assert server.connections == 3


@EACH
async def test_half_an_answer_is_unknown_and_the_next_request_is_answered(method: str) -> None:
    """The next request gets a connection of its own."""
    left = [OK[:-1], None]

    def answer(_: bytes) -> bytes | None:
        return left.pop(0) if left else OK

    async with _served(answer) as (server, url), Client(Access(url), timeout_s=3.0) as client:
        for _ in range(2):
            with pytest.raises(Unknown):
                await client.request("POST", "/x", b"")
        assert await client.request(method, "/x") == BODY
        assert server.connections == 3


@EACH
async def test_a_late_answer_is_never_taken_for_the_next_requests(method: str) -> None:
    """The request was given up, so its connection is too."""
    late = OK.replace(BODY, OTHER)

    def answer(head: bytes) -> bytes:
        return b"" if b"/slow" in head else OK

    async with _served(answer) as (server, url), Client(Access(url), timeout_s=3.0) as client:
        with pytest.raises(Unknown):
            await client.request(method, "/slow")
        server.writers[0].write(late)
        assert await client.request(method, "/x") == BODY
        assert server.connections == 2


@EACH
async def test_what_comes_unasked_ends_a_connection(method: str) -> None:
    """A second answer to one request would be taken for the next one's."""
    async with _served(lambda _: OK + OK.replace(BODY, OTHER)) as (server, url), Client(Access(url)) as client:
        assert await client.request(method, "/x") == BODY
        assert await client.request(method, "/x") == BODY
        assert server.connections == 2


async def test_the_guard_is_asked_right_before_a_request_is_written() -> None:
    """A request that it refuses is not sent, also where a connection had to be made first."""

    class NotNowError(Exception):
        """Nothing may be sent."""

    allowed = True

    def guard() -> None:
        if not allowed:
            raise NotNowError

    async with _served(lambda _: OK) as (server, url), Client(Access(url), guard=guard) as client:
        assert await client.request("GET", "/x") == BODY
        allowed = False
        with pytest.raises(NotNowError):
            await client.request("GET", "/x")
        assert len(server.requests) == 1


@pytest.fixture(scope="module")
def certificate(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Path]:
    """Make a certificate for 127.0.0.1, its own authority, and its key."""
    folder = tmp_path_factory.mktemp("tls")
    made = ("req", "-x509", "-newkey", "rsa:2048", "-nodes", "-days", "2", "-subj", "/CN=127.0.0.1")
    files = ("-addext", "subjectAltName=IP:127.0.0.1", "-keyout", f"{folder}/key", "-out", f"{folder}/crt")
    subprocess.run(["openssl", *made, *files], check=True, capture_output=True)
    return folder / "crt", folder / "key"


@EACH
@pytest.mark.parametrize(("trusted", "name", "good"), [(True, None, True), (False, None, False), (True, "x.y", False)])
async def test_the_servers_certificate_is_held_against_authority_and_name(
    trusted: bool, name: str | None, good: bool, method: str, certificate: tuple[Path, Path]
) -> None:
    """A server that is not the one meant is as good as none."""
    theirs = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH)
    theirs.load_cert_chain(*certificate)
    ours = ssl.create_default_context(cafile=str(certificate[0]) if trusted else None)
    async with _served(lambda _: OK, theirs) as (_, url), Client(Access(url, ours, name)) as client:
        if good:
            assert await client.request(method, "/x") == BODY
        else:
            with pytest.raises(Unknown, match="CERTIFICATE_VERIFY_FAILED"):
                await client.request(method, "/x")


async def test_a_stream_that_is_not_begun_in_time_is_unknown() -> None:
    """However long it may be silent later: until then no event of the cluster would arrive."""
    async with _served(lambda _: b"") as (_, url), Client(Access(url), timeout_s=3.0) as client:
        async with asyncio.timeout(90):
            with pytest.raises(Unknown):
                async with client.stream("/x", {}, silence_s=300):
                    pass


async def test_a_write_with_patience_has_a_connection_of_its_own_and_waits_beyond_the_timeout() -> None:
    """An idle connection may lead to a server that is gone, and a webhook may take half a minute."""
    late: list[asyncio.TimerHandle] = []

    def answer(head: bytes) -> bytes:
        if b"/slow" not in head:
            return OK
        late.append(asyncio.get_running_loop().call_later(3.5, lambda: server.writers[-1].write(OK)))
        return b""

    async with _served(answer) as (server, url), Client(Access(url), timeout_s=3.0) as client:
        assert await client.request("POST", "/x") == BODY
        assert await client.request("POST", "/slow", patience_s=60.0) == BODY
        assert server.connections == 2
        assert await client.request("POST", "/x") == BODY
        assert server.connections == 2

"""Requests: bytes in, bytes out, and failures named by what to do about them."""

from collections.abc import AsyncIterator, Mapping

import msgspec
import pytest
from aiohttp import web

from devcluster.apiserver.http.faults import Fault, FaultKind
from devcluster.apiserver.serve import ApiServer
from mooring.kube.access import Access
from mooring.kube.client import MERGE_PATCH, Client
from mooring.kube.failures import Conflict, Gone, KubeError, NotFound, Refused, Throttled, Unknown, failure

NODES = "/api/v1/nodes"


async def test_an_object_is_created_patched_and_read(client: Client) -> None:
    """The content type selects the kind of patch."""
    await client.request("POST", NODES, b'{"metadata":{"name":"n1"}}')
    await client.request("PATCH", f"{NODES}/n1", b'{"metadata":{"labels":{"a":"b"}}}', MERGE_PATCH)
    node = msgspec.json.decode(await client.request("GET", f"{NODES}/n1"))
    assert node["metadata"]["labels"]["a"] == "b"


async def test_an_answer_that_is_an_error_carries_its_status(client: Client) -> None:
    """The error has code, reason, message and details.kind."""
    with pytest.raises(NotFound) as caught:
        await client.request("GET", f"{NODES}/n1")
    status = caught.value.status
    assert (status.code, status.reason, status.kind) == (404, "NotFound", "nodes")
    assert "n1" in status.message


@pytest.mark.parametrize(
    ("code", "kind"),
    [
        (404, NotFound),
        (409, Conflict),
        (410, Gone),
        (429, Throttled),
        (400, Refused),
        (401, Refused),
        (403, Refused),
        (413, Refused),
        (422, Refused),
        (302, Refused),
        (408, Unknown),
        (500, Unknown),
        (504, Unknown),
    ],
)
@pytest.mark.parametrize(
    "body",
    [
        b"",
        b"<html>",
        b"[]",
        b'{"details":{"kind":null},"message":null}',
        b"\xff",
        b'{"kind":"Status","message":"\xff"}',
        b'{"a":' + b"[" * 5000 + b"]" * 5000 + b"}",
    ],
)
def test_every_code_has_one_failure_whatever_its_body(code: int, kind: type[KubeError], body: bytes) -> None:
    """A proxy's page, or nothing, is as good as a Status."""
    found = failure(code, body)
    assert type(found) is kind
    assert found.status.code == code


async def test_a_write_that_a_proxy_does_not_find_is_unknown(client: Client, server: ApiServer) -> None:
    """A page does not describe the object; a list's path may be none of this API server's."""
    server.faults.plan(Fault("POST", NODES, "page", code=404))
    with pytest.raises(Unknown):
        await client.request("POST", NODES, b'{"metadata":{"name":"n1"}}')
    with pytest.raises(NotFound):
        await client.request("DELETE", f"{NODES}/n1")
    # As of a webhook that denies with this code, and gives no reason.
    server.faults.plan(Fault("POST", NODES, "answer", code=404))
    with pytest.raises(NotFound):
        await client.request("POST", NODES, b'{"metadata":{"name":"n1"}}')
    server.faults.plan(Fault("GET", NODES, "page", code=404))
    with pytest.raises(NotFound):
        await client.request("GET", NODES)


@pytest.mark.parametrize("kind", ["drop_before", "drop_after", "delay"])
async def test_no_answer_is_unknown(kind: FaultKind, client: Client, server: ApiServer) -> None:
    """A broken connection and a timeout have the same outcome."""
    server.faults.plan(Fault("POST", NODES, kind, delay_s=5))
    with pytest.raises(Unknown):
        await client.request("POST", NODES, b'{"metadata":{"name":"n1"}}')


HALF_ANSWERS = [
    b"",
    b"{}",
    b"<html>",
    b'{"kind":"Status","metadata":{},"status":"Failure","reason":"Timeout","code":504}',
    b'{"kind":"Status","metadata":{}}',
]


@pytest.mark.parametrize("body", HALF_ANSWERS)
async def test_a_write_is_done_only_if_its_answer_is_whole(body: bytes, client: Client, server: ApiServer) -> None:
    """A 2xx code alone does not show that anything was written."""
    server.faults.plan(Fault("POST", NODES, "body", code=200, body=body))
    with pytest.raises(Unknown):
        await client.request("POST", NODES, b'{"metadata":{"name":"n1"}}')


@pytest.mark.parametrize("body", HALF_ANSWERS[3:])
async def test_a_status_of_a_failure_is_no_object_whatever_its_code(
    body: bytes, client: Client, server: ApiServer
) -> None:
    """It would decode as an object that has nothing."""
    server.faults.plan(Fault("GET", NODES, "body", code=200, body=body))
    with pytest.raises(Unknown, match="Status"):
        await client.request("GET", f"{NODES}/n1")


async def test_nobody_listening_is_unknown() -> None:
    """The case cannot be distinguished from a server that restarts."""
    async with Client(Access("http://127.0.0.1:1")) as client:
        with pytest.raises(Unknown):
            await client.request("GET", NODES)


@pytest.fixture
async def guarded() -> AsyncIterator[str]:
    """Serve 200 to the token `new` and 401 to any other; give the URL."""

    async def answer(request: web.Request) -> web.Response:
        status = 200 if request.headers.get("Authorization") == "Bearer new" else 401
        return web.Response(status=status, body=b'{"kind":"Ok"}')

    runner = web.ServerRunner(web.Server(answer))  # type: ignore[arg-type]
    await runner.setup()
    site = web.TCPSite(runner, "127.0.0.1", 0)
    await site.start()
    host, port = runner.addresses[0][:2]
    yield f"http://{host}:{port}"
    await runner.cleanup()


@pytest.mark.parametrize("token", ["new\r\nX-Remote-User: admin", "\ufeffnew", "new\0", "new\x7f"])
async def test_a_token_that_is_not_a_header_is_not_sent(token: str, guarded: str) -> None:
    """A token's file may hold anything, and may be corrected while the program runs."""
    tokens = [token, "new"]
    async with Client(Access(guarded, headers=lambda: {"Authorization": f"Bearer {tokens.pop(0)}"})) as client:
        with pytest.raises(Unknown, match="do not fit into an HTTP header"):
            await client.request("POST", "/x", b"{}")
        assert await client.request("POST", "/x", b"{}") == b'{"kind":"Ok"}'


@pytest.mark.parametrize(("tokens", "good"), [(["new"], True), (["old", "new"], True), (["old", "old"], False)])
async def test_a_token_that_has_expired_is_renewed_once(tokens: list[str], good: bool, guarded: str) -> None:
    """A 401 was refused before anything was done, so the request is safe to repeat with a fresh token."""
    left = list(tokens)

    def headers() -> Mapping[str, str]:
        return {"Authorization": f"Bearer {left.pop(0)}"}

    async with Client(Access(guarded, headers=headers)) as client:
        if good:
            assert await client.request("POST", "/x", b"{}") == b'{"kind":"Ok"}'
            assert await client.request("POST", "/x", b"{}") == b'{"kind":"Ok"}'
        else:
            with pytest.raises(Refused):
                await client.request("POST", "/x", b"{}")
    assert left == []

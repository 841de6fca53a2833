"""A collection is followed without a gap, over ends of streams, lost connections and versions too old."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import aclosing
from typing import Any

import msgspec
import pytest

from devcluster.apiserver.http.faults import Fault
from devcluster.apiserver.serve import ApiServer
from mooring.kube.client import MERGE_PATCH, Client
from mooring.kube.events import Changed, Event, Identity, Removed, Synced, Unreadable
from mooring.kube.failures import KubeError
from mooring.kube.watch import Decoder, read_line, read_line_in_pieces, watch

NODES = "/api/v1/nodes"


class Meta(msgspec.Struct, rename="camel"):
    """What these tests read of metadata."""

    name: str
    namespace: str = ""
    uid: str = ""
    resource_version: str = ""
    labels: dict[str, str] = {}


class Node(msgspec.Struct):
    """What these tests read of a node; one with the label ``bad`` cannot be read."""

    metadata: Meta

    def __post_init__(self) -> None:
        if self.metadata.labels.get("bad"):
            raise ValueError("the label bad")


class Named(msgspec.Struct):
    """What does not identify a node."""

    name: str
    labels: dict[str, str] = {}


class NamedNode(Node):
    """A node whose lines are read piece by piece."""

    metadata: Named  # type: ignore[assignment]


async def _create(client: Client, name: str, **labels: str) -> None:
    await client.request("POST", NODES, msgspec.json.encode({"metadata": {"name": name, "labels": labels}}))


class Listener:
    """The events of a watch, one at a time and with a deadline."""

    def __init__(self, events: AsyncIterator[Event[Node]]) -> None:
        self._events = events

    async def next(self) -> Event[Node]:
        async with asyncio.timeout(90):
            return await anext(self._events)

    async def story(self) -> Any:
        """Return the next event in short."""
        event = await self.next()
        match event:
            case Synced(entries):
                return ("synced", sorted(entry.identity.name for entry in entries))
            case Changed(_, item):
                return ("changed", item.metadata.name)
            case Removed(identity):
                return ("removed", identity.name)
            case Unreadable(identity):
                return ("unreadable", identity.name)


@pytest.fixture(params=[Node, NamedNode])
async def listener(client: Client, request: pytest.FixtureRequest) -> AsyncIterator[Listener]:
    """Watch the nodes."""
    async with aclosing(watch(client, NODES, Decoder(request.param))) as events:  # type: ignore[type-var]
        yield Listener(events)


async def test_the_set_comes_first_then_every_change(client: Client, listener: Listener) -> None:
    """A node is created, patched and deleted."""
    await _create(client, "a")
    assert await listener.story() == ("synced", ["a"])
    await _create(client, "b")
    await client.request("PATCH", f"{NODES}/a", b'{"metadata":{"labels":{"x":"y"}}}', MERGE_PATCH)
    await client.request("DELETE", f"{NODES}/a")
    assert [await listener.story() for _ in range(3)] == [("changed", "b"), ("changed", "a"), ("removed", "a")]


async def test_a_long_list_comes_whole(client: Client, listener: Listener) -> None:
    """The list is read in pages, and delivered as one event."""
    for number in range(501):
        await _create(client, f"n{number}")
    event = await listener.next()
    assert isinstance(event, Synced)
    assert len(event.entries) == 501


async def test_a_clean_end_is_resumed_without_a_gap(client: Client, server: ApiServer, listener: Listener) -> None:
    """Changes between two streams come with the next one; nothing is listed again."""
    assert await listener.story() == ("synced", [])
    for name in ("a", "b", "c"):
        server.cut_watches()
        await _create(client, name)
        assert await listener.story() == ("changed", name)


async def test_a_version_too_old_lists_again(client: Client, server: ApiServer, listener: Listener) -> None:
    """The second set lacks what was deleted in between."""
    await _create(client, "a")
    assert await listener.story() == ("synced", ["a"])
    following = asyncio.create_task(listener.story())
    server.faults.plan(Fault("GET", "watch=true", "answer", times=1, code=503))
    await _create(client, "b")
    assert await following == ("changed", "b")
    server.cut_watches()
    await client.request("DELETE", f"{NODES}/a")
    await _create(client, "c")
    server.compact()
    story = await listener.story()
    while story[0] != "synced":
        story = await listener.story()
    assert story == ("synced", ["b", "c"])


async def test_an_object_that_does_not_decode_is_passed_on_as_such(client: Client, listener: Listener) -> None:
    """The others around it come as ever, in the list and in the stream."""
    await _create(client, "a", bad="1")
    await _create(client, "b")
    event = await listener.next()
    assert isinstance(event, Synced)
    assert [type(entry) for entry in event.entries] == [Unreadable, Changed]
    await _create(client, "c", bad="1")
    await _create(client, "d")
    assert [await listener.story() for _ in range(2)] == [("unreadable", "c"), ("changed", "d")]


async def test_failures_are_repeated_until_the_server_is_well(
    client: Client, server: ApiServer, listener: Listener
) -> None:
    """Listing and opening the stream are repeated, throttled requests included."""
    server.faults.plan(Fault("GET", "limit=", "answer", times=1, code=500))
    server.faults.plan(Fault("GET", "limit=", "drop_before", times=1))
    server.faults.plan(Fault("GET", "watch=true", "answer", times=1, code=403))
    assert await listener.story() == ("synced", [])
    await _create(client, "a")
    assert await listener.story() == ("changed", "a")


# What a proxy, or a server that is shutting down, may send with 200 where a list is expected.
HALF_LISTS = [
    b"{}",
    b'{"kind":"Status","apiVersion":"v1","metadata":{},"status":"Failure","reason":"Timeout","code":504}',
    b'{"kind":"Status","apiVersion":"v1","metadata":{},"status":"Success","code":200}',
    b'{"kind":"NodeList","apiVersion":"v1","metadata":{},"items":[]}',
    b'{"apiVersion":"v1","metadata":{"resourceVersion":"9"},"items":[]}',
    b'{"kind":"Node","apiVersion":"v1","metadata":{"name":"a","resourceVersion":"9"}}',
    b'{"kind":"Node\xffList","metadata":{"resourceVersion":"9"},"items":[]}',
    b'{"kind":"NodeList","apiVersion":"v1","metadata":{"resourceVersion":"9"},"items":[{}]}',
    b'{"kind":"NodeList","apiVersion":"v1","metadata":{"resourceVersion":"9"},"items":[{"metadata":{"name":"a"}}]}',
]


@pytest.mark.parametrize("body", HALF_LISTS)
@pytest.mark.parametrize("page", ["limit=500$", "continue="])
async def test_an_answer_that_is_not_whole_is_no_end_of_a_list(
    page: str, body: bytes, client: Client, server: ApiServer, listener: Listener
) -> None:
    """Neither the first page nor a later one: the list is requested again, and all objects come."""
    for number in range(501):
        await _create(client, f"n{number}")
    server.faults.plan(Fault("GET", page, "body", code=200, body=body))
    event = await listener.next()
    assert isinstance(event, Synced)
    assert len(event.entries) == 501
    assert not server.faults.planned


async def test_what_the_listener_knows_is_not_decoded_again(client: Client) -> None:
    """When all is listed again, an object in the version that is known is only named."""
    decoded: list[str] = []
    known: dict[str, str] = {}

    class Noting(Decoder[Node]):
        def __call__(self, raw: msgspec.Raw | bytes) -> Node:
            node = super().__call__(raw)
            decoded.append(node.metadata.name)
            return node

    for name in ("a", "b"):
        await _create(client, name)

    async def list_all() -> Synced[Node]:
        def is_known(identity: Identity) -> bool:
            return known.get(identity.name) == identity.resource_version

        async with aclosing(watch(client, NODES, Noting(Node), is_known=is_known)) as events:  # type: ignore[type-var]
            listed = await Listener(events).next()
        assert isinstance(listed, Synced)
        return listed

    known = {identity.name: identity.resource_version for identity in (await list_all()).identities}
    await client.request("PATCH", f"{NODES}/b", b'{"metadata":{"labels":{"x":"y"}}}', MERGE_PATCH)
    listed = await list_all()
    assert decoded == ["a", "b", "b"]
    assert [identity.name for identity in listed.unchanged] == ["a"]
    assert sorted(identity.name for identity in listed.identities) == ["a", "b"]


LINES = [
    b'{"type":"ADDED","object":{"metadata":{"name":"a","uid":"u","resourceVersion":"7","labels":{"x":"y"}}}}',
    b'{"type":"MODIFIED","object":{"metadata":{"name":"a","namespace":"n","resourceVersion":"8"}}}',
    b'{"type":"DELETED","object":{"metadata":{"name":"a","uid":"u","resourceVersion":"8"}}}',
    b'{"type":"DELETED","object":{"metadata":{"name":"a","uid":"u","labels":{"bad":"1"}}}}',
    b'{"type":"MODIFIED","object":{"metadata":{"name":"a","uid":"u","labels":{"bad":"1"}}}}',
    b'{"type":"ADDED","object":{"metadata":{"name":"a","uid":null}}}',
    b'{"type":"ADDED","object":{"metadata":{"uid":"u"}}}',
    b'{"type":"ADDED","object":{"metadata":' + b"[" * 5000 + b"]" * 5000 + b"}}",
    b'{"type":"ADDED","object":{"metadata":{"name":"a","deep":' + b"[" * 5000 + b"]" * 5000 + b"}}}",
    b'{"type":"ADDED","object":7}',
    b'{"type":"BOOKMARK","object":{"metadata":{"resourceVersion":"9"}}}',
    b'{"type":"BOOKMARK","object":{"metadata":{"name":"","resourceVersion":"9"}}}',
    b'{"type":"SYNC","object":{"metadata":{"name":"a","resourceVersion":"9"}}}',
    b'{"type":"ERROR","object":{"kind":"Status","metadata":{},"code":410,"reason":"Expired"}}',
    b'{"type":"ERROR","object":{"kind":"Status","metadata":{"name":"a"},"code":500}}',
    b'{"type":"ERROR","object":{"kind":"Status","message":"\xff","code":500}}',
    b'{"type":"\xff","object":{}}',
    b'{"object":{"metadata":{"name":"a"}}}',
    b'{"type":"ADDED"}',
    b'{"type":"ADDED","object":{"metadata":{"name":"\xff"}}}',
    b"",
]


@pytest.mark.parametrize("text", LINES)
def test_a_line_read_at_one_go_says_what_it_says_piece_by_piece(text: bytes) -> None:
    """The quick decoder and the careful one agree, on refusals too."""
    whole, pieces = read_line(text, Decoder(Node)), read_line_in_pieces(text, Decoder(Node))
    if isinstance(whole, KubeError):
        assert (type(whole), str(whole)) == (type(pieces), str(pieces))
    else:
        assert whole == pieces


@pytest.mark.parametrize("type_", ["ADDED", "MODIFIED", "DELETED"])
@pytest.mark.parametrize(
    "text", [b"{}", b'{"metadata":{"name":"a"}}', b'{"kind":"Status","metadata":{},"status":"Failure","code":504}']
)
def test_an_object_that_is_not_whole_is_no_change(type_: str, text: bytes) -> None:
    """Without name or resourceVersion it would be another object than the one that it means."""
    line = b'{"type":"%s","object":%s}' % (type_.encode(), text)
    assert isinstance(read_line(line, Decoder(Node)), KubeError)


def test_ordinary_lines_are_read_at_one_go() -> None:
    """All others go through the careful decoder."""
    assert [line[:20] for line in LINES if Decoder(Node).read_line(line) is not None] == [
        line[:20] for line in LINES[:3]
    ]

"""Watches: where they start, what they see, how they end. Against devcluster's server and a real one."""

import asyncio
import socket
from typing import Any

import aiohttp
import msgspec
import pytest

from devcluster.apiserver.http.streaming import WatchLimits
from devcluster.apiserver.serve import ApiServer, Options
from devcluster.apiserver.store.selectors import Selector
from devcluster.apiserver.store.store import Change, Entry
from devcluster.apiserver.store.watch import Watch

MERGE = "application/merge-patch+json"


def short(event: Any) -> tuple[str, str]:
    """Return type and name of an event."""
    return event["type"], event["object"]["metadata"]["name"]


async def version(api: Any) -> str:
    """Return the collection's version."""
    return str((await api.ok("GET", api.pods))["metadata"]["resourceVersion"])


async def test_a_watch_from_a_lists_version_sees_each_later_change_once_in_order(api: Any) -> None:
    """Create, change, delete (marked, then gone): four events, versions growing."""
    await api.pod("before")
    async with api.watch(api.pods, resourceVersion=await version(api)) as events:
        await api.pod("p")
        await api.ok("PATCH", f"{api.pods}/p", {"metadata": {"labels": {"l": "1"}}}, MERGE)
        await api.ok("DELETE", f"{api.pods}/p")
        seen = await events.take(4)
    assert [event["type"] for event in seen] == ["ADDED", "MODIFIED", "MODIFIED", "DELETED"]
    assert {short(event)[1] for event in seen} == {"p"}
    versions = [int(event["object"]["metadata"]["resourceVersion"]) for event in seen]
    assert versions == sorted(set(versions))


async def test_a_watch_without_a_version_starts_with_everything_there_is(api: Any) -> None:
    """Existing objects come as ADDED, then changes."""
    await api.pod("a")
    async with api.watch(api.pods) as events:
        assert short(await events.next()) == ("ADDED", "a")
        await api.pod("b")
        assert short(await events.next()) == ("ADDED", "b")


async def test_a_watch_replays_what_happened_since_its_version(api: Any) -> None:
    """A client that was away sees each change that it missed, not only the result."""
    start = await version(api)
    await api.pod("p")
    await api.ok("DELETE", f"{api.pods}/p")
    async with api.watch(api.pods, resourceVersion=start) as events:
        assert [event["type"] for event in await events.take(3)] == ["ADDED", "MODIFIED", "DELETED"]


# Each way for a pod to go, and what watchers see of it after ADDED: grace period of the mark, None without a mark.
WAYS_TO_GO = [
    ("unbound", [("MODIFIED", 0), ("DELETED", 0)]),
    ("bound", [("MODIFIED", None), ("MODIFIED", 30), ("MODIFIED", 0), ("DELETED", 0)]),
    ("finalizer", [("MODIFIED", 0), ("DELETED", 0)]),
    ("evicted", [("MODIFIED", None), ("MODIFIED", 0), ("DELETED", 0)]),
]


@pytest.mark.parametrize(("way", "expected"), WAYS_TO_GO)
async def test_a_pod_is_seen_marked_before_it_is_seen_gone(api: Any, way: str, expected: Any) -> None:
    """Also where nothing is waited for. The last state still has what held it; an eviction first writes the reason."""
    start, path = await version(api), f"{api.pods}/p"
    await api.pod("p", **({"finalizers": ["mooring.dev/hold"]} if way == "finalizer" else {}))
    if way == "evicted":
        eviction = {"apiVersion": "policy/v1", "kind": "Eviction", "metadata": {"name": "p"}}
        await api.ok("POST", f"{path}/eviction", eviction)
    if way == "bound":
        await api.bind("p")
        await api.ok("DELETE", path)
    if way != "evicted":
        await api.ok("DELETE", f"{path}?gracePeriodSeconds=0")
    if way == "finalizer":
        await api.ok("PATCH", path, {"metadata": {"finalizers": None}}, MERGE)
    async with api.watch(api.pods, resourceVersion=start) as events:
        _, *seen = await events.take(1 + len(expected))
    grace = [(one["type"], one["object"]["metadata"].get("deletionGracePeriodSeconds")) for one in seen]
    assert grace == expected
    last = seen[-1]["object"]
    assert last["metadata"].get("finalizers") == (["mooring.dev/hold"] if way == "finalizer" else None)
    reasons = [one.get("reason") for one in last["status"].get("conditions", [])]
    assert ("EvictionByEvictionAPI" in reasons) == (way == "evicted")


async def test_a_watch_ends_cleanly_after_its_timeout(api: Any) -> None:
    """timeoutSeconds ends the stream with EOF, without an ERROR event."""
    await api.pod("p")
    async with api.watch(api.pods, timeoutSeconds="1") as events:
        assert [short(event) for event in await events.rest()] == [("ADDED", "p")]


async def test_a_bind_is_one_change_with_node_annotations_and_condition_together(api: Any) -> None:
    """Watchers see a single MODIFIED, without a state in between."""
    await api.pod("p", annotations={"keep": "k"})
    async with api.watch(api.pods, resourceVersion=await version(api)) as events:
        assert (await api.bind("p", annotations={"mooring.dev/assignment": "x"}))[0] == 201
        await api.pod("after")
        bound, after = await events.take(2)
    assert short(after) == ("ADDED", "after")
    assert bound["type"] == "MODIFIED"
    assert bound["object"]["spec"]["nodeName"] == "n1"
    assert bound["object"]["metadata"]["annotations"] == {"keep": "k", "mooring.dev/assignment": "x"}
    (condition,) = bound["object"]["status"]["conditions"]
    assert (condition["type"], condition["status"]) == ("PodScheduled", "True")


async def test_an_object_enters_and_leaves_a_selection_as_added_and_deleted(api: Any) -> None:
    """A watcher of unbound pods sees a bind as DELETED; a watcher of the node sees it as ADDED."""
    await api.pod("p")
    start = await version(api)
    unbound = {"fieldSelector": "spec.nodeName=,spec.schedulerName=nobody", "resourceVersion": start}
    of_node = {"fieldSelector": "spec.nodeName=n1", "resourceVersion": start}
    async with api.watch(api.pods, **unbound) as waiting, api.watch(api.pods, **of_node) as on_node:
        await api.bind("p", "n1")
        left, entered = await waiting.next(), await on_node.next()
    assert (short(left), short(entered)) == (("DELETED", "p"), ("ADDED", "p"))
    assert left["object"]["metadata"]["resourceVersion"] == entered["object"]["metadata"]["resourceVersion"]


async def test_a_write_that_changes_nothing_is_not_an_event(api: Any) -> None:
    """A patch without effect keeps the version and sends no event."""
    made = await api.pod("p", annotations={"a": "1"})
    async with api.watch(api.pods, resourceVersion=await version(api)) as events:
        same = await api.ok("PATCH", f"{api.pods}/p", {"metadata": {"annotations": {"a": "1"}}}, MERGE)
        await api.pod("after")
        assert short(await events.next()) == ("ADDED", "after")
    assert same["metadata"]["resourceVersion"] == made["metadata"]["resourceVersion"]


async def test_a_streamed_list_ends_with_a_marked_bookmark(api: Any) -> None:
    """sendInitialEvents: everything as ADDED, then a bookmark that marks their end, then changes."""
    await api.pod("a")
    query = {"sendInitialEvents": "true", "allowWatchBookmarks": "true", "resourceVersionMatch": "NotOlderThan"}
    async with api.watch(api.pods, **query) as events:
        added = await events.next()
        if added["type"] == "ERROR":
            assert "RequestWatchProgress" in added["object"]["message"]
            pytest.skip("the etcd behind this server is too old: it cannot tell how far a watch has come")
        bookmark = await events.next()
        await api.pod("b")
        assert short(await events.next()) == ("ADDED", "b")
    assert short(added) == ("ADDED", "a")
    assert bookmark["type"] == "BOOKMARK"
    assert bookmark["object"]["metadata"]["annotations"] == {"k8s.io/initial-events-end": "true"}


async def test_a_version_that_is_forgotten_is_an_error_event_410(dev: Any, devserver: ApiServer) -> None:
    """The stream is accepted, holds one ERROR with a Status 410 Expired, and ends."""
    start = await version(dev)
    await dev.pod("p")
    await dev.pod("q")
    devserver.compact()
    async with dev.watch(dev.pods, resourceVersion=start) as events:
        (error,) = await events.rest()
    assert error["type"] == "ERROR"
    assert (error["object"]["code"], error["object"]["reason"]) == (410, "Expired")


async def test_a_version_before_a_short_history_is_410_and_one_inside_is_served() -> None:
    """History is bounded: what fell off the end cannot be watched from."""
    async with ApiServer(Options(history=3)) as server, aiohttp.ClientSession() as session:
        maps = f"{server.url}/api/v1/namespaces/default/configmaps"
        versions = []
        for number in range(5):
            async with session.post(maps, json={"metadata": {"name": f"c{number}"}}) as response:
                versions.append((await response.json())["metadata"]["resourceVersion"])
        seen = []
        for start in (versions[0], versions[1]):
            query = {"watch": "1", "resourceVersion": start, "timeoutSeconds": "1"}
            async with session.get(maps, params=query) as response:
                lines = (await response.read()).splitlines()
                seen.append([msgspec.json.decode(line)["type"] for line in lines])
    assert seen == [["ERROR"], ["ADDED", "ADDED", "ADDED"]]


async def test_bookmarks_come_only_when_allowed_and_carry_the_version_seen() -> None:
    """A bookmark's version is that of the newest write, here to another collection."""
    async with ApiServer(Options(limits=WatchLimits(bookmark_s=0.05))) as server, aiohttp.ClientSession() as session:
        default = f"{server.url}/api/v1/namespaces/default"
        async with session.post(f"{default}/configmaps", json={"metadata": {"name": "c"}}) as response:
            newest = (await response.json())["metadata"]["resourceVersion"]
        for allowed, expected in (("true", {newest}), ("false", set())):
            query = {"watch": "1", "allowWatchBookmarks": allowed, "timeoutSeconds": "1"}
            async with session.get(f"{default}/pods", params=query) as response:
                events = [msgspec.json.decode(line) for line in (await response.read()).splitlines()]
            assert {event["object"]["metadata"]["resourceVersion"] for event in events} == expected
            assert {event["type"] for event in events} <= {"BOOKMARK"}


async def test_a_watcher_that_reads_too_slowly_is_cut_cleanly_and_resumes_without_loss() -> None:
    """Its stream ends with EOF and no ERROR. From the last version that it saw, it misses none of 3,000 changes."""
    total = 3000
    async with ApiServer(Options(limits=WatchLimits(queue=100))) as server, aiohttp.ClientSession() as session:
        maps = f"{server.url}/api/v1/namespaces/default/configmaps"
        reader, writer = await slow_watcher(server.port)
        for number in range(total):
            body = {"metadata": {"name": f"c{number:05}"}, "data": {"k": "x" * 2000}}
            async with session.post(maps, json=body) as response:
                assert response.status == 201
        first = await read_chunked(reader)
        writer.close()
        assert 0 < len(first) < total
        last = first[-1]["object"]["metadata"]["resourceVersion"]
        query = {"watch": "1", "resourceVersion": last, "timeoutSeconds": "1"}
        async with session.get(maps, params=query) as response:
            rest = [msgspec.json.decode(line) for line in (await response.read()).splitlines()]
    assert {event["type"] for event in first + rest} == {"ADDED"}
    assert [short(event)[1] for event in first + rest] == [f"c{number:05}" for number in range(total)]


async def slow_watcher(port: int) -> tuple[asyncio.StreamReader, asyncio.StreamWriter]:
    """Open a watch over a connection with small buffers, and read only its header."""
    small = socket.socket()
    small.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
    small.connect(("127.0.0.1", port))
    reader, writer = await asyncio.open_connection(sock=small, limit=65536)
    writer.write(b"GET /api/v1/namespaces/default/configmaps?watch=1 HTTP/1.1\r\nHost: x\r\n\r\n")
    await reader.readuntil(b"\r\n\r\n")
    return reader, writer


async def read_chunked(reader: asyncio.StreamReader) -> list[Any]:
    """Read a chunked body to its last chunk; return the JSON lines."""
    body = b""
    while size := int(await reader.readline(), 16):
        body += await reader.readexactly(size)
        await reader.readexactly(2)
    return [msgspec.json.decode(line) for line in body.splitlines()]


async def test_a_version_that_is_not_a_number_does_not_open_a_stream(api: Any) -> None:
    """A list refuses it with 400, a watch answers 500, both with the same message."""
    rule = 'resourceVersion: Invalid value: "abc": strconv.ParseUint: parsing "abc": invalid syntax'
    code, answer = await api.call("GET", f"{api.pods}?watch=1&resourceVersion=abc")
    assert (code, answer.get("reason"), answer["message"]) == (500, None, rule)
    code, answer = await api.call("GET", f"{api.pods}?resourceVersion=abc")
    assert (code, answer["reason"], answer["message"]) == (400, "BadRequest", f"invalid resource version: {rule}")


@pytest.mark.parametrize("group", ["/api/v1", "/apis/events.k8s.io/v1"])
async def test_both_event_apis_watch_the_same_events(api: Any, group: str) -> None:
    """An Event posted to either API is seen in both, each in its own fields."""
    about = {"kind": "Pod", "namespace": api.namespace, "name": "p"}
    posted = {
        "metadata": {"name": "e", "namespace": api.namespace},
        "regarding": about,
        "note": "text",
        "reason": "R",
        "type": "Normal",
        "action": "A",
        "eventTime": "2026-01-01T00:00:00.000000Z",
        "reportingController": "mooring.dev/scheduler",
        "reportingInstance": "i",
    }
    await api.ok("POST", f"/apis/events.k8s.io/v1/namespaces/{api.namespace}/events", posted)
    async with api.watch(f"{group}/namespaces/{api.namespace}/events") as events:
        seen = (await events.next())["object"]
    names = ("involvedObject", "message") if group == "/api/v1" else ("regarding", "note")
    assert (seen[names[0]]["name"], seen[names[1]], seen["reason"]) == ("p", "text", "R")


@pytest.mark.parametrize(("limit", "complete"), [(1, False), (2, True)])
async def test_a_watch_that_has_left_out_a_change_gives_no_bookmark(limit: int, *, complete: bool) -> None:
    """A client that resumed from there would never receive what was left out."""
    watch = Watch(Selector(), limit)
    for revision in (1, 2):
        watch.offer(Change(revision, None, Entry("default", "a", "u", revision, b"{}", {}, {}), gone=False))
    watch.bookmark()
    watch.end()
    assert [(len(batch), bookmark) async for batch, bookmark in watch.batches()] == [(limit, complete)]

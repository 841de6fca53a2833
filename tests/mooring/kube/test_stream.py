"""A stream as it comes off the wire: in pieces that end anywhere, with an error in the midst of changes."""

import asyncio
import json
from collections.abc import AsyncIterator
from contextlib import aclosing

import msgspec
import pytest
from aiohttp import web

from mooring.kube.access import Access
from mooring.kube.client import Client
from mooring.kube.events import Changed, Event, Synced
from mooring.kube.watch import Decoder, watch


class Thing(msgspec.Struct):
    """Nothing of an object but its name."""

    metadata: dict[str, str]


class Server:
    """Lists what it was given, then writes the pieces planned for each stream; it notes the requested version."""

    def __init__(self, *streams: list[bytes], listed: bytes = b"[]") -> None:
        self.streams = list(streams)
        self.listed = listed
        self.versions: list[str] = []

    async def __call__(self, request: web.BaseRequest) -> web.StreamResponse:
        if "watch" not in request.query:
            whole = b'{"kind":"ThingList","metadata":{"resourceVersion":"1"},"items":%s}' % self.listed
            return web.Response(body=whole, content_type="application/json")
        self.versions.append(request.query["resourceVersion"])
        response = web.StreamResponse()
        response.enable_chunked_encoding()
        await response.prepare(request)
        for piece in self.streams.pop(0) if self.streams else []:
            await response.write(piece)
            # A piece is a read of its own at the client.
            await asyncio.sleep(0.01)
        await response.write_eof()
        return response


async def _told(server: Server, count: int) -> list[str]:
    """Return the first events of a watch in short."""
    runner = web.ServerRunner(web.Server(server))
    await runner.setup()
    site = web.TCPSite(runner, "127.0.0.1", 0)
    await site.start()
    host, port = runner.addresses[0][:2]
    found = []
    try:
        async with asyncio.timeout(90), Client(Access(f"http://{host}:{port}")) as client:
            events: AsyncIterator[Event[Thing]] = watch(client, "/things", Decoder(Thing))
            async with aclosing(events) as following:  # type: ignore[type-var]
                async for event in following:
                    found.append(_short(event))
                    if len(found) == count:
                        break
    finally:
        await runner.cleanup()
    return found


def _short(event: Event[Thing]) -> str:
    match event:
        case Synced(entries):
            return f"synced {len(entries)}"
        case Changed(identity):
            return identity.name
        case _:
            return type(event).__name__


def _line(kind: str, name: str, version: int) -> bytes:
    changed = {"metadata": {"name": name, "resourceVersion": str(version)}}
    return json.dumps({"type": kind, "object": changed}).encode() + b"\n"


THREE = b"".join(_line("ADDED", name, version) for version, name in ((2, "a"), (3, "b"), (4, "c")))


@pytest.mark.parametrize("size", [1, 7, 50, len(THREE) - 1, len(THREE)])
async def test_lines_come_whole_wherever_the_pieces_end(size: int) -> None:
    """Pieces may end in the midst of a line and right before its end."""
    pieces = [THREE[start : start + size] for start in range(0, len(THREE), size)]
    if size == 1:
        pieces = [*pieces[:40], THREE[40:]]
    assert await _told(Server(pieces), 4) == ["synced 0", "a", "b", "c"]


async def test_a_line_that_is_cut_off_is_dropped_and_asked_for_again() -> None:
    """The next stream begins after the last whole line."""
    server = Server([THREE[:-3]], [_line("ADDED", "c", 4)])
    assert await _told(server, 4) == ["synced 0", "a", "b", "c"]
    assert server.versions == ["1", "3"]


async def test_changes_before_an_error_in_the_stream_are_kept() -> None:
    """The changes come first, then the set again, as 410 demands; both were in one piece."""
    gone = b'{"type":"ERROR","object":{"kind":"Status","code":410,"message":"too old"}}\n'
    assert await _told(Server([THREE + gone + _line("ADDED", "d", 5)]), 5) == ["synced 0", "a", "b", "c", "synced 0"]


async def test_a_line_that_is_not_an_event_opens_the_stream_again_behind_what_was_read() -> None:
    """No event is delivered twice, none is lost."""
    server = Server([_line("ADDED", "a", 2) + b"nonsense\n" + THREE], [_line("ADDED", "b", 3)])
    assert await _told(server, 3) == ["synced 0", "a", "b"]
    assert server.versions == ["1", "2"]


async def test_a_bookmark_moves_the_version_and_is_told_to_nobody() -> None:
    """The bookmark comes between changes in the same piece."""
    first = _line("ADDED", "a", 2) + _line("BOOKMARK", "", 90)
    server = Server([first], [_line("ADDED", "b", 91)])
    assert await _told(server, 3) == ["synced 0", "a", "b"]
    assert server.versions[1] == "90"


def _deep(name: str) -> bytes:
    return b'{"metadata":{"name":"%s","resourceVersion":"9"},"x":%s%s}' % (
        name.encode(),
        b'{"y":[' * 5000,
        b"]}" * 5000,
    )


async def test_an_object_nested_beyond_reason_hides_no_other() -> None:
    """It is read without the parts nested too deep, in a list and in a stream; else the list would fail for ever."""
    line = b'{"type":"ADDED","object":%s}\n' % _deep("c")
    server = Server([line + _line("ADDED", "d", 10)], listed=b"[%s,%s]" % (_deep("a"), _deep("b")))
    assert await _told(server, 3) == ["synced 2", "c", "d"]

"""An API server in trouble is asked seldom, and by many watches at different times. Time is virtual."""

import asyncio
import itertools
from collections.abc import AsyncIterator, Mapping
from contextlib import aclosing, asynccontextmanager
from typing import Any

import pytest

from mooring.kube.client import Client
from mooring.kube.failures import Gone, Status, Throttled, failure
from mooring.kube.retry import until_definite
from mooring.kube.watch import Decoder, watch
from tests.mooring.kube.test_watch import Node
from tests.scheduler.simulation.clock import VirtualLoop

_LIST = b'{"kind":"NodeList","apiVersion":"v1","metadata":{"resourceVersion":"9"},"items":[]}'
_EXPIRED = b'{"type":"ERROR","object":{"kind":"Status","metadata":{},"code":410,"reason":"Expired"}}'
_BOOKMARK = b'{"type":"BOOKMARK","object":{"kind":"Node","apiVersion":"v1","metadata":{"resourceVersion":"12"}}}'
_LATENCY_S = 0.01


class ApiServer(Client):
    """Answers after a moment and keeps the times of its lists; ``expires`` says what has come too late already."""

    def __init__(self, expires: str, until_s: float = float("inf"), streams_last_s: float = 0.0) -> None:
        self.lists_s: list[float] = []
        self._expires, self._until_s, self._streams_last_s = expires, until_s, streams_last_s

    async def request(self, *_: Any, params: Mapping[str, str] | None = None, **__: Any) -> bytes:
        now_s = asyncio.get_running_loop().time()
        self.lists_s.append(now_s)
        await asyncio.sleep(_LATENCY_S)
        if self._expires == "list" and now_s < self._until_s:
            raise Gone(Status(410, "Expired"))
        return _LIST

    @asynccontextmanager
    async def stream(self, *_: Any, **__: Any) -> AsyncIterator[AsyncIterator[list[bytes]]]:
        yield self._lines()

    async def _lines(self) -> AsyncIterator[list[bytes]]:
        loop = asyncio.get_running_loop()
        await asyncio.sleep(self._streams_last_s or _LATENCY_S)
        if self._expires == "bookmark, watch":
            yield [_BOOKMARK]
        if self._expires.endswith("watch") and loop.time() < self._until_s:
            yield [_EXPIRED]
        elif self._expires != "silence":
            await asyncio.sleep(3600)


async def _watch(server: Client) -> None:
    async with aclosing(watch(server, "/api/v1/nodes", Decoder(Node))) as events:  # type: ignore[type-var]
        async for _ in events:
            pass


def _run(duration_s: float, *servers: ApiServer) -> None:
    async def all_watches() -> None:
        watches = [asyncio.create_task(_watch(server)) for server in servers]
        await asyncio.sleep(duration_s)
        for one in watches:
            one.cancel()
        await asyncio.wait(watches)

    loop = VirtualLoop()
    try:
        loop.run_until_complete(all_watches())
    finally:
        loop.close()


@pytest.mark.parametrize("expires", ["list", "watch", "bookmark, watch"])
def test_a_collection_that_always_expires_is_listed_ever_less_often(expires: str) -> None:
    """410 to every stream, after a bookmark or at once, or to every page: about 14 lists in 100 s, where there were
    5,000.
    """
    server = ApiServer(expires)
    _run(100.0, server)
    assert 6 <= len(server.lists_s) <= 40
    assert max(later - earlier for earlier, later in itertools.pairwise(server.lists_s)) <= 31


def test_watches_that_expire_together_do_not_list_together() -> None:
    """A hundred watches expire at 60 s, as after an API server's restart: their lists are spread over 0.8 s."""
    servers = [ApiServer("watch", until_s=60.5, streams_last_s=60.0) for _ in range(100)]
    _run(70.0, *servers)
    again_s = [server.lists_s[1] for server in servers]
    assert max(again_s) < 61.5
    assert all(sum(start <= one < start + 0.1 for one in again_s) < 40 for start in again_s)


def test_a_watch_that_lasted_is_opened_again_at_once() -> None:
    """An hour with a 410 every five minutes: no wait grows, and each set is there again within a second."""
    server = ApiServer("watch", streams_last_s=300.0)
    _run(3600.0, server)
    assert len(server.lists_s) == 12
    assert server.lists_s[-1] < 11 * 301


@pytest.mark.parametrize(("told", "wait_s"), [("0", 0.0), ("3", 3.0), ("100000", 32.0), ("9" * 400, 32.0)])
def test_retry_after_is_obeyed_up_to_the_longest_wait_of_an_api_server(told: str, wait_s: float) -> None:
    """A proxy's 100,000 s would keep a pod from its node for a day. 0 s is no reason to ask without a pause."""
    failed = failure(429, b"", told)
    assert isinstance(failed, Throttled)
    calls_s: list[float] = []

    @until_definite
    async def call(_: str) -> None:
        calls_s.append(asyncio.get_running_loop().time())
        if len(calls_s) < 9:
            raise failed

    loop = VirtualLoop()
    try:
        loop.run_until_complete(call("path"))
    finally:
        loop.close()
    waits_s = [later - earlier for earlier, later in itertools.pairwise(calls_s)]
    # The clock's differences are not exact.
    assert min(waits_s) > wait_s - 1e-9
    assert 1.0 < sum(waits_s) <= 8 * max(wait_s, 30.0)

"""The publisher against a fake API server in memory: what is written, when, and how often."""

import asyncio
import json
from collections.abc import AsyncIterator, Mapping
from types import SimpleNamespace
from typing import Any, cast

import pytest

from advertiser.publish import publisher as module
from advertiser.publish.publisher import BETWEEN_PATCHES_S, Publisher
from mooring.kube.client import MERGE_PATCH, Client
from mooring.kube.failures import Conflict, KubeError, Refused, Status, Throttled, Unknown
from mooring.names import INVENTORY
from tests.support.polling import until


class Server:
    """A node's annotation; the first requests fail as planned."""

    def __init__(self) -> None:
        self.failures: list[KubeError] = []
        self.writes: list[tuple[float, str]] = []
        self.called = asyncio.Event()
        self.hold = asyncio.Event()
        self.hold.set()

    async def request(
        self, method: str, path: str, body: bytes = b"", content_type: str = "", params: Mapping[str, str] | None = None
    ) -> bytes:
        assert (method, path, content_type, params) == ("PATCH", "/api/v1/nodes/n1", MERGE_PATCH, None)
        self.called.set()
        await self.hold.wait()
        if self.failures:
            raise self.failures.pop(0)
        document: Any = json.loads(body)
        assert document.keys() == {"metadata"}
        assert document["metadata"].keys() == {"annotations"}
        ((key, text),) = document["metadata"]["annotations"].items()
        assert key == INVENTORY
        self.writes.append((asyncio.get_running_loop().time(), text))
        return b"{}"

    @property
    def texts(self) -> list[str]:
        return [text for _, text in self.writes]


@pytest.fixture
def server() -> Server:
    return Server()


@pytest.fixture
async def publisher(server: Server) -> AsyncIterator[Publisher]:
    publisher = Publisher(cast("Client", server), "n1")
    task = asyncio.create_task(publisher.run())
    yield publisher
    task.cancel()
    await asyncio.gather(task, return_exceptions=True)


async def writes(server: Server, count: int) -> list[str]:
    await until(lambda: len(server.writes) >= count)
    return server.texts


async def settled() -> None:
    """Let every task run that can."""
    for _ in range(20):
        await asyncio.sleep(0)


async def test_nothing_is_written_before_both_sides_are_known(server: Server, publisher: Publisher) -> None:
    """Neither the wanted text nor the present one can be guessed."""
    publisher.set_desired_state("a")
    await settled()
    assert server.texts == []
    publisher.set_observed_state(None)
    assert await writes(server, 1) == ["a"]
    assert publisher.is_published


async def test_equal_texts_cost_no_write(server: Server, publisher: Publisher) -> None:
    """A restart of the advertiser on a node at rest writes nothing."""
    publisher.set_observed_state("a")
    publisher.set_desired_state("a")
    await settled()
    assert server.texts == []
    assert publisher.is_published


async def test_what_somebody_wrote_is_put_right(server: Server, publisher: Publisher) -> None:
    """Edited or removed, our value is written again."""
    publisher.set_observed_state("a")
    publisher.set_desired_state("a")
    publisher.set_observed_state("forged")
    assert await writes(server, 1) == ["a"]
    publisher.set_observed_state(None)
    assert await writes(server, 2) == ["a", "a"]


async def test_a_flood_of_changes_is_a_patch_a_second(server: Server, publisher: Publisher) -> None:
    """The last text is the one that is written; those between never are."""
    publisher.set_observed_state(None)
    publisher.set_desired_state("0")
    await writes(server, 1)
    for number in range(1, 500):
        publisher.set_desired_state(str(number))
    assert await writes(server, 2) == ["0", "499"]
    (first, _), (second, _) = server.writes
    assert second - first >= BETWEEN_PATCHES_S


FAILURES = [
    Throttled(Status(429), 0.01),
    Unknown(Status(0)),
    Unknown(Status(503)),
    Conflict(Status(409)),
    Refused(Status(403)),
]


@pytest.mark.parametrize("failure", FAILURES, ids=lambda failure: f"{type(failure).__name__}-{failure.status.code}")
async def test_a_failed_write_is_repeated_with_the_latest_text(
    server: Server, publisher: Publisher, failure: KubeError
) -> None:
    """Throttled, refused, lost: the next attempt writes what is wanted by then."""
    server.failures = [failure, failure]
    server.hold.clear()
    publisher.set_observed_state(None)
    publisher.set_desired_state("old")
    await server.called.wait()
    publisher.set_desired_state("new")
    server.hold.set()
    assert await writes(server, 1) == ["new"]


async def test_a_change_during_the_write_is_not_forgotten(server: Server, publisher: Publisher) -> None:
    """A change that comes during the request is written next."""
    server.hold.clear()
    publisher.set_observed_state(None)
    publisher.set_desired_state("old")
    await server.called.wait()
    publisher.set_desired_state("new")
    server.hold.set()
    assert await writes(server, 2) == ["old", "new"]


async def test_a_node_that_is_gone_is_not_written_to(
    server: Server, publisher: Publisher, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The repetition ends with the node; a new node of that name is written at once."""
    ended = asyncio.Event()

    async def pause(_seconds: float) -> None:
        ended.set()

    # The publisher pauses when a write is over, with all its repetitions.
    monkeypatch.setattr(module, "asyncio", SimpleNamespace(sleep=pause))
    server.failures = [Unknown(Status(0))]
    server.hold.clear()
    publisher.set_observed_state(None)
    publisher.set_desired_state("a")
    await server.called.wait()
    publisher.node_gone()
    server.hold.set()
    await ended.wait()
    assert server.texts == []
    assert not publisher.is_published
    publisher.set_observed_state(None)
    assert await writes(server, 1) == ["a"]

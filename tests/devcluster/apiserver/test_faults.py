"""Planned failures: each happens to the requests it names, as often as planned, and to no others."""

from typing import Any

import aiohttp
import pytest

from devcluster.apiserver.http.faults import Fault
from devcluster.apiserver.serve import ApiServer


async def test_an_answer_is_given_instead_of_the_write(devserver: ApiServer, dev: Any) -> None:
    """The next bind gets a 503 and changes nothing; the one after it is served."""
    await dev.pod("p")
    devserver.faults.plan(Fault("POST", "/binding$", "answer", code=503))
    assert (await dev.bind("p"))[0] == 503
    assert "nodeName" not in (await dev.ok("GET", f"{dev.pods}/p"))["spec"]
    assert (await dev.bind("p"))[0] == 201


@pytest.mark.parametrize(("kind", "bound"), [("drop_before", False), ("drop_after", True)])
async def test_a_dropped_connection_leaves_the_outcome_unknown(
    devserver: ApiServer, dev: Any, kind: Any, bound: bool
) -> None:
    """The client sees the same either way; only the server knows whether the bind was done."""
    await dev.pod("p")
    devserver.faults.plan(Fault("POST", "/binding$", kind))
    with pytest.raises(aiohttp.ClientError):
        await dev.bind("p")
    assert ("nodeName" in (await dev.ok("GET", f"{dev.pods}/p"))["spec"]) == bound


async def test_a_delay_holds_the_answer_back(devserver: ApiServer, dev: Any) -> None:
    """A client that gives up earlier sees a timeout."""
    devserver.faults.plan(Fault("GET", "/pods$", "delay", delay_s=30))
    with pytest.raises(TimeoutError):
        async with dev.session.get(dev.url + dev.pods, timeout=aiohttp.ClientTimeout(total=0.2)):
            pass
    assert (await dev.ok("GET", dev.pods))["items"] == []


async def test_cut_watches_end_cleanly(devserver: ApiServer, dev: Any) -> None:
    """Every open watch gets EOF after what was queued for it."""
    async with dev.watch(dev.pods) as events:
        await dev.pod("p")
        devserver.cut_watches()
        assert [event["type"] for event in await events.rest()] == ["ADDED"]


async def test_a_watcher_that_hangs_up_is_forgotten(devserver: ApiServer, dev: Any) -> None:
    """A closed connection leaves no observer behind."""
    collection = devserver.cluster.store.collection(("", "pods"))
    async with dev.watch(dev.pods) as events:
        await dev.pod("p")
        await events.next()
        assert len(collection.observers()) == 1
    async with dev.watch(dev.pods, timeoutSeconds="1") as events:
        await events.rest()
    assert collection.observers() == []

"""The machine at work against a server, in one process: standing by, leading, evicting, ending; time is the test's."""

import asyncio
import itertools
import time
from collections.abc import AsyncIterator
from functools import partial
from typing import Any

import pytest

from devcluster.apiserver.http.faults import Fault, webhook_fails
from mooring.kube.events import Changed, Identity, Synced
from scheduler.cycle.decisions import Bind
from scheduler.kube.objects import Node, Pod
from scheduler.server import loop as looping
from scheduler.server import writes
from scheduler.server.loop import ApiClients, Loop
from scheduler.server.report_writer import ReportWriter
from scheduler.server.watches import WatchEvent
from tests.scheduler.conftest import MakePod
from tests.scheduler.server.cluster import counter, when
from tests.scheduler.server.stage import Stage
from tests.support.polling import until


@pytest.fixture
async def stage(stage: Stage) -> Stage:
    """Give a stage with one node that has one VF."""
    await stage.add_rdma_node("n1", vfs=1, allocatable={"pods": "1000"})
    return stage


@pytest.fixture
async def standby(stage: Stage) -> AsyncIterator[Stage]:
    """Give a loop that has listed everything."""
    async with stage.run():
        yield stage


@pytest.fixture
async def leader(standby: Stage) -> Stage:
    standby.loop.lead()
    return standby


async def test_a_leader_decides_again_once_its_lease_is_certain_again(standby: Stage) -> None:
    """A renewal that came late and then succeeded brings no message, and pods wait all the same."""
    standby.leads = False
    standby.loop.lead()
    await standby.add_seen_pod("p")
    standby.leads = True
    await standby.bound("p")


async def test_a_lease_that_comes_during_shutdown_starts_nothing(standby: Stage) -> None:
    """Stopped while it asks for the lease, it ends all the same: nothing keeps the lease from the next leader."""
    reflectors = standby.loop.reflectors
    ended = reflectors.end

    async def late() -> None:
        await ended()
        standby.loop.lead()

    reflectors.end = late  # type: ignore[method-assign]
    standby.loop.stop()
    async with asyncio.timeout(90):
        await asyncio.shield(standby.running)


async def test_pods_that_are_listed_together_go_by_age(stage: Stage, make_pod: MakePod) -> None:
    """A scheduler that starts finds them in the order of their names; the oldest comes first all the same."""
    times = itertools.count(1000.0)
    clients, reports = ApiClients(stage.client, stage.client), ReportWriter(stage.client, "mooring")
    loop = Loop(stage.machine, clients, reports, lambda: next(times))
    pods = [make_pod(name) for name in ("c", "b", "a")]
    listed = [Changed(Identity(one.metadata.name, "default", one.metadata.uid), one) for one in reversed(pods)]
    loop._receive(WatchEvent(Pod, Synced(tuple(listed))))
    while loop._list is not None or loop._inbox:
        loop._carry_out(loop._take_next())
    stage.machine.nodes(Changed(Identity("n1"), stage.make_node()), 2000.0)
    decided = [one for _ in pods for one in stage.machine.step(2000.0) or ()]
    assert [one.pod_info.pod.metadata.name for one in decided if isinstance(one, Bind)] == ["c", "b", "a"]


async def test_a_new_leader_decides_on_lists_that_are_no_older_than_its_lease(standby: Stage) -> None:
    """What its watch has missed must not be given again: nothing is decided before the new lists are there."""
    standby.plan(Fault("GET", "/api/v1/pods", "answer", times=3, code=503))
    await standby.add_seen_pod("p", "[{}]")
    standby.loop.lead()
    await until(lambda: not standby.server.faults.planned)
    assert not await standby.is_bound("p")
    await standby.bound("p")


async def test_events_wait_until_few_binds_are_under_way(standby: Stage, monkeypatch: pytest.MonkeyPatch) -> None:
    """An API server that is busy with binds gets no events besides; none is lost."""
    monkeypatch.setattr(looping, "_BINDS_BEFORE_EVENTS", 3)
    monkeypatch.setattr(writes, "_LONG_S", 1000.0)
    release = asyncio.Event()
    standby.plan(Fault("POST", "/slow-[0-9]/binding$", "hold", times=1000, until=release.wait))
    pods = {"quick", "slow-0", "slow-1", "slow-2"}
    for name in sorted(pods):
        await standby.add_pod(name)
    standby.loop.lead()
    await standby.bound("quick")
    await until(lambda: len(standby.loop.writes) == 3)
    marker = await standby.add_pod("marker", schedulerName="another")
    release.set()
    events = await when(standby.events, lambda events: {event["involvedObject"]["name"] for event in events} >= pods)
    # An API server writes events of its own.
    versions = [event["metadata"]["resourceVersion"] for event in events if event["involvedObject"]["name"] in pods]
    assert min(map(int, versions)) > int(marker.metadata.resource_version)


async def test_the_next_binds_begin_once_fewer_are_under_way(leader: Stage, monkeypatch: pytest.MonkeyPatch) -> None:
    """Of four one is answered, and nothing follows; then a second one, and all others follow."""
    monkeypatch.setattr(looping, "_MAX_BINDS", 4)
    monkeypatch.setattr(looping, "_FEWER_BINDS", 3)
    monkeypatch.setattr(writes, "_LONG_S", 1000.0)
    releases = {name: asyncio.Event() for name in "abcd"}
    for name, release in releases.items():
        leader.plan(Fault("POST", f"/{name}/binding$", "hold", times=1000, until=release.wait))
        await leader.add_pod(name)
    await until(lambda: len(leader.loop.writes) == 4)
    for name in "ef":
        await leader.add_seen_pod(name)
    releases["a"].set()
    await leader.bound("a")
    await until(lambda: len(leader.loop.writes) == 3)
    await leader.add_seen_pod("g")
    assert not await leader.is_bound("e")
    releases["b"].set()
    await leader.bound("e", "f", "g")
    for release in releases.values():
        release.set()


async def test_nothing_is_decided_or_sent_while_the_lease_is_uncertain(leader: Stage) -> None:
    """Neither a new decision nor the repetition of a Binding; both once the lease is certain again."""
    leader.plan(Fault("POST", "/binding$", "answer", times=1000, code=503))
    first = await leader.add_pod("first")
    await until(lambda: leader.server.faults.planned[0].times < 1000)
    leader.leads = False
    await leader.add_seen_pod("second")
    await until(lambda: leader.unsent > 1)
    # Not before: a request that was on its way would be answered well.
    leader.server.faults.planned.clear()
    assert not await leader.is_bound("first")
    assigned = leader.machine.cache.assigned(first.metadata.uid)
    assert assigned is not None, "the reservation stands: nobody knows what became of the Binding"
    assert leader.machine.pending_pods.depths()["active"] == 1
    leader.leads = True
    await leader.bound("first", "second")


@pytest.mark.parametrize("delay_s", [0.0, 30.0])
async def test_a_failing_webhook_of_one_namespace_delays_no_bind_of_others(leader: Stage, delay_s: float) -> None:
    """Also where its pods wait in hundreds, and each Binding for half a minute."""
    # A real API server keeps the namespace of the test before.
    bad = f"bad-{delay_s:.0f}"
    leader.plan(webhook_fails("POST", f"/{bad}/pods/.*/binding$", times=100_000, delay_s=delay_s))
    await leader.call("POST", "/api/v1/namespaces", {"metadata": {"name": bad}})
    for number in range(200):
        await leader.add_pod(f"p{number}", namespace=bad)
    await until(lambda: leader.server.faults.planned[0].times < 100_000)
    began = time.monotonic()
    await leader.add_pod("good")
    await leader.bound("good")
    assert time.monotonic() - began < 20.0
    leader.server.faults.planned.clear()


async def test_a_node_that_changes_constantly_delays_no_pod(leader: Stage, monkeypatch: pytest.MonkeyPatch) -> None:
    """As soon as one change is taken in the next one is there."""
    handle, changes = leader.machine.handle, 0

    def handle_and_send(kind: type[Any], event: Any, now: float) -> Any:
        nonlocal changes
        if kind is Node and isinstance(event, Changed) and event.identity.name == "restless":
            changes += 1
            leader.loop._receive(WatchEvent(kind, event))
        return handle(kind, event, now)

    monkeypatch.setattr(leader.machine, "handle", handle_and_send)
    node = leader.make_node("restless", ready=False)
    leader.loop._receive(WatchEvent(Node, Changed(Identity("restless"), node)))
    await leader.add_pod("p")
    await leader.bound("p")
    assert changes > 10


async def test_our_own_status_write_requeues_no_pod(leader: Stage) -> None:
    """One try, one condition: what we write about a pod requeues neither it nor another."""
    name = "scheduler_schedule_attempts_total"
    attempts = partial(counter, name, result="unschedulable", profile="mooring")
    before = attempts()
    for name in ("p", "q"):
        await leader.add_pod(name, nodeSelector={"no": name})
    for name in ("p", "q"):
        await leader.message_of(name)
    # Backoffs are over, and a change comes that the machine is seen to take in after those of the conditions.
    leader.now += 100.0
    await leader.add_seen_pod("last", schedulerName="other", nodeName="n1")
    leader.loop.stop()
    await leader.running
    assert attempts() - before == 2

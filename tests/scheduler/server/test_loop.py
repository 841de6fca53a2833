"""The machine at work against a server, in one process: standing by, leading, evicting, ending; time is the test's."""

import asyncio
import itertools
import time
from typing import Any

import pytest
from prometheus_client.registry import REGISTRY

from devcluster.apiserver.http.faults import Fault, webhook_fails
from mooring.kube.events import Changed, Identity, Synced
from scheduler.cycle.decisions import Bind
from scheduler.kube.objects import Node, Pod
from scheduler.server import loop as looping
from scheduler.server.loop import ApiClients, Loop
from scheduler.server.report_writer import ReportWriter
from scheduler.server.watches import WatchEvent
from tests.scheduler.conftest import MakeNode, MakePf, MakePod
from tests.scheduler.server.stage import Stage
from tests.support.polling import eventually, until


@pytest.fixture
async def stage(stage: Stage, make_node: MakeNode, make_pf: MakePf) -> Stage:
    """Give a stage with one node that has one VF."""
    await stage.add_node(make_node("n1", (make_pf(vfs=1),), allocatable={"pods": "1000"}))
    return stage


async def test_a_standby_follows_the_cluster_and_decides_nothing(stage: Stage) -> None:
    """It is ready to take over; once it leads it lists everything again, and binds."""
    async with stage.run():
        await stage.add_seen_pod("p")
        await _is_ready(stage)
        await stage.add_seen_pod("q", nodeSelector={"no": "where"})
        assert stage.machine.pending_pods.depths()["active"] == 2
        assert not await stage.is_bound("p")
        stage.loop.lead()
        await stage.bound("p")


async def test_a_leader_decides_again_once_its_lease_is_certain_again(stage: Stage) -> None:
    """A renewal that came late and then succeeded brings no message, and pods wait all the same."""
    async with stage.run():
        await _is_ready(stage)
        stage.leads = False
        stage.loop.lead()
        await stage.add_seen_pod("p")
        stage.leads = True
        await stage.bound("p")


async def test_a_lease_that_comes_during_shutdown_starts_nothing(stage: Stage) -> None:
    """Stopped while it asks for the lease, it ends all the same: nothing keeps the lease from the next leader."""
    async with stage.run() as running:
        await _is_ready(stage)
        ended = stage.loop.reflectors.end

        async def late() -> None:
            await ended()
            stage.loop.lead()

        stage.loop.reflectors.end = late  # type: ignore[method-assign]
        stage.loop.stop()
        async with asyncio.timeout(90):
            await asyncio.shield(running)


async def _is_ready(stage: Stage) -> None:
    await until(lambda: stage.loop.reflectors.not_ready() == "")


async def test_pods_that_are_listed_together_go_by_age(stage: Stage, make_node: MakeNode, make_pod: MakePod) -> None:
    """A scheduler that starts finds them in the order of their names; the oldest comes first all the same."""
    times = itertools.count(1000.0)
    clients, reports = ApiClients(stage.client, stage.client), ReportWriter(stage.client, "mooring")
    loop = Loop(stage.machine, clients, reports, lambda: next(times))
    pods = [make_pod(name) for name in ("c", "b", "a")]
    listed = [Changed(Identity(one.metadata.name, "default", one.metadata.uid), one) for one in reversed(pods)]
    loop._receive(WatchEvent(Pod, Synced(tuple(listed))))
    while loop._list is not None or loop._inbox:
        loop._carry_out(loop._take_next())
    stage.machine.nodes(Changed(Identity("n1"), make_node()), 2000.0)
    decided = [one for _ in pods for one in stage.machine.step(2000.0) or ()]
    assert [one.pod_info.pod.metadata.name for one in decided if isinstance(one, Bind)] == ["c", "b", "a"]


async def test_a_new_leader_decides_on_lists_that_are_no_older_than_its_lease(stage: Stage) -> None:
    """What its watch has missed must not be given again: nothing is decided before the new lists are there."""
    async with stage.run():
        await _is_ready(stage)
        stage.server.faults.plan(Fault("GET", "/api/v1/pods", "answer", times=3, code=503))
        await stage.add_seen_pod("p", "[{}]")
        stage.loop.lead()
        await until(lambda: not stage.server.faults.planned)
        assert not await stage.is_bound("p")
        await stage.bound("p")


async def test_no_bind_starts_before_its_time(stage: Stage) -> None:
    """An earlier leader's last Bindings are waited out."""
    await stage.add_pod("p")
    async with stage.run():
        began = time.monotonic()
        stage.loop.lead(began + 1.0)
        await stage.bound("p")
        assert time.monotonic() - began >= 1.0


async def test_events_wait_until_few_binds_are_under_way(stage: Stage, monkeypatch: pytest.MonkeyPatch) -> None:
    """An API server that is busy with binds gets no events besides; none is lost."""
    monkeypatch.setattr(looping, "_BINDS_BEFORE_EVENTS", 3)
    stage.server.faults.plan(Fault("POST", "/slow-[0-9]/binding$", "delay", times=3, delay_s=1.0))
    pods = ["quick", "slow-0", "slow-1", "slow-2"]
    for name in pods:
        await stage.add_pod(name)
    async with stage.lead():
        await stage.bound("quick")
        await until(lambda: len(stage.loop.writes) == 3)
        marker = await stage.add_pod("marker", schedulerName="another")

        async def are_told() -> bool:
            return {event["involvedObject"]["name"] for event in await stage.events()} >= set(pods)

        await eventually(are_told)
        versions = [int(event["metadata"]["resourceVersion"]) for event in await stage.events()]
        assert min(versions) > int(marker.metadata.resource_version)


async def test_with_most_binds_under_way_the_next_begin_when_fewer_are_than_connections(
    stage: Stage, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Of four one is answered after 0.3 s, and nothing follows; the second after 1 s, and all others follow."""
    monkeypatch.setattr(looping, "_MAX_BINDS", 4)
    monkeypatch.setattr(looping, "_FEWER_BINDS", 3)
    for name, delay_s in (("a", 0.3), ("b", 1.0), ("c", 1.5), ("d", 1.5)):
        stage.server.faults.plan(Fault("POST", f"/{name}/binding$", "delay", delay_s=delay_s))
    async with stage.lead():
        for name in "abcd":
            await stage.add_pod(name)
        await until(lambda: len(stage.loop.writes) == 4)
        began = time.monotonic()
        for name in "ef":
            await stage.add_pod(name)
        await stage.bound("e")
        assert time.monotonic() - began > 0.6
        await stage.bound("f")


async def test_nothing_is_decided_or_sent_while_the_lease_is_uncertain(stage: Stage) -> None:
    """Neither a new decision nor the repetition of a Binding; both once the lease is certain again."""
    stage.server.faults.plan(Fault("POST", "/binding$", "answer", times=1000, code=503))
    async with stage.lead():
        first = await stage.add_pod("first")
        await until(lambda: stage.server.faults.planned[0].times < 1000)
        stage.leads = False
        await stage.add_seen_pod("second")
        await until(lambda: stage.unsent > 1)
        # Not before: a request that was on its way would be answered well.
        stage.server.faults.planned.clear()
        assert not await stage.is_bound("first")
        assigned = stage.machine.cache.assigned(first.metadata.uid)
        assert assigned is not None, "the reservation stands: nobody knows what became of the Binding"
        assert stage.machine.pending_pods.depths()["active"] == 1
        stage.leads = True
        await stage.bound("first")
        await stage.bound("second")


@pytest.mark.parametrize("delay_s", [0.0, 4.0])
async def test_a_webhook_of_one_namespace_that_does_not_answer_delays_no_bind_of_others(
    stage: Stage, delay_s: float
) -> None:
    """Also where its pods wait in hundreds, and each Binding for some seconds."""
    # A real API server keeps the namespace of the test before.
    bad = f"bad-{delay_s:.0f}"
    stage.server.faults.plan(webhook_fails("POST", f"/{bad}/pods/.*/binding$", times=100_000, delay_s=delay_s))
    await stage.call("POST", "/api/v1/namespaces", {"metadata": {"name": bad}})
    async with stage.lead():
        for number in range(200):
            await stage.add_pod(f"p{number}", namespace=bad)
        await until(lambda: stage.server.faults.planned[0].times < 100_000)
        began = time.monotonic()
        await stage.add_pod("good")
        await stage.bound("good")
        assert time.monotonic() - began < 4.0
        stage.server.faults.planned.clear()


async def test_a_node_that_changes_all_the_time_keeps_nobody_waiting(
    stage: Stage, make_node: MakeNode, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As soon as one change is taken in the next one is there."""
    see, changes = stage.machine.handle, 0

    def see_and_send(kind: type[Any], event: Any, now: float) -> Any:
        nonlocal changes
        if kind is Node and isinstance(event, Changed) and event.identity.name == "restless":
            changes += 1
            stage.loop._receive(WatchEvent(kind, event))
        return see(kind, event, now)

    monkeypatch.setattr(stage.machine, "handle", see_and_send)
    async with stage.lead():
        stage.loop._receive(WatchEvent(Node, Changed(Identity("restless"), make_node("restless", ready=False))))
        await stage.add_pod("p")
        await stage.bound("p")
    assert changes > 10


async def test_stopping_waits_for_the_binds_under_way(stage: Stage) -> None:
    """Their outcomes are reported too; nothing new is started."""
    stage.server.faults.plan(Fault("POST", "/binding$", "delay", delay_s=1.0))
    async with stage.lead() as running:
        await stage.add_pod("p")
        await until(lambda: not stage.server.faults.planned)
        stage.loop.stop()
        assert await running is True
    assert await stage.is_bound("p")
    assert await stage.reasons("p") == ["Scheduled"]


async def test_our_own_status_write_requeues_no_pod(stage: Stage) -> None:
    """One try, one condition: what we write about a pod requeues neither it nor another."""
    before = _attempts()
    async with stage.lead():
        for name in ("p", "q"):
            await stage.add_pod(name, nodeSelector={"no": name})
        for name in ("p", "q"):
            await stage.message_of(name)
        # Backoffs are over, and a change comes that the machine is seen to take in after those of the conditions.
        stage.now += 100.0
        await stage.add_seen_pod("last", schedulerName="other", nodeName="n1")
    assert _attempts() - before == 2


def _attempts() -> float:
    labels = {"result": "unschedulable", "profile": "mooring"}
    return REGISTRY.get_sample_value("scheduler_schedule_attempts_total", labels) or 0.0

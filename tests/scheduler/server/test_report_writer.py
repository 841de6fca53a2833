"""Conditions and events against a server: the newest wins, too many are dropped, and outdated ones are not written."""

import asyncio
import json
import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import pytest

from devcluster.apiserver.http.faults import Fault, webhook_fails
from devcluster.apiserver.serve import ApiServer
from mooring import names
from mooring.kube.client import STRATEGIC_PATCH, Client
from mooring.kube.failures import KubeError
from scheduler.cycle.instructions import Report
from scheduler.kube.objects import Pod
from scheduler.server import report_writer as writing
from scheduler.server.report_writer import ReportWriter
from scheduler.server.reports import status_patch
from tests.scheduler.conftest import MakePod
from tests.scheduler.server.cluster import PODS, Cluster
from tests.support.polling import eventually, until

own_server_only = pytest.mark.parametrize("server", ["devcluster"], indirect=True)


@asynccontextmanager
async def _at_work(writer: ReportWriter) -> AsyncIterator[ReportWriter]:
    task = asyncio.create_task(writer.run())
    yield writer
    task.cancel()
    await asyncio.gather(task, return_exceptions=True)


@pytest.fixture
async def writer(client: Client) -> AsyncIterator[ReportWriter]:
    """Give a writer at work."""
    async with _at_work(ReportWriter(client, "mooring")) as writer:
        yield writer


def _no_room(pod: Pod) -> Report:
    return Report(pod, "Unschedulable", "no room")


async def _is_told(cluster: Cluster, name: str = "p", message: str = "no room") -> None:
    """Wait until a pod's condition has this message."""

    async def found() -> bool:
        condition = await cluster.condition(name)
        return condition is not None and (condition.status, condition.message) == ("False", message)

    await eventually(found)


async def _counts(cluster: Cluster) -> list[tuple[str, int]]:
    return sorted((one["message"], one["count"]) for one in await cluster.events())


async def _has_events(cluster: Cluster, count: int) -> None:
    async def found() -> bool:
        return len(await cluster.events()) >= count

    await eventually(found)


async def test_a_pod_that_waits_is_told_by_condition_and_event(cluster: Cluster, writer: ReportWriter) -> None:
    """The event carries why as data."""
    writer.put(Report(await cluster.add_pod(), "Unschedulable", "no room", {"v": 1, "nodes": 3}))
    await _is_told(cluster)
    await writer.flush()
    (event,) = await cluster.events()
    assert (event["reason"], event["message"], event["type"]) == ("FailedScheduling", "no room", "Warning")
    assert json.loads(event["metadata"]["annotations"][names.WHY]) == {"v": 1, "nodes": 3}


async def test_while_pods_wait_for_their_decision_few_reports_are_written(
    cluster: Cluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A tenant's pods that fit nowhere must not hold up others by what is told about them; all is told afterwards."""
    monkeypatch.setattr(writing, "_AMID_DECISIONS_PER_S", 1e-6)
    monkeypatch.setattr(writing, "_AMID_DECISIONS_BURST", 3.0)
    writer = ReportWriter(cluster.client, "mooring")
    writer.give_way(is_busy=False, amid_decisions=True)
    pod = await cluster.add_pod()
    for number in range(20):
        writer.put(Report(pod, "Scheduled", f"message {number}"))
    async with _at_work(writer):
        await _has_events(cluster, 3)
        # As long as a token is awaited nothing more is written: this round trip takes longer than an event.
        await cluster.add_pod("other")
        assert len(await cluster.events()) == 3
        writer.give_way(is_busy=False, amid_decisions=False)
        await _has_events(cluster, 20)


@own_server_only
async def test_of_many_messages_about_a_pod_the_newest_is_written(
    cluster: Cluster, server: ApiServer, writer: ReportWriter
) -> None:
    """A hundred at once are one write, not a hundred."""
    pod = await cluster.add_pod()
    before = server.cluster.store.revision
    for number in range(20):
        writer.put(Report(pod, "Unschedulable", f"message {number}"))
    await _is_told(cluster, message="message 19")
    await writer.flush()
    # One condition, and the events of which each text has its own.
    assert server.cluster.store.revision - before == 1 + 20


@pytest.mark.parametrize("is_written_to", [False, True])
async def test_a_nomination_survives_a_newer_message_without_one(
    cluster: Cluster, writer: ReportWriter, *, is_written_to: bool
) -> None:
    """The newer one does not mention it; also if the older was answered with a conflict."""
    pod = await cluster.add_pod()
    await cluster.patch(f"{PODS}/p/status", status={"nominatedNodeName": "n1"})
    pod = pod if is_written_to else await cluster.pod()
    writer.put(Report(pod, "Unschedulable", "given up", nominated=""))
    if is_written_to:
        await asyncio.sleep(0)
    writer.put(_no_room(await cluster.pod() if is_written_to else pod))
    await _is_told(cluster)
    assert (await cluster.pod()).status.nominated_node_name is None


async def test_what_is_outdated_is_not_written_and_delays_no_other_report(
    cluster: Cluster, writer: ReportWriter
) -> None:
    """A pod that was bound meanwhile, one that is gone, and one whose name another pod has.

    The version in the patch is a precondition.
    """
    bound, gone, other = [await cluster.add_pod(name) for name in ("bound", "gone", "other")]
    await cluster.bind("bound")
    await cluster.call("DELETE", f"{PODS}/gone")
    await cluster.call("DELETE", f"{PODS}/other")
    await cluster.add_pod("other")
    for pod in (bound, gone, other, await cluster.add_pod("last")):
        writer.put(_no_room(pod))
    await _is_told(cluster, "last")
    condition = await cluster.condition("bound")
    assert condition is not None
    assert condition.status == "True"
    assert await cluster.condition("other") is None


@pytest.mark.parametrize(("version", "code"), [("same", 422), ("stale", 409)])
async def test_a_condition_for_another_uid_is_refused(
    cluster: Cluster, make_pod: MakePod, version: str, code: int
) -> None:
    """Whatever its version: 422 as the change of a fixed field, 409 where the version differs too."""
    there = (await cluster.add_pod()).metadata
    fixed = {"name": "p", "uid": "00000000-0000-0000-0000-000000000000"}
    asked = make_pod(metadata=fixed | {"resourceVersion": there.resource_version if version == "same" else "1"})
    patch = status_patch(_no_room(asked), "2026-01-01T00:00:00Z")
    with pytest.raises(KubeError) as refused:
        await cluster.client.request("PATCH", f"{PODS}/p/status", patch, STRATEGIC_PATCH)
    assert refused.value.status.code == code
    assert await cluster.condition() is None


async def test_a_report_is_written_though_the_pod_has_changed_meanwhile(cluster: Cluster, writer: ReportWriter) -> None:
    """It is read again if it has changed but still waits."""
    pod = await cluster.add_pod()
    await cluster.annotate("p", a="b")
    writer.put(_no_room(pod))
    await _is_told(cluster)


@own_server_only
async def test_a_bind_drops_the_reports_that_are_not_written_yet(
    cluster: Cluster, server: ApiServer, writer: ReportWriter
) -> None:
    """A pod that was bound is not reported as pending any more."""
    pod = await cluster.add_pod()
    before = server.cluster.store.revision
    writer.put(_no_room(pod))
    writer.put(Report(pod, "Scheduled", "assigned"))
    await writer.flush()
    await until(lambda: server.cluster.store.revision == before + 2)
    assert await cluster.condition() is None


async def test_conditions_are_written_at_a_limited_rate(cluster: Cluster, monkeypatch: pytest.MonkeyPatch) -> None:
    """However many pods wait: a burst, then so many a second; events are not delayed by it."""
    monkeypatch.setattr(writing, "_CONDITIONS_PER_S", 0.1)
    monkeypatch.setattr(writing, "_CONDITION_BURST", 3.0)
    writer = ReportWriter(cluster.client, "mooring")
    pods = [await cluster.add_pod(f"p{number}") for number in range(10)]

    async def told() -> int:
        return sum(bool(pod.status.conditions) for pod in (await cluster.pods()).values())

    async def burst_is_over() -> bool:
        return await told() >= 3

    async with _at_work(writer):
        for pod in pods:
            writer.put(_no_room(pod))
        await eventually(burst_is_over)
        await writer.flush()
        assert (len(await cluster.events()), await told()) == (10, 3)


async def test_events_are_dropped_when_too_many_wait(
    cluster: Cluster, server: ApiServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    """`put` never waits and never grows: what a slow API server cannot take is lost, and counted."""
    monkeypatch.setattr(writing, "_MAX_EVENTS", 5)
    server.faults.plan(Fault("POST", "/events$", "delay", times=100, delay_s=0.2))
    writer = ReportWriter(cluster.client, "mooring")
    for number in range(20):
        writer.put(Report(await cluster.add_pod(f"p{number}"), "Scheduled", "assigned"))
    async with _at_work(writer):
        await writer.flush()
        assert len(await cluster.events()) == 5


async def test_a_repeated_event_is_counted(cluster: Cluster, writer: ReportWriter) -> None:
    """One object has the count; if it has gone meanwhile, it is created again."""
    pod = await cluster.add_pod()
    for message in ("no room", "no cpu", "no room"):
        writer.put(Report(pod, "Unschedulable", message))
        await writer.flush()
    assert await _counts(cluster) == [("no cpu", 1), ("no room", 2)]
    for event in await cluster.events():
        await cluster.call("DELETE", f"/api/v1/namespaces/default/events/{event['metadata']['name']}")
    writer.put(_no_room(pod))
    await writer.flush()
    assert await _counts(cluster) == [("no room", 1)]


@own_server_only
@pytest.mark.parametrize("delay_s", [0.0, 30.0])
async def test_a_webhook_of_one_namespace_that_does_not_answer_delays_no_report_of_others(
    cluster: Cluster, server: ApiServer, writer: ReportWriter, delay_s: float
) -> None:
    """Its events and conditions are tried seldom, and those of others are written at once."""
    for method, path in (("POST", "/bad/events$"), ("PATCH", "/bad/pods/.*/status$")):
        server.faults.plan(webhook_fails(method, path, times=1000, delay_s=delay_s))
    await cluster.call("POST", "/api/v1/namespaces", {"metadata": {"name": "bad"}})
    for number in range(40):
        writer.put(_no_room(await cluster.add_pod(f"p{number}", namespace="bad")))
    began = time.monotonic()
    writer.put(_no_room(await cluster.add_pod("good")))
    await _is_told(cluster, "good")
    await _has_events(cluster, 1)
    assert time.monotonic() - began < 5.0
    assert 1000 - server.faults.planned[0].times < 20


@own_server_only
async def test_what_a_webhook_has_denied_is_written_once_it_answers(
    cluster: Cluster, server: ApiServer, writer: ReportWriter
) -> None:
    """One event each, and the newest condition."""
    server.faults.plan(webhook_fails("POST", "/events$"))
    server.faults.plan(webhook_fails("PATCH", "/p/status$"))
    writer.put(_no_room(await cluster.add_pod()))
    await _is_told(cluster)
    await writer.flush()
    assert await _counts(cluster) == [("no room", 1)]


@own_server_only
async def test_an_event_whose_answer_was_lost_is_not_written_twice(
    cluster: Cluster, server: ApiServer, writer: ReportWriter
) -> None:
    """The next try has its name."""
    server.faults.plan(Fault("POST", "/events$", "drop_after"))
    writer.put(Report(await cluster.add_pod(), "Scheduled", "assigned"))
    await writer.flush()
    assert len(await cluster.events()) == 1
    assert not server.faults.planned

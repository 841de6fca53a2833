"""Conditions and events against a server: the newest wins, too many are dropped, and outdated ones are not written."""

import asyncio
import contextlib
import json
import time
from collections.abc import AsyncIterator, Callable
from typing import Any

import msgspec
import pytest

from devcluster.apiserver.http.faults import Fault, webhook_fails
from devcluster.apiserver.serve import ApiServer
from mooring import names
from mooring.kube.client import STRATEGIC_PATCH, Client
from mooring.kube.failures import Conflict, KubeError
from scheduler.cycle.instructions import Report
from scheduler.kube.objects import Pod
from scheduler.server import report_writer as writing
from scheduler.server.report_writer import ReportWriter
from scheduler.server.reports import status_patch
from tests.support.polling import eventually

PODS = "/api/v1/namespaces/default/pods"
Put = Callable[[Report], None]


@pytest.fixture
async def writer(client: Client) -> AsyncIterator[ReportWriter]:
    """Give a writer at work."""
    writer = ReportWriter(client, "mooring")
    task = asyncio.create_task(writer.run())
    yield writer
    task.cancel()
    await asyncio.gather(task, return_exceptions=True)


async def _create(client: Client, name: str) -> Pod:
    spec = {"schedulerName": "mooring", "containers": [{"name": "c", "image": "i"}]}
    body = msgspec.json.encode({"metadata": {"name": name}, "spec": spec})
    return msgspec.json.decode(await client.request("POST", PODS, body), type=Pod)


async def _get(client: Client, name: str) -> Pod:
    return msgspec.json.decode(await client.request("GET", f"{PODS}/{name}"), type=Pod)


async def _condition(client: Client, name: str) -> tuple[str, str | None] | None:
    conditions = (await _get(client, name)).status.conditions or []
    return next(((one.status, one.message) for one in conditions if one.type == "PodScheduled"), None)


async def _events(client: Client) -> list[Any]:
    found: list[Any] = json.loads(await client.request("GET", "/api/v1/events"))["items"]
    return found


async def test_a_pod_that_waits_is_told_by_condition_and_event(client: Client, writer: ReportWriter) -> None:
    """The event carries why as data."""
    pod = await _create(client, "p")
    writer.put(Report(pod, "Unschedulable", "no room", {"v": 1, "nodes": 3}))
    await eventually(lambda: _has_condition(client, "p", "no room"))
    await writer.flush()
    (event,) = await _events(client)
    assert (event["reason"], event["message"], event["type"]) == ("FailedScheduling", "no room", "Warning")
    assert json.loads(event["metadata"]["annotations"][names.WHY]) == {"v": 1, "nodes": 3}


async def _has_condition(client: Client, name: str, message: str) -> bool:
    return await _condition(client, name) == ("False", message)


async def test_while_pods_wait_for_their_decision_few_reports_are_written(
    client: Client, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A tenant's pods that fit nowhere must not hold up others by what is told about them; all is told afterwards."""
    monkeypatch.setattr(writing, "_AMID_DECISIONS_PER_S", 1e-6)
    monkeypatch.setattr(writing, "_AMID_DECISIONS_BURST", 3.0)
    writer = ReportWriter(client, "mooring")
    writer.give_way(is_busy=False, amid_decisions=True)
    pod = await _create(client, "p")
    for number in range(20):
        writer.put(Report(pod, "Scheduled", f"message {number}"))
    async with asyncio.TaskGroup() as group:
        task = group.create_task(writer.run())
        await eventually(lambda: _are_told(client, 3))
        # As long as a token is awaited nothing more is written: this round trip takes longer than an event.
        await _create(client, "other")
        assert len(await _events(client)) == 3
        writer.give_way(is_busy=False, amid_decisions=False)
        await eventually(lambda: _are_told(client, 20))
        task.cancel()


async def _are_told(client: Client, count: int) -> bool:
    return len(await _events(client)) >= count


@pytest.mark.parametrize("server", ["devcluster"], indirect=True)
async def test_of_many_messages_about_a_pod_the_newest_is_written(
    client: Client, server: ApiServer, writer: ReportWriter
) -> None:
    """A hundred at once are one write, not a hundred."""
    pod = await _create(client, "p")
    before = server.cluster.store.revision
    for number in range(20):
        writer.put(Report(pod, "Unschedulable", f"message {number}"))
    await eventually(lambda: _has_condition(client, "p", "message 19"))
    await writer.flush()
    # One condition, and the events of which each text has its own.
    assert server.cluster.store.revision - before == 1 + 20


@pytest.mark.parametrize("is_written_to", [False, True])
async def test_a_nomination_survives_a_newer_message_without_one(
    client: Client, writer: ReportWriter, *, is_written_to: bool
) -> None:
    """The newer one does not mention it; also if the older was answered with a conflict."""
    pod = await _create(client, "p")
    nominated = msgspec.json.encode({"status": {"nominatedNodeName": "n1"}})
    await client.request("PATCH", f"{PODS}/p/status", nominated, STRATEGIC_PATCH)
    pod = pod if is_written_to else await _get(client, "p")
    writer.put(Report(pod, "Unschedulable", "given up", nominated=""))
    if is_written_to:
        await asyncio.sleep(0)
    writer.put(Report(await _get(client, "p") if is_written_to else pod, "Unschedulable", "no room"))
    await eventually(lambda: _has_condition(client, "p", "no room"))
    assert (await _get(client, "p")).status.nominated_node_name is None


async def test_a_pod_that_was_bound_meanwhile_is_not_reported_as_pending(client: Client, writer: ReportWriter) -> None:
    """The Binding overtook the condition: the version in the patch is a precondition."""
    pod = await _create(client, "p")
    target = {"apiVersion": "v1", "kind": "Node", "name": "n1"}
    binding = {"apiVersion": "v1", "kind": "Binding", "metadata": {"name": "p"}, "target": target}
    await client.request("POST", f"{PODS}/p/binding", msgspec.json.encode(binding))
    writer.put(Report(pod, "Unschedulable", "no room"))
    other = await _create(client, "other")
    writer.put(Report(other, "Unschedulable", "no room"))
    await eventually(lambda: _has_condition(client, "other", "no room"))
    condition = await _condition(client, "p")
    assert condition is not None
    assert condition[0] == "True"


async def test_a_report_is_not_written_to_another_pod_of_the_same_name(client: Client, writer: ReportWriter) -> None:
    """Another pod of the same name has another uid and version: the decision was not about it."""
    gone = await _create(client, "p")
    await client.request("DELETE", f"{PODS}/p")
    await _create(client, "p")
    writer.put(Report(gone, "Unschedulable", "no room"))
    other = await _create(client, "other")
    writer.put(Report(other, "Unschedulable", "no room"))
    await eventually(lambda: _has_condition(client, "other", "no room"))
    assert await _condition(client, "p") is None


@pytest.mark.parametrize(("version", "code"), [("same", 422), ("stale", 409)])
async def test_a_condition_for_another_uid_is_refused(
    client: Client, make_pod: Callable[..., Pod], version: str, code: int
) -> None:
    """Whatever its version: 422 as the change of a fixed field, 409 where the version differs too."""
    there = (await _create(client, "p")).metadata
    fixed = {"name": "p", "uid": "00000000-0000-0000-0000-000000000000"}
    asked = make_pod(metadata=fixed | {"resourceVersion": there.resource_version if version == "same" else "1"})
    patch = status_patch(Report(asked, "Unschedulable", "no room"), "2026-01-01T00:00:00Z")
    with pytest.raises(KubeError) as refused:
        await client.request("PATCH", f"{PODS}/p/status", patch, STRATEGIC_PATCH)
    assert refused.value.status.code == code
    assert await _condition(client, "p") is None


async def test_a_report_is_written_though_the_pod_has_changed_meanwhile(client: Client, writer: ReportWriter) -> None:
    """It is read again if it has changed but still waits."""
    pod = await _create(client, "p")
    patch = msgspec.json.encode({"metadata": {"annotations": {"a": "b"}}})
    await client.request("PATCH", f"{PODS}/p", patch, "application/merge-patch+json")
    writer.put(Report(pod, "Unschedulable", "no room"))
    await eventually(lambda: _has_condition(client, "p", "no room"))


@pytest.mark.parametrize("server", ["devcluster"], indirect=True)
async def test_a_bind_drops_the_reports_that_are_not_written_yet(
    client: Client, server: ApiServer, writer: ReportWriter
) -> None:
    """A pod that was bound is not reported as pending any more."""
    pod = await _create(client, "p")
    before = server.cluster.store.revision
    writer.put(Report(pod, "Unschedulable", "no room"))
    writer.put(Report(pod, "Scheduled", "assigned"))
    await writer.flush()
    await eventually(lambda: _all_told(server, before + 2))
    assert await _condition(client, "p") is None


async def _all_told(server: ApiServer, revision: int) -> bool:
    return server.cluster.store.revision == revision


async def test_conditions_are_written_at_a_limited_rate(
    client: Client, server: ApiServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    """However many pods wait: a burst, then so many a second; events are not delayed by it."""
    monkeypatch.setattr(writing, "_CONDITIONS_PER_S", 0.1)
    monkeypatch.setattr(writing, "_CONDITION_BURST", 3.0)
    writer = ReportWriter(client, "mooring")
    pods = [await _create(client, f"p{number}") for number in range(10)]
    task = asyncio.create_task(writer.run())
    for pod in pods:
        writer.put(Report(pod, "Unschedulable", "no room"))
    await eventually(lambda: _told(client, 3))
    await writer.flush()
    assert len(await _events(client)) == 10
    assert not await _told(client, 4)
    task.cancel()
    await asyncio.gather(task, return_exceptions=True)


async def _told(client: Client, count: int) -> bool:
    items = msgspec.json.decode(await client.request("GET", PODS))["items"]
    pods = msgspec.convert(items, list[Pod])
    return sum(bool(pod.status.conditions) for pod in pods) >= count


async def test_events_are_dropped_when_too_many_wait(
    client: Client, server: ApiServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    """`put` never waits and never grows: what a slow API server cannot take is lost, and counted."""
    monkeypatch.setattr(writing, "_MAX_EVENTS", 5)
    server.faults.plan(Fault("POST", "/events$", "delay", times=100, delay_s=0.2))
    writer = ReportWriter(client, "mooring")
    pods = [await _create(client, f"p{number}") for number in range(20)]
    for pod in pods:
        writer.put(Report(pod, "Scheduled", "assigned"))
    task = asyncio.create_task(writer.run())
    await writer.flush()
    assert len(await _events(client)) == 5
    task.cancel()
    await asyncio.gather(task, return_exceptions=True)


async def test_a_repeated_event_is_counted(client: Client, writer: ReportWriter) -> None:
    """One object has the count; if it has gone meanwhile, it is created again."""
    pod = await _create(client, "p")
    for message in ("no room", "no cpu", "no room"):
        writer.put(Report(pod, "Unschedulable", message))
        await writer.flush()
    assert sorted((one["message"], one["count"]) for one in await _events(client)) == [("no cpu", 1), ("no room", 2)]
    for event in await _events(client):
        await client.request("DELETE", f"/api/v1/namespaces/default/events/{event['metadata']['name']}")
    writer.put(Report(pod, "Unschedulable", "no room"))
    await writer.flush()
    assert [(one["message"], one["count"]) for one in await _events(client)] == [("no room", 1)]


async def test_nothing_is_written_to_a_pod_that_is_gone(client: Client, writer: ReportWriter) -> None:
    """And delays no other report."""
    gone, there = await _create(client, "gone"), await _create(client, "there")
    await client.request("DELETE", f"{PODS}/gone")
    writer.put(Report(gone, "Unschedulable", "no room"))
    writer.put(Report(there, "Unschedulable", "no room"))
    await eventually(lambda: _has_condition(client, "there", "no room"))


async def _in(client: Client, namespace: str, name: str) -> Pod:
    await _namespace(client, namespace)
    body = {"metadata": {"name": name}, "spec": {"containers": [{"name": "c", "image": "i"}]}}
    path = f"/api/v1/namespaces/{namespace}/pods"
    return msgspec.json.decode(await client.request("POST", path, msgspec.json.encode(body)), type=Pod)


async def _namespace(client: Client, name: str) -> None:
    with contextlib.suppress(Conflict):
        await client.request("POST", "/api/v1/namespaces", msgspec.json.encode({"metadata": {"name": name}}))


@pytest.mark.parametrize("server", ["devcluster"], indirect=True)
@pytest.mark.parametrize("delay_s", [0.0, 30.0])
async def test_a_webhook_of_one_namespace_that_does_not_answer_delays_no_report_of_others(
    client: Client, server: ApiServer, writer: ReportWriter, delay_s: float
) -> None:
    """Its events and conditions are tried seldom, and those of others are written at once."""
    for method, path in (("POST", "/bad/events$"), ("PATCH", "/bad/pods/.*/status$")):
        server.faults.plan(webhook_fails(method, path, times=1000, delay_s=delay_s))
    for number in range(40):
        writer.put(Report(await _in(client, "bad", f"p{number}"), "Unschedulable", "no room"))
    began = time.monotonic()
    pod = await _create(client, "good")
    writer.put(Report(pod, "Unschedulable", "no room"))
    await eventually(lambda: _has_condition(client, "good", "no room"))
    await eventually(lambda: _are_told(client, 1))
    assert time.monotonic() - began < 5.0
    assert 1000 - server.faults.planned[0].times < 20


@pytest.mark.parametrize("server", ["devcluster"], indirect=True)
async def test_what_a_webhook_has_denied_is_written_once_it_answers(
    client: Client, server: ApiServer, writer: ReportWriter
) -> None:
    """One event each, and the newest condition."""
    server.faults.plan(webhook_fails("POST", "/events$"))
    server.faults.plan(webhook_fails("PATCH", "/p/status$"))
    writer.put(Report(await _create(client, "p"), "Unschedulable", "no room"))
    await eventually(lambda: _has_condition(client, "p", "no room"))
    await writer.flush()
    assert [(one["message"], one["count"]) for one in await _events(client)] == [("no room", 1)]


@pytest.mark.parametrize("server", ["devcluster"], indirect=True)
async def test_an_event_whose_answer_was_lost_is_not_written_twice(
    client: Client, server: ApiServer, writer: ReportWriter
) -> None:
    """The next try has its name."""
    server.faults.plan(Fault("POST", "/events$", "drop_after"))
    writer.put(Report(await _create(client, "p"), "Scheduled", "assigned"))
    await writer.flush()
    assert len(await _events(client)) == 1
    assert not server.faults.planned

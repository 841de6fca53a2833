"""Conditions and events against a server: the newest wins, too many are dropped, and outdated ones are not written."""

import asyncio
import json
import time
from collections.abc import AsyncIterator
from dataclasses import replace
from typing import Any

import msgspec
import pytest
from structlog.testing import capture_logs

from devcluster.apiserver.http.faults import Fault, webhook_fails
from mooring import names
from mooring.kube.client import Client
from scheduler.cycle.instructions import Report, ReportGroup
from scheduler.kube.objects import Pod
from scheduler.kube.workload_objects import CONDITION_TYPES, PodGroup
from scheduler.server import report_writer as writing
from scheduler.server.report_writer import ReportWriter
from tests.scheduler.group_life import changed
from tests.scheduler.server.cluster import PODS, Cluster, beside, own_server_only, when
from tests.support.polling import until


@pytest.fixture
async def writer(client: Client) -> AsyncIterator[ReportWriter]:
    """Give a writer at work."""
    writer = ReportWriter(client, "mooring")
    async with beside(writer.run()):
        yield writer


def _no_room(pod: Pod) -> Report:
    return Report(pod, "Unschedulable", "no room")


def _scheduled(pod: Pod, message: str = "assigned") -> Report:
    return Report(pod, "Scheduled", message)


async def _reported(cluster: Cluster, name: str = "p", message: str = "no room") -> None:
    """Wait until a pod's condition has this message."""
    await cluster.reaches(name, status="False", message=message)


async def _counts(cluster: Cluster) -> list[tuple[str, int]]:
    return sorted((one["message"], one["count"]) for one in await cluster.events())


async def test_a_pod_that_waits_gets_a_condition_and_an_event(cluster: Cluster, writer: ReportWriter) -> None:
    """The event carries why as data."""
    writer.put(Report(await cluster.add_pod(), "Unschedulable", "no room", {"v": 1, "nodes": 3}))
    await _reported(cluster)
    await writer.flush()
    (event,) = await cluster.events()
    assert (event["reason"], event["message"], event["type"]) == ("FailedScheduling", "no room", "Warning")
    assert json.loads(event["metadata"]["annotations"][names.WHY]) == {"v": 1, "nodes": 3}


@own_server_only
async def test_of_many_messages_about_a_pod_the_newest_is_written(cluster: Cluster, writer: ReportWriter) -> None:
    """One write of a condition, and the events of which each text has its own; none once the pod is bound."""
    pod = await cluster.add_pod()
    before = cluster.server.cluster.store.revision
    for number in range(20):
        writer.put(Report(pod, "Unschedulable", f"message {number}"))
    await _reported(cluster, message="message 19")
    await writer.flush()
    assert cluster.server.cluster.store.revision - before == 1 + 20
    other = await cluster.add_pod("other")
    before = cluster.server.cluster.store.revision
    writer.put(_no_room(other))
    writer.put(_scheduled(other))
    await writer.flush()
    await until(lambda: cluster.server.cluster.store.revision == before + 2)
    assert await cluster.condition("other") is None


@pytest.mark.parametrize("is_written_to", [False, True])
async def test_a_nomination_survives_a_newer_message(
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
    await _reported(cluster)
    assert (await cluster.pod()).status.nominated_node_name is None


async def test_an_outdated_report_is_not_written_and_delays_no_other(cluster: Cluster, writer: ReportWriter) -> None:
    """A pod that was bound meanwhile, one that is gone, and one whose name another pod has; of a changed pod it is.

    The version in the patch is a precondition, and in effect the uid is too.
    """
    bound, gone, other, edited = [await cluster.add_pod(name) for name in ("bound", "gone", "other", "edited")]
    await cluster.bind("bound")
    await cluster.delete("gone")
    await cluster.delete("other")
    await cluster.add_pod("other")
    await cluster.annotate("edited", a="b")
    # Not even if its version were the newest.
    stranger = changed(await cluster.pod("other"), metadata={"uid": other.metadata.uid})
    for pod in (bound, gone, other, stranger, edited, await cluster.add_pod("last")):
        writer.put(_no_room(pod))
    await _reported(cluster, "last")
    await _reported(cluster, "edited")
    await cluster.reaches("bound", status="True")
    assert await cluster.condition("other") is None


@pytest.mark.parametrize(("limit", "written"), [("_CONDITION", (10, 3)), ("_AMID_DECISIONS", (0, 3))])
async def test_reports_are_written_at_a_limited_rate(
    cluster: Cluster, monkeypatch: pytest.MonkeyPatch, limit: str, written: tuple[int, int]
) -> None:
    """However many pods wait: of conditions a burst, then so many a second; events are not delayed by it.

    While pods wait for their decision, both are few: a tenant's pods that fit nowhere must not hold up others.
    """
    monkeypatch.setattr(writing, limit.replace("CONDITION", "CONDITIONS") + "_PER_S", 1e-6)
    monkeypatch.setattr(writing, limit + "_BURST", 3.0)
    writer = ReportWriter(cluster.client, "mooring")
    is_amid = limit == "_AMID_DECISIONS"
    writer.give_way(is_busy=False, amid_decisions=is_amid)

    async def counts() -> tuple[int, int]:
        """Return how many events and conditions are written; amid decisions either takes a turn."""
        conditions = sum(bool(pod.status.conditions) for pod in (await cluster.pods()).values())
        events = len(await cluster.events())
        return (0, events + conditions) if is_amid else (events, conditions)

    async with beside(writer.run()):
        for number in range(10):
            writer.put(_no_room(await cluster.add_pod(f"p{number}")))
        await when(counts, lambda reached: sum(reached) >= sum(written))
        # As long as a token is awaited nothing more is written: this round trip takes longer than a report.
        await cluster.add_pod("other")
        assert await counts() == written
        if is_amid:
            writer.give_way(is_busy=False, amid_decisions=False)
            await when(counts, lambda reached: sum(reached) == 20)


async def test_events_are_dropped_when_too_many_wait(cluster: Cluster, monkeypatch: pytest.MonkeyPatch) -> None:
    """`put` never waits and never grows: what a slow API server cannot take is lost, and counted."""
    monkeypatch.setattr(writing, "_MAX_EVENTS", 5)
    cluster.plan(Fault("POST", "/events$", "delay", times=100, delay_s=0.2))
    writer = ReportWriter(cluster.client, "mooring")
    for number in range(20):
        writer.put(_scheduled(await cluster.add_pod(f"p{number}")))
    async with beside(writer.run()):
        await writer.flush()
        assert len(await cluster.events()) == 5


async def test_a_repeated_event_is_counted(cluster: Cluster, writer: ReportWriter) -> None:
    """One object has the count; if it has gone meanwhile, it is created again."""
    pod = await cluster.add_pod()
    for message in ("no room", "no cpu", "no room"):
        writer.put(Report(pod, "Unschedulable", message))
        await writer.flush()
    assert await _counts(cluster) == [("no cpu", 1), ("no room", 2)]
    await cluster.clear("/api/v1/namespaces/default/events")
    writer.put(_no_room(pod))
    await writer.flush()
    assert await _counts(cluster) == [("no room", 1)]


@own_server_only
@pytest.mark.parametrize("delay_s", [0.0, 30.0])
async def test_a_failing_webhook_delays_no_report_of_other_namespaces(
    cluster: Cluster, writer: ReportWriter, delay_s: float
) -> None:
    """Its events and conditions are tried seldom, and those of others are written at once."""
    for method, path in (("POST", "/bad/events$"), ("PATCH", "/bad/pods/.*/status$")):
        cluster.plan(webhook_fails(method, path, times=1000, delay_s=delay_s))
    await cluster.call("POST", "/api/v1/namespaces", {"metadata": {"name": "bad"}})
    for number in range(40):
        writer.put(_no_room(await cluster.add_pod(f"p{number}", namespace="bad")))
    began = time.monotonic()
    writer.put(_no_room(await cluster.add_pod("good")))
    await _reported(cluster, "good")
    await when(cluster.events, bool)
    assert time.monotonic() - began < 20.0
    assert 1000 - cluster.server.faults.planned[0].times < 20


@own_server_only
@pytest.mark.parametrize(
    "fault",
    [
        pytest.param(webhook_fails("POST", "/events$"), id="denied by a webhook"),
        # The next try has the same name.
        pytest.param(Fault("POST", "/events$", "drop_after"), id="answer lost"),
    ],
)
async def test_what_could_not_be_written_is_written_once(cluster: Cluster, writer: ReportWriter, fault: Fault) -> None:
    """One event, and the newest condition; a repetition that finds the event is no failure."""
    cluster.plan(fault, webhook_fails("PATCH", "/p/status$"))
    with capture_logs() as lines:
        writer.put(_no_room(await cluster.add_pod()))
        await _reported(cluster)
        await writer.flush()
    assert await _counts(cluster) == [("no room", 1)]
    assert not cluster.server.faults.planned
    assert "report was rejected" not in [line["event"] for line in lines]


@own_server_only
@pytest.mark.parametrize("version", ["v1beta1", "v1alpha2"])
async def test_a_pod_group_gets_its_condition_in_the_served_version(
    version: str, cluster: Cluster, writer: ReportWriter
) -> None:
    """Each version has its own type of it; other conditions stay; one that is True is not taken back."""
    catalog, api = cluster.server.cluster.catalog, "scheduling.k8s.io"
    served = catalog.find(api, "v1beta1", "podgroups")
    assert served is not None
    catalog.forget(api, "v1beta1", "podgroups")
    catalog.learn(replace(served, version=version))
    folder, kind = f"/apis/{api}/{version}/namespaces/default/podgroups", CONDITION_TYPES[version]

    async def create(name: str) -> PodGroup:
        other = {"type": "Other", "status": "True", "reason": "r", "message": ""}
        body = {"apiVersion": f"{api}/{version}", "kind": "PodGroup", "metadata": {"name": name}, "spec": {}}
        await cluster.call("POST", folder, body)
        shown = await cluster.patch(f"{folder}/{name}/status", status={"conditions": [other]})
        return msgspec.convert(shown, PodGroup)

    async def conditions(name: str = "train") -> list[tuple[str, str, str | None]]:
        shown = msgspec.convert(await cluster.call("GET", f"{folder}/{name}"), PodGroup).status.conditions or []
        assert all(one.reason and (one.last_transition_time or one.type == "Other") for one in shown)
        return [(one.type, one.status, one.message) for one in shown]

    def put(group: PodGroup, status: Any, message: str) -> None:
        writer.put_group(ReportGroup(group, status, "Scheduled" if status == "True" else "Unschedulable", message))

    train, other = await create("train"), ("Other", "True", "")
    missing = msgspec.convert(msgspec.to_builtins(train), PodGroup)
    missing.metadata.name = missing.metadata.uid = "missing"
    put(train, "False", "no room")
    await when(conditions, [other, (kind, "False", "no room")].__eq__)
    # What is True is written whatever has changed meanwhile.
    put(train, "True", "2 members")
    put(train, "False", "too late for the queue")
    await when(conditions, [other, (kind, "True", "2 members")].__eq__)
    put(train, "False", "too late for the server")
    put(missing, "False", "there is none")
    # Conditions are written one after another: the last one shows that those before it are done.
    put(await create("second"), "False", "no room")
    await when(lambda: conditions("second"), lambda shown: len(shown) == 2)
    assert await conditions() == [other, (kind, "True", "2 members")]

"""PodGroups are followed where they are served: from the beginning, from later on, in the newest version, or never."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import replace
from functools import partial
from typing import Any

import msgspec
import pytest

from devcluster.apiserver.http.faults import Fault, FaultKind
from devcluster.apiserver.serve import ApiServer, Options
from mooring.kube.access import Access
from mooring.kube.client import STRATEGIC_PATCH, Client
from scheduler.cache.groups.group_sources import CONDITION_TYPES, PodGroup
from scheduler.cycle.instructions import ReportGroup
from scheduler.kube.group_membership import GroupKey
from scheduler.server import watches
from scheduler.server.loop import ApiClients, Loop
from scheduler.server.report_writer import ReportWriter
from scheduler.server.watches import OPTIONAL
from scheduler.state.machine import Machine
from tests.support.polling import eventually, until

GROUP, VERSION = "scheduling.k8s.io", "v1beta1"
KEY = GroupKey("PodGroup", "default", "train")
COSCHEDULING = GroupKey("coscheduling", "default", "train")


@pytest.fixture
def often(monkeypatch: pytest.MonkeyPatch) -> None:
    """Look for an API that is not served many times a second."""
    monkeypatch.setattr(watches, "_LOOK_S", 0.05)
    monkeypatch.setattr(watches, "_MOMENT_S", 0.05)


@asynccontextmanager
async def _followed(server: ApiServer) -> AsyncIterator[tuple[Machine, Client]]:
    """Give a machine that follows a server."""
    machine = Machine("mooring")
    async with Client(Access(server.url), timeout_s=2.0) as client:
        loop = Loop(machine, ApiClients(client, client), ReportWriter(client, "mooring"), lambda: 0.0)
        running = asyncio.create_task(loop.run())
        async with asyncio.timeout(30):
            await loop.reflectors.ready.wait()
        yield machine, client
        loop.stop()
        await running


async def _create(client: Client, group: str, version: str, name: str = "train", **spec: Any) -> None:
    body = {"apiVersion": f"{group}/{version}", "kind": "PodGroup", "metadata": {"name": name}, "spec": spec}
    path = f"/apis/{group}/{version}/namespaces/default/podgroups"
    await client.request("POST", path, msgspec.json.encode(body))


async def test_a_cluster_without_pod_groups_is_followed_all_the_same() -> None:
    """Nothing waits for an API that the cluster does not have."""
    async with ApiServer() as server:
        server.cluster.catalog.forget(GROUP, VERSION, "podgroups")
        async with _followed(server) as (machine, _):
            assert machine.state.group_cache.pod_groups.get(KEY).group is None


@pytest.mark.usefixtures("often")
@pytest.mark.parametrize(
    ("group", "version", "key", "spec"),
    [
        (GROUP, "v1alpha2", KEY, {"schedulingPolicy": {"gang": {"minCount": 3}}}),
        (GROUP, "v1beta1", KEY, {"schedulingPolicy": {"gang": {"minCount": 3}}}),
        ("scheduling.x-k8s.io", "v1alpha1", COSCHEDULING, {"minMember": 3}),
    ],
)
async def test_an_api_that_is_served_later_is_found(
    group: str, version: str, key: GroupKey, spec: dict[str, Any]
) -> None:
    """In either version of the cluster's own, and scheduler-plugins'."""
    async with ApiServer() as server:
        server.cluster.catalog.forget(GROUP, VERSION, "podgroups")
        async with _followed(server) as (machine, client):
            await _create(client, group, version, **spec)
            await until(lambda: machine.state.group_cache.pod_groups.get(key).group is not None)


@pytest.mark.usefixtures("often")
async def test_an_api_that_is_served_no_longer_takes_its_pod_groups_along() -> None:
    """A custom resource definition is deleted: its PodGroups do not stay for ever."""
    async with ApiServer(Options()) as server, _followed(server) as (machine, client):
        await _create(client, GROUP, VERSION, schedulingPolicy={"basic": {}})
        await until(lambda: machine.state.group_cache.pod_groups.get(KEY).group is not None)
        server.cluster.catalog.forget(GROUP, VERSION, "podgroups")
        server.cut_watches()
        await until(lambda: machine.state.group_cache.pod_groups.get(KEY).group is None)


@pytest.mark.parametrize("kind", ["answer", "page"])
@pytest.mark.parametrize("code", [403, 404])
async def test_an_api_that_is_not_served_for_a_moment_keeps_its_pod_groups(
    code: int, kind: FaultKind, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Members of a group that goes as a whole would be preempted one by one meanwhile."""
    monkeypatch.setattr(watches, "_MOMENT_S", 0.05)
    async with ApiServer(Options()) as server, _followed(server) as (machine, client):
        await _create(client, GROUP, VERSION, schedulingPolicy={"basic": {}}, disruptionMode={"all": {}})
        await until(lambda: machine.state.group_cache.pod_groups.get(KEY).group is not None)
        for path in OPTIONAL[PodGroup]:
            server.faults.plan(Fault("GET", path, kind, times=3, code=code))
        server.cut_watches()
        await until(lambda: not any(one.path in OPTIONAL[PodGroup] for one in server.faults.planned))
        assert machine.state.group_cache.pod_groups.get(KEY).is_whole
        await _create(client, GROUP, VERSION, "another", schedulingPolicy={"basic": {}})
        await until(lambda: machine.state.group_cache.pod_groups.get(KEY._replace(name="another")).group is not None)
        assert machine.state.group_cache.pod_groups.get(KEY).is_whole


@pytest.mark.usefixtures("often")
async def test_a_change_of_a_pod_group_lets_its_group_be_decided_about() -> None:
    """From the watch to the queue."""
    async with ApiServer() as server, _followed(server) as (machine, client):
        await _create(client, GROUP, VERSION, schedulingPolicy={"gang": {"minCount": 2}})
        spec = {"schedulerName": "mooring", "containers": [{"name": "c", "image": "i"}]}
        pod = {"metadata": {"name": "p"}, "spec": {**spec, "schedulingGroup": {"podGroupName": "train"}}}
        await client.request("POST", "/api/v1/namespaces/default/pods", msgspec.json.encode(pod))

        async def waits() -> bool:
            members = machine.group_cache.get(KEY)
            return members is not None and members.count("waiting") == 1

        await eventually(waits)
        assert list(machine.queue.uids()) == []
        change = msgspec.json.encode({"spec": {"schedulingPolicy": {"gang": {"minCount": 1}}}})
        path = f"/apis/{GROUP}/{VERSION}/namespaces/default/podgroups/train"
        await client.request("PATCH", path, change, "application/merge-patch+json")
        await until(lambda: list(machine.queue.uids()) == [KEY.entry])


@pytest.mark.parametrize("version", ["v1beta1", "v1alpha2"])
async def test_a_condition_is_written_in_the_version_that_is_served(version: str) -> None:
    """Each version has its own type of it; other conditions stay; one that is True is not taken back."""
    name = CONDITION_TYPES[version]
    async with ApiServer() as server, Client(Access(server.url), timeout_s=2.0) as client:
        if version != VERSION:
            known = server.cluster.catalog.find(GROUP, VERSION, "podgroups")
            assert known is not None
            server.cluster.catalog.forget(GROUP, VERSION, "podgroups")
            server.cluster.catalog.learn(replace(known, version=version))
        await _create(client, GROUP, version, schedulingPolicy={"gang": {"minCount": 2}})
        path = f"/apis/{GROUP}/{version}/namespaces/default/podgroups/train"
        other = {"status": {"conditions": [{"type": "Other", "status": "True", "reason": "r", "message": ""}]}}
        shown = await client.request("PATCH", f"{path}/status", msgspec.json.encode(other), STRATEGIC_PATCH)
        pod_group = msgspec.json.decode(shown, type=PodGroup)

        async def says(status: str, message: str) -> bool:
            found = msgspec.json.decode(await client.request("GET", path), type=PodGroup).status.conditions or []
            assert all(one.reason and (one.last_transition_time or one.type == "Other") for one in found)
            return [(one.type, one.status, one.message) for one in found] == [
                ("Other", "True", ""),
                (name, status, message),
            ]

        writer = ReportWriter(client, "mooring")
        writing = asyncio.create_task(writer.run())
        writer.put_group(ReportGroup(pod_group, "False", "Unschedulable", "no room"))
        await eventually(partial(says, "False", "no room"))
        # What is True is written whatever has changed meanwhile.
        writer.put_group(ReportGroup(pod_group, "True", "Scheduled", "2 members"))
        writer.put_group(ReportGroup(pod_group, "False", "Unschedulable", "too late for the queue"))
        await eventually(partial(says, "True", "2 members"))
        writer.put_group(ReportGroup(pod_group, "False", "Unschedulable", "too late for the server"))
        writer.put_group(ReportGroup(_renamed(pod_group), "False", "Unschedulable", "there is none"))
        # Conditions are written one after another: the last one shows that those before it are done.
        other_group = await _second(client, version)
        writer.put_group(ReportGroup(other_group, "False", "Unschedulable", "no room"))

        async def second_is_told() -> bool:
            second = await client.request("GET", path.replace("train", "second"))
            return bool(msgspec.json.decode(second, type=PodGroup).status.conditions)

        await eventually(second_is_told)
        assert await says("True", "2 members")
        writing.cancel()
        await asyncio.gather(writing, return_exceptions=True)


async def _second(client: Client, version: str) -> PodGroup:
    body = {"apiVersion": f"{GROUP}/{version}", "kind": "PodGroup", "metadata": {"name": "second"}, "spec": {}}
    path = f"/apis/{GROUP}/{version}/namespaces/default/podgroups"
    return msgspec.json.decode(await client.request("POST", path, msgspec.json.encode(body)), type=PodGroup)


def _renamed(pod_group: PodGroup) -> PodGroup:
    document = msgspec.to_builtins(pod_group)
    document["metadata"] |= {"name": "other", "uid": "other"}
    return msgspec.convert(document, PodGroup)

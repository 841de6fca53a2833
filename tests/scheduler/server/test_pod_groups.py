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
from devcluster.apiserver.serve import ApiServer
from mooring.kube.client import STRATEGIC_PATCH
from scheduler.cycle.instructions import ReportGroup
from scheduler.kube.group import GroupKey
from scheduler.kube.workload_objects import CONDITION_TYPES, PodGroup
from scheduler.server import watches
from scheduler.server.report_writer import ReportWriter
from scheduler.server.watches import OPTIONAL
from scheduler.state.machine import Machine
from tests.scheduler.server.cluster import Cluster, following
from tests.support.polling import eventually, until

GROUP, VERSION = "scheduling.k8s.io", "v1beta1"
API = f"{GROUP}/{VERSION}"
PATH = f"/apis/{API}/namespaces/default/podgroups"
KEY = GroupKey("PodGroup", "default", "train")
COSCHEDULING = GroupKey("coscheduling", "default", "train")
BASIC: dict[str, Any] = {"schedulingPolicy": {"basic": {}}}
pytestmark = pytest.mark.parametrize("server", ["devcluster"], indirect=True)


def _gang(count: int) -> dict[str, Any]:
    return {"schedulingPolicy": {"gang": {"minCount": count}}}


@pytest.fixture
def often(monkeypatch: pytest.MonkeyPatch) -> None:
    """Look for an API that is not served many times a second."""
    monkeypatch.setattr(watches, "_LOOK_S", 0.05)
    monkeypatch.setattr(watches, "_MOMENT_S", 0.05)


@asynccontextmanager
async def _followed(cluster: Cluster) -> AsyncIterator[Machine]:
    """Give a machine that follows a server."""
    machine = Machine("mooring")
    async with following(machine, cluster.client) as (loop, _):
        await until(loop.reflectors.ready.is_set)
        yield machine


def _is_known(machine: Machine, key: GroupKey = KEY) -> bool:
    return machine.state.group_cache.pod_groups.get(key).group is not None


async def _create(cluster: Cluster, spec: dict[str, Any], api: str = API, name: str = "train") -> PodGroup:
    body = {"apiVersion": api, "kind": "PodGroup", "metadata": {"name": name}, "spec": spec}
    return msgspec.convert(await cluster.call("POST", f"/apis/{api}/namespaces/default/podgroups", body), PodGroup)


async def test_a_cluster_without_pod_groups_is_followed_all_the_same(cluster: Cluster, server: ApiServer) -> None:
    """Nothing waits for an API that the cluster does not have."""
    server.cluster.catalog.forget(GROUP, VERSION, "podgroups")
    async with _followed(cluster) as machine:
        assert not _is_known(machine)


@pytest.mark.usefixtures("often")
@pytest.mark.parametrize(
    ("api", "key", "spec"),
    [
        (f"{GROUP}/v1alpha2", KEY, _gang(3)),
        (f"{GROUP}/v1beta1", KEY, _gang(3)),
        ("scheduling.x-k8s.io/v1alpha1", COSCHEDULING, {"minMember": 3}),
    ],
)
async def test_an_api_that_is_served_later_is_found(
    api: str, key: GroupKey, spec: dict[str, Any], cluster: Cluster, server: ApiServer
) -> None:
    """In either version of the cluster's own, and scheduler-plugins'."""
    server.cluster.catalog.forget(GROUP, VERSION, "podgroups")
    async with _followed(cluster) as machine:
        await _create(cluster, spec, api)
        await until(lambda: _is_known(machine, key))


@pytest.mark.usefixtures("often")
async def test_an_api_that_is_served_no_longer_takes_its_pod_groups_along(cluster: Cluster, server: ApiServer) -> None:
    """A custom resource definition is deleted: its PodGroups do not stay for ever."""
    async with _followed(cluster) as machine:
        await _create(cluster, BASIC)
        await until(lambda: _is_known(machine))
        server.cluster.catalog.forget(GROUP, VERSION, "podgroups")
        server.cut_watches()
        await until(lambda: not _is_known(machine))


@pytest.mark.parametrize("kind", ["answer", "page"])
@pytest.mark.parametrize("code", [403, 404])
async def test_an_api_that_is_not_served_for_a_moment_keeps_its_pod_groups(
    code: int, kind: FaultKind, cluster: Cluster, server: ApiServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Members of a group that goes as a whole would be preempted one by one meanwhile."""
    monkeypatch.setattr(watches, "_MOMENT_S", 0.05)
    async with _followed(cluster) as machine:
        await _create(cluster, BASIC | {"disruptionMode": {"all": {}}})
        await until(lambda: _is_known(machine))
        for path in OPTIONAL[PodGroup]:
            server.faults.plan(Fault("GET", path, kind, times=3, code=code))
        server.cut_watches()
        await until(lambda: not any(one.path in OPTIONAL[PodGroup] for one in server.faults.planned))
        assert machine.state.group_cache.pod_groups.get(KEY).is_whole
        await _create(cluster, BASIC, name="another")
        await until(lambda: _is_known(machine, KEY._replace(name="another")))
        assert machine.state.group_cache.pod_groups.get(KEY).is_whole


@pytest.mark.usefixtures("often")
async def test_a_change_of_a_pod_group_lets_its_group_be_decided_about(cluster: Cluster) -> None:
    """From the watch to the queue."""
    async with _followed(cluster) as machine:
        await _create(cluster, _gang(2))
        await cluster.add_pod("p", schedulingGroup={"podGroupName": "train"})

        def waits() -> bool:
            members = machine.group_cache.get(KEY)
            return members is not None and members.count("waiting") == 1

        await until(waits)
        assert list(machine.queue.uids()) == []
        await cluster.patch(f"{PATH}/train", spec=_gang(1))
        await until(lambda: list(machine.queue.uids()) == [KEY.entry])


@pytest.mark.parametrize("version", ["v1beta1", "v1alpha2"])
async def test_a_condition_is_written_in_the_version_that_is_served(
    version: str, cluster: Cluster, server: ApiServer
) -> None:
    """Each version has its own type of it; other conditions stay; one that is True is not taken back."""
    if version != VERSION:
        known = server.cluster.catalog.find(GROUP, VERSION, "podgroups")
        assert known is not None
        server.cluster.catalog.forget(GROUP, VERSION, "podgroups")
        server.cluster.catalog.learn(replace(known, version=version))
    path = PATH.replace(VERSION, version)
    await _create(cluster, _gang(2), f"{GROUP}/{version}")
    other = {"status": {"conditions": [{"type": "Other", "status": "True", "reason": "r", "message": ""}]}}
    status = f"{path}/train/status"
    shown = await cluster.client.request("PATCH", status, msgspec.json.encode(other), STRATEGIC_PATCH)
    pod_group = msgspec.json.decode(shown, type=PodGroup)

    async def conditions(name: str = "train") -> list[tuple[str, str, str | None]]:
        found = msgspec.convert(await cluster.call("GET", f"{path}/{name}"), PodGroup).status.conditions or []
        assert all(one.reason and (one.last_transition_time or one.type == "Other") for one in found)
        return [(one.type, one.status, one.message) for one in found]

    async def says(status: str, message: str) -> bool:
        return await conditions() == [("Other", "True", ""), (CONDITION_TYPES[version], status, message)]

    def refused(group: PodGroup, message: str) -> ReportGroup:
        return ReportGroup(group, "False", "Unschedulable", message)

    writer = ReportWriter(cluster.client, "mooring")
    writing = asyncio.create_task(writer.run())
    writer.put_group(refused(pod_group, "no room"))
    await eventually(partial(says, "False", "no room"))
    # What is True is written whatever has changed meanwhile.
    writer.put_group(ReportGroup(pod_group, "True", "Scheduled", "2 members"))
    writer.put_group(refused(pod_group, "too late for the queue"))
    await eventually(partial(says, "True", "2 members"))
    writer.put_group(refused(pod_group, "too late for the server"))
    writer.put_group(refused(_renamed(pod_group), "there is none"))
    # Conditions are written one after another: the last one shows that those before it are done.
    writer.put_group(refused(await _create(cluster, {}, f"{GROUP}/{version}", "second"), "no room"))
    await eventually(partial(conditions, "second"))
    assert await says("True", "2 members")
    writing.cancel()
    await asyncio.gather(writing, return_exceptions=True)


def _renamed(pod_group: PodGroup) -> PodGroup:
    document = msgspec.to_builtins(pod_group)
    document["metadata"] |= {"name": "other", "uid": "other"}
    return msgspec.convert(document, PodGroup)

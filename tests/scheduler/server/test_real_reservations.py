"""Promised starts and spares on a real API server, while leaders are killed: the API is their only record."""

from collections.abc import AsyncIterator
from contextlib import suppress
from datetime import UTC, datetime
from pathlib import Path

import pytest

from mooring import names
from mooring.annotations.assignment import read_assignment
from mooring.annotations.spares import read_spares
from mooring.kube.access import load_access
from mooring.kube.client import Client
from mooring.kube.failures import NotFound
from scheduler.kube.objects import Pod
from scheduler.pending.groups.promises import read_promise
from tests.scheduler.conftest import MakeNode, MakePf
from tests.scheduler.server.cluster import LEASE, NODES, PODS, Cluster
from tests.scheduler.server.process import replicas, scheduler
from tests.support.polling import eventually

pytestmark = pytest.mark.apiserver
RACK = "example.com/rack"
WHOLE_NODE = "[{},{}]"
FIRST = {names.GROUP: '{"name":"first","min":2,"runs":"10m"}'}
HEAD = {names.GROUP: f'{{"name":"head","min":3,"within":"{RACK}"}}'}
TRAIN = {names.GROUP: '{"name":"train","min":2,"spares":1}'}


class Site(Cluster):
    """A cluster on a real API server; the test acts as the kubelet of its nodes."""

    async def start(self, *pods: str) -> None:
        """Let bound pods be Running."""
        now = datetime.now(UTC).strftime("%Y-%m-%dT%H:%M:%SZ")
        for name in pods:
            await self.patch(f"{PODS}/{name}/status", status={"phase": "Running", "startTime": now})

    async def promise(self, text: str = " It starts by ") -> tuple[str, dict[str, str]]:
        """Wait until each member of the head group has a promise; return its message and the nominated nodes."""

        async def found() -> tuple[str, dict[str, str]] | None:
            heads = {name: pod for name, pod in (await self.pods()).items() if name.startswith("head-")}
            nodes = {name: pod.status.nominated_node_name or "" for name, pod in heads.items()}
            messages = [_message(pod) for pod in heads.values()]
            is_complete = all(nodes.values()) and all(text in message for message in messages)
            return (messages[0], nodes) if is_complete else None

        return await eventually(found)

    async def waits(self, name: str, runs: str = "") -> None:
        """Add a pod, and wait until it is unschedulable."""
        await self.add_pod(name, "[{}]", {names.RUNS: runs} if runs else {})

        async def found() -> str:
            pod = (await self.pods())[name]
            assert pod.spec.node_name is None
            return _message(pod)

        await eventually(found)


def _message(pod: Pod) -> str:
    condition = pod.condition("PodScheduled")
    return (condition.message or "") if condition is not None else ""


def _start(message: str) -> float:
    promise = read_promise(message, 0.0)
    assert promise is not None, message
    return promise.at


@pytest.fixture
async def site(own_server: Path, make_node: MakeNode, make_pf: MakePf) -> AsyncIterator[Site]:
    """Give a rack of three nodes, each with the VFs of one pod, and leave nothing of a test."""
    async with Client(load_access(str(own_server))) as client:
        site = Site(client, own_server)
        for name in ("n1", "n2", "n3"):
            await site.add_node(make_node(name, (make_pf(vfs=2),), labels={RACK: "r1"}))
        yield site
        for path in (PODS, NODES):
            await client.request("DELETE", path, params={"gracePeriodSeconds": "0"})
        with suppress(NotFound):
            await client.request("DELETE", LEASE)


async def _promised(site: Site) -> tuple[str, dict[str, str]]:
    """Let a group run, and another one wait for its room; return the promise to that one."""
    for name in ("first-0", "first-1"):
        await site.add_pod(name, WHOLE_NODE, FIRST)
    await site.bound("first-0", "first-1")
    await site.start("first-0", "first-1")
    for name in ("head-0", "head-1", "head-2"):
        await site.add_pod(name, WHOLE_NODE, HEAD)
    return await site.promise()


async def test_a_new_leader_keeps_the_promise_and_the_head_starts_when_the_running_group_ends(site: Site) -> None:
    """Meanwhile a pod starts that ends before; one that would delay the head does not, under either leader."""
    async with replicas(site.kubeconfig, "--backfill") as (leader, standby):
        before = datetime.now(UTC).timestamp()
        message, nodes = await _promised(site)
        assert f" on {RACK} 'r1', after default/first (ends by " in message
        assert before <= _start(message) - 600.0 <= datetime.now(UTC).timestamp()
        assert sorted(nodes.values()) == ["n1", "n2", "n3"]
        await site.waits("long", "1h")
        await site.add_pod("short", "[{}]", {names.RUNS: "1m"})
        short = await site.bound_pod("short")
        assert short.spec.node_name in nodes.values()

        leader.process.kill()
        await standby.saying("leading")
        await site.waits("later", "1h")
        kept, kept_nodes = await site.promise()
        assert abs(_start(kept) - _start(message)) <= 1.0
        assert kept_nodes == nodes
        assert " before: " not in kept

        for name in ("short", "first-0", "first-1"):
            await site.patch(f"{PODS}/{name}/status", status={"phase": "Succeeded"})
        pods = await site.bound("head-0", "head-1", "head-2")
        assert {name: pods[name].spec.node_name for name in nodes} == nodes
        assert datetime.now(UTC).timestamp() < _start(message)
        assert not any(pods[name].spec.node_name for name in ("long", "later"))


async def test_a_new_leader_names_the_promise_of_the_leader_before_and_why_it_moved(site: Site) -> None:
    """While none leads, a running pod declares a longer run time."""
    async with replicas(site.kubeconfig, "--backfill") as (leader, standby):
        message, nodes = await _promised(site)
        leader.process.kill()
        assert not standby.has_said("leading")
        await site.patch(f"{PODS}/first-0", metadata={"annotations": {names.RUNS: "30m"}})
        moved, moved_nodes = await site.promise(" It was promised by ")
        promised = message.partition(" It starts by ")[2].partition(" ")[0]
        cause = "default/first-0 began late, or declares a longer run time now."
        assert f" It was promised by {promised} before: {cause}" in moved
        assert _start(moved) - _start(message) == pytest.approx(1200.0, abs=2.0)
        assert sorted(moved_nodes.values()) == sorted(nodes.values())


@pytest.mark.parametrize("lost", ["train-0", "train-1"])
async def test_a_member_that_is_made_again_gets_the_spare_room_from_the_next_leader(site: Site, lost: str) -> None:
    """It is deleted while no scheduler runs, and its node is lost; a pod waits for the spare's node."""
    stays = "train-1" if lost == "train-0" else "train-0"
    async with scheduler(site.kubeconfig, "--backfill") as leader:
        await leader.saying("leading")
        for name in (lost, stays):
            await site.add_pod(name, WHOLE_NODE, TRAIN)
        bound = await site.bound(lost, stays)
        (spare,) = read_spares(bound[stays].annotations)
        assert {spare.node, *(pod.spec.node_name for pod in bound.values())} == {"n1", "n2", "n3"}
        await site.start(*bound)
        await site.waits("other")
        leader.process.kill()
    await site.patch(f"{NODES}/{bound[lost].spec.node_name}", spec={"unschedulable": True})
    await site.delete(lost)
    async with scheduler(site.kubeconfig, "--backfill") as leader:
        await leader.saying("leading")
        await site.waits("later")
        await site.add_pod(lost, WHOLE_NODE, TRAIN)
        again = await site.bound(lost)
        assert read_assignment(again[lost].annotations[names.ASSIGNMENT]).vfs == spare.vfs
        assert again[lost].spec.node_name == spare.node
        assert again[stays].spec.node_name == bound[stays].spec.node_name
        assert not any(again[name].spec.node_name for name in ("other", "later"))

        await site.delete(lost)
        await site.delete(stays)
        await site.bound("other", "later")


async def test_a_new_leader_keeps_the_promise_while_a_member_is_made_again(site: Site) -> None:
    """The second leader has read the promise from the members."""
    async with replicas(site.kubeconfig, "--backfill") as (leader, standby):
        message, nodes = await _promised(site)
        leader.process.kill()
        await standby.saying("leading")
        await site.waits("before", "1h")
        await site.delete("head-2")
        await site.waits("long", "1h")
        await site.add_pod("head-2", WHOLE_NODE, HEAD)
        kept, kept_nodes = await site.promise()
        assert abs(_start(kept) - _start(message)) <= 1.0
        assert sorted(kept_nodes.values()) == sorted(nodes.values())
        assert " before: " not in kept

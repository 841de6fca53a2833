"""Promised starts and spares on a real API server, while leaders are killed: the API is their only record."""

from datetime import UTC, datetime

import pytest

from mooring import names
from mooring.annotations.assignment import read_assignment
from mooring.annotations.spares import read_spares
from scheduler.pending.groups.promises import read_promise
from tests.scheduler.server.cluster import NODES, PODS, Cluster, when
from tests.scheduler.server.process import replicas, scheduler

pytestmark = pytest.mark.apiserver
RACK = "example.com/rack"
WHOLE_NODE = "[{},{}]"
FIRST = {names.GROUP: '{"name":"first","min":2,"runs":"10m"}'}
HEAD = {names.GROUP: f'{{"name":"head","min":3,"within":"{RACK}"}}'}
TRAIN = {names.GROUP: '{"name":"train","min":2,"spares":1}'}
HEADS = ("head-0", "head-1", "head-2")


@pytest.fixture
async def cluster(real_cluster: Cluster) -> Cluster:
    """Give a rack of three nodes, each with the VFs of one pod; the test acts as the kubelet of its nodes."""
    for name in ("n1", "n2", "n3"):
        await real_cluster.add_rdma_node(name, vfs=2, labels={RACK: "r1"})
    return real_cluster


async def _run(cluster: Cluster, *pods: str) -> None:
    """Let bound pods be Running."""
    now = datetime.now(UTC).strftime("%Y-%m-%dT%H:%M:%SZ")
    for name in pods:
        await cluster.patch(f"{PODS}/{name}/status", status={"phase": "Running", "startTime": now})


async def _wait(cluster: Cluster, name: str, runs: str = "") -> None:
    """Add a pod, and wait until it is unschedulable."""
    await cluster.add_pod(name, "[{}]", {names.RUNS: runs} if runs else {})
    await cluster.message_of(name)
    assert not await cluster.is_bound(name)


async def _promise(cluster: Cluster) -> tuple[str, dict[str, str]]:
    """Wait until each member of the head group has a promise; return its message and the nominated nodes."""

    async def read() -> tuple[list[str], dict[str, str]]:
        pods = await cluster.pods()
        conditions = [pods[name].condition("PodScheduled") for name in HEADS]
        messages = [(condition and condition.message) or "" for condition in conditions]
        return messages, {name: pods[name].status.nominated_node_name or "" for name in HEADS}

    def is_complete(shown: tuple[list[str], dict[str, str]]) -> bool:
        return all(" It starts by " in message for message in shown[0]) and all(shown[1].values())

    messages, nodes = await when(read, is_complete)
    return messages[0], nodes


def _start(message: str) -> float:
    promise = read_promise(message, 0.0)
    assert promise is not None, message
    return promise.at


async def _promised(cluster: Cluster) -> tuple[str, dict[str, str]]:
    """Let a group run, and another one wait for its room; return the promise to that one."""
    for name in ("first-0", "first-1"):
        await cluster.add_pod(name, WHOLE_NODE, FIRST)
    await cluster.bound("first-0", "first-1")
    await _run(cluster, "first-0", "first-1")
    for name in HEADS:
        await cluster.add_pod(name, WHOLE_NODE, HEAD)
    return await _promise(cluster)


async def _keeps(cluster: Cluster, message: str, nodes: dict[str, str]) -> dict[str, str]:
    """Assert that the promise names the same start and the same nodes, and no earlier promise; return who has which."""
    kept, kept_nodes = await _promise(cluster)
    assert abs(_start(kept) - _start(message)) <= 1.0
    assert sorted(kept_nodes.values()) == sorted(nodes.values())
    assert " before: " not in kept
    return kept_nodes


async def test_a_new_leader_keeps_the_promise_and_the_head_starts_when_the_running_group_ends(cluster: Cluster) -> None:
    """Meanwhile a pod starts that ends before; one that would delay the head does not, under either leader.

    A member is made again: the leader has read the promise from the others.
    """
    async with replicas(cluster, "--backfill") as (leader, standby):
        before = datetime.now(UTC).timestamp()
        message, nodes = await _promised(cluster)
        assert f" on {RACK} 'r1', after default/first (ends by " in message
        # A whole second, rounded up.
        assert before <= _start(message) - 600.0 <= datetime.now(UTC).timestamp() + 1.0
        assert sorted(nodes.values()) == ["n1", "n2", "n3"]
        await _wait(cluster, "long", "1h")
        await cluster.add_pod("short", "[{}]", {names.RUNS: "1m"})
        assert (await cluster.bound_pod("short")).spec.node_name in nodes.values()

        leader.process.kill()
        await standby.until_logged("leading")
        await _wait(cluster, "later", "1h")
        assert await _keeps(cluster, message, nodes) == nodes

        await cluster.delete("head-2")
        await _wait(cluster, "last", "1h")
        await cluster.add_pod("head-2", WHOLE_NODE, HEAD)
        nodes = await _keeps(cluster, message, nodes)

        for name in ("short", "first-0", "first-1"):
            await cluster.patch(f"{PODS}/{name}/status", status={"phase": "Succeeded"})
        pods = await cluster.bound(*HEADS)
        assert {name: pods[name].spec.node_name for name in HEADS} == nodes
        assert datetime.now(UTC).timestamp() < _start(message)
        assert not any(pods[name].spec.node_name for name in ("long", "later", "last"))


@pytest.mark.parametrize("lost", ["train-0", "train-1"])
async def test_a_member_made_again_gets_the_spare_room_from_the_next_leader(cluster: Cluster, lost: str) -> None:
    """It is deleted while no scheduler runs, and its node is lost; a pod waits for the spare's node."""
    stays = "train-1" if lost == "train-0" else "train-0"
    async with scheduler(cluster, "--backfill") as leader:
        await leader.until_logged("leading")
        for name in (lost, stays):
            await cluster.add_pod(name, WHOLE_NODE, TRAIN)
        bound = await cluster.bound(lost, stays)
        (spare,) = read_spares(bound[stays].annotations)
        assert {spare.node, *(pod.spec.node_name for pod in bound.values())} == {"n1", "n2", "n3"}
        await _run(cluster, *bound)
        await _wait(cluster, "other")
        leader.process.kill()
    await cluster.patch(f"{NODES}/{bound[lost].spec.node_name}", spec={"unschedulable": True})
    await cluster.delete(lost)
    async with scheduler(cluster, "--backfill") as leader:
        await leader.until_logged("leading")
        await _wait(cluster, "later")
        await cluster.add_pod(lost, WHOLE_NODE, TRAIN)
        again = await cluster.bound(lost)
        assert read_assignment(again[lost].annotations[names.ASSIGNMENT]).vfs == spare.vfs
        assert again[lost].spec.node_name == spare.node
        assert again[stays].spec.node_name == bound[stays].spec.node_name
        assert not any(again[name].spec.node_name for name in ("other", "later"))

        await cluster.delete(lost)
        await cluster.delete(stays)
        await cluster.bound("other", "later")

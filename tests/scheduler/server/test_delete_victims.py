"""Preemption against an API server: what is written to the victims and to the preempting pod."""

import asyncio
from collections.abc import AsyncIterator, Callable
from pathlib import Path
from typing import Any

import msgspec
import pytest

from devcluster.apiserver.http.faults import Fault, webhook_fails
from devcluster.apiserver.serve import ApiServer
from mooring.annotations.inventory import Pf
from mooring.kube.client import Client
from scheduler.cache.assigned_pod import AssignedPod
from scheduler.cycle.instructions import DeleteVictims
from scheduler.kube.objects import Node, OwnedMetadata, Pod
from scheduler.server.evict import delete_victims
from tests.scheduler.server.process import ALONE, Cluster, running
from tests.support.polling import eventually

MakePf = Callable[..., Pf]
MakeNode = Callable[..., Node]
CLASSES = "/apis/scheduling.k8s.io/v1/priorityclasses"
BUDGETS = "/apis/policy/v1/namespaces/default/poddisruptionbudgets"


@pytest.fixture
async def cluster(server: ApiServer, client: Client, tmp_path: Path) -> AsyncIterator[Cluster]:
    """Give a cluster that knows the priority class "high"."""
    kubeconfig = tmp_path / "kubeconfig"
    kubeconfig.write_text(server.kubeconfig_text())
    await client.request("POST", CLASSES, msgspec.json.encode({"metadata": {"name": "high"}, "value": 1000}))
    yield Cluster(client, kubeconfig)
    await client.request("DELETE", f"{CLASSES}/high")


def _condition(pod: Pod, kind: str) -> Any:
    return next((one for one in pod.status.conditions or () if one.type == kind), None)


async def test_a_victim_is_deleted_and_the_pod_gets_its_vf(
    cluster: Cluster, make_node: MakeNode, make_pf: MakePf
) -> None:
    """Nominated, victim marked with the reason and deleted with grace, an event on it, then bound with its VF."""
    await cluster.add_node(make_node("n1", (make_pf(vfs=1),)))
    await cluster.add_pod("low", "[{}]")
    async with running(cluster, *ALONE):
        await cluster.bound("low")
        await cluster.add_pod("high", "[{}]", priorityClassName="high")

        async def going() -> dict[str, Pod] | None:
            pods = await cluster.pods()
            nominated = pods["high"].status.nominated_node_name == "n1"
            return pods if nominated and pods["low"].metadata.deletion_timestamp else None

        pods = await eventually(going)
        target = _condition(pods["low"], "DisruptionTarget")
        assert (target.status, target.reason) == ("True", "PreemptionByScheduler")
        assert target.message == "mooring: preempting to accommodate a higher priority pod"
        assert not pods["high"].spec.node_name
        await cluster.delete("low")
        pods = await cluster.bound("high")
        assert not pods["high"].status.nominated_node_name
        (event,) = [one for one in await cluster.events() if one["reason"] == "Preempted"]
    assert event["involvedObject"]["name"] == "low"
    assert event["related"]["name"] == "high"
    assert event["message"] == f"Preempted by pod {pods['high'].metadata.uid} on node n1"
    assert (event["type"], event["action"]) == ("Normal", "Preempting")


async def test_a_budget_spares_a_pod_as_long_as_another_may_be_evicted(
    cluster: Cluster, client: Client, make_node: MakeNode, make_pf: MakePf
) -> None:
    """Budgets are read from the API server: the pod whose eviction violates one stays."""
    await cluster.add_node(make_node("n1", (make_pf(vfs=2),)))
    budget = {"metadata": {"name": "b"}, "spec": {"selector": {"matchLabels": {"app": "kept"}}, "minAvailable": 1}}
    await client.request("POST", BUDGETS, msgspec.json.encode(budget))
    async with running(cluster, *ALONE):
        await cluster.add_pod("other", "[{}]")
        await cluster.bound("other")
        await cluster.add_pod("kept", "[{}]", labels={"app": "kept"})
        await cluster.bound("kept")
        await cluster.add_pod("high", "[{}]", priorityClassName="high")

        async def going() -> set[str] | None:
            pods = await cluster.pods()
            return {name for name, pod in pods.items() if pod.metadata.deletion_timestamp} or None

        assert await eventually(going) == {"other"}
    await client.request("DELETE", f"{BUDGETS}/b")


async def _assigned(cluster: Cluster, name: str) -> AssignedPod:
    pod = (await cluster.pods())[name]
    return AssignedPod(pod.metadata.uid, pod.key, "n1")


async def test_another_pod_of_the_victims_name_is_left_alone(cluster: Cluster, client: Client) -> None:
    """Deleted and made again meanwhile: neither condition nor deletion reach the new one."""
    await cluster.add_pod("low")
    assigned = await _assigned(cluster, "low")
    await cluster.delete("low")
    await cluster.add_pod("low")
    ending = await delete_victims(client, DeleteVictims(Pod(OwnedMetadata("high")), "n1", (assigned,)), "mooring")
    assert (ending.deleted, ending.refused) == ((), "")
    pod = (await cluster.pods())["low"]
    assert pod.metadata.deletion_timestamp is None
    assert _condition(pod, "DisruptionTarget") is None


async def test_a_victim_that_is_gone_already_is_not_an_error(cluster: Cluster, client: Client) -> None:
    """All victims are deleted; those that are gone already count as neither deleted nor refused."""
    await asyncio.gather(cluster.add_pod("a"), cluster.add_pod("b"))
    first, second = await _assigned(cluster, "a"), await _assigned(cluster, "b")
    await cluster.delete("a")
    high = (await cluster.pods())["b"]
    ending = await delete_victims(client, DeleteVictims(high, "n1", (first, second)), "mooring")
    assert (ending.deleted, ending.refused) == ((second,), "")


async def test_a_victim_with_constant_write_conflicts_does_not_count_as_gone(
    cluster: Cluster, client: Client, server: ApiServer
) -> None:
    """A conflict does not mean that it is gone: the preempting pod must not wait for it, but be decided again."""
    await cluster.add_pod("low")
    assigned = await _assigned(cluster, "low")
    server.faults.plan(Fault("PATCH", "/status$", "answer", times=1, code=409))
    order = DeleteVictims(Pod(OwnedMetadata("high")), "n1", (assigned,))
    ending = await delete_victims(client, order, "mooring")
    assert ending.deleted == ()
    assert "409" in ending.refused
    assert (await delete_victims(client, order, "mooring")).deleted == (assigned,)


@pytest.mark.parametrize("code", [404, 409, 422, 500])
async def test_a_victim_whose_webhook_denies_the_write_does_not_count_as_gone(
    cluster: Cluster, client: Client, server: ApiServer, code: int
) -> None:
    """The webhook chooses the code. It is a definite answer: the preempting pod is decided about again."""
    await cluster.add_pod("low")
    assigned = await _assigned(cluster, "low")
    denial = webhook_fails("DELETE", "/low$")
    denial.code, denial.message = code, 'admission webhook "w.example.com" denied the request: no'
    server.faults.plan(denial)
    order = DeleteVictims(Pod(OwnedMetadata("high")), "n1", (assigned,))
    ending = await delete_victims(client, order, "mooring")
    assert ending.deleted == ()
    assert "denied the request" in ending.refused


async def test_nobody_is_deleted_before_all_are_marked(cluster: Cluster, client: Client, server: ApiServer) -> None:
    """Where one cannot be marked nobody goes, and the marks of the others are taken back."""
    await asyncio.gather(cluster.add_pod("a"), cluster.add_pod("b"))
    victims = await _assigned(cluster, "a"), await _assigned(cluster, "b")
    server.faults.plan(Fault("PATCH", "/b/status$", "answer", times=99, code=403))
    ending = await delete_victims(client, DeleteVictims(Pod(OwnedMetadata("high")), "n1", victims), "mooring")
    assert ending.deleted == ()
    assert "403" in ending.refused
    pods = await cluster.pods()
    assert [pods[name].metadata.deletion_timestamp for name in ("a", "b")] == [None, None]
    assert _condition(pods["a"], "DisruptionTarget").status == "False"
    assert _condition(pods["b"], "DisruptionTarget") is None


async def test_the_mark_of_a_victim_whose_deletion_is_refused_is_taken_back(
    cluster: Cluster, client: Client, server: ApiServer
) -> None:
    """Who bears it while it is not being deleted was left by a crash."""
    await asyncio.gather(cluster.add_pod("a"), cluster.add_pod("b"))
    victims = await _assigned(cluster, "a"), await _assigned(cluster, "b")
    server.faults.plan(Fault("DELETE", "/b$", "answer", times=99, code=403))
    ending = await delete_victims(client, DeleteVictims(Pod(OwnedMetadata("high")), "n1", victims), "mooring")
    assert ending.deleted == victims[:1]
    assert "403" in ending.refused
    condition = _condition((await cluster.pods())["b"], "DisruptionTarget")
    assert (condition.status, condition.message) == ("False", "mooring: the API server rejected the preemption")


class _Counting(Client):
    """A client whose requests take a turn of the loop; ``most`` were in flight at once, beside ``most_tasks`` tasks."""

    def __init__(self) -> None:
        self.most = self.sent = self.most_tasks = self._now = 0

    async def request(self, *_: object, **__: object) -> bytes:
        self._now += 1
        self.most_tasks = max(self.most_tasks, len(asyncio.all_tasks()))
        self.most, self.sent = max(self.most, self._now), self.sent + 1
        await asyncio.sleep(0)
        self._now -= 1
        return b"{}"


async def test_many_victims_keep_no_other_write_waiting() -> None:
    """A group's hundreds are deleted some at a time, as kube-scheduler does."""
    client = _Counting()
    victims = tuple(AssignedPod(f"u{number}", f"default/p{number}", "n1") for number in range(100))
    ending = await delete_victims(client, DeleteVictims(Pod(OwnedMetadata("high")), "n1", victims), "mooring")
    assert (ending.deleted, client.sent) == (victims, 200)
    assert client.most == 16
    # Thousands of tasks would start in one turn of the loop.
    assert client.most_tasks < 20

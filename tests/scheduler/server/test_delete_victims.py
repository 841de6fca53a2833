"""Preemption against an API server: what is written to the victims and to the preempting pod."""

import asyncio
from collections.abc import AsyncIterator

import pytest

from devcluster.apiserver.http.faults import Fault, webhook_fails
from devcluster.apiserver.serve import ApiServer
from mooring.kube.client import Client
from scheduler.cache.assigned_pod import AssignedPod
from scheduler.cycle.instructions import DeleteVictims, DeleteVictimsResult
from scheduler.kube.objects import OwnedMetadata, Pod
from scheduler.server.evict import delete_victims
from tests.scheduler.conftest import MakeNode, MakePf
from tests.scheduler.server.cluster import Cluster
from tests.scheduler.server.process import ALONE, running
from tests.support.polling import eventually

CLASSES = "/apis/scheduling.k8s.io/v1/priorityclasses"
BUDGETS = "/apis/policy/v1/namespaces/default/poddisruptionbudgets"


@pytest.fixture
async def cluster(cluster: Cluster) -> AsyncIterator[Cluster]:
    """Give a cluster that knows the priority class "high"."""
    await cluster.call("POST", CLASSES, {"metadata": {"name": "high"}, "value": 1000})
    yield cluster
    await cluster.call("DELETE", f"{CLASSES}/high")


async def _victims(cluster: Cluster, *names: str) -> tuple[AssignedPod, ...]:
    """Add pods, and return them as victims."""
    pods = await asyncio.gather(*(cluster.add_pod(name) for name in names))
    return tuple(AssignedPod(pod.metadata.uid, pod.key, "n1") for pod in pods)


async def _delete(cluster: Cluster, *victims: AssignedPod) -> DeleteVictimsResult:
    order = DeleteVictims(Pod(OwnedMetadata("high")), "n1", victims)
    return await delete_victims(cluster.client, order, "mooring")


async def _mark(cluster: Cluster, name: str) -> tuple[str, str | None, str | None] | None:
    condition = await cluster.condition(name, "DisruptionTarget")
    return None if condition is None else (condition.status, condition.reason, condition.message)


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
        message = "mooring: preempting to accommodate a higher priority pod"
        assert await _mark(cluster, "low") == ("True", "PreemptionByScheduler", message)
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
    cluster: Cluster, make_node: MakeNode, make_pf: MakePf
) -> None:
    """Budgets are read from the API server: the pod whose eviction violates one stays."""
    await cluster.add_node(make_node("n1", (make_pf(vfs=2),)))
    budget = {"metadata": {"name": "b"}, "spec": {"selector": {"matchLabels": {"app": "kept"}}, "minAvailable": 1}}
    await cluster.call("POST", BUDGETS, budget)
    async with running(cluster, *ALONE):
        await cluster.add_pod("other", "[{}]")
        await cluster.bound("other")
        await cluster.add_pod("kept", "[{}]", metadata={"labels": {"app": "kept"}})
        await cluster.bound("kept")
        await cluster.add_pod("high", "[{}]", priorityClassName="high")

        async def going() -> set[str] | None:
            pods = await cluster.pods()
            return {name for name, pod in pods.items() if pod.metadata.deletion_timestamp} or None

        assert await eventually(going) == {"other"}
    await cluster.call("DELETE", f"{BUDGETS}/b")


async def test_a_victim_that_is_gone_is_neither_deleted_nor_an_error(cluster: Cluster) -> None:
    """Another pod that has its name meanwhile is left alone: neither condition nor deletion reach it."""
    gone, again, there = await _victims(cluster, "gone", "again", "there")
    await cluster.delete("gone")
    await cluster.delete("again")
    await cluster.add_pod("again")
    ending = await _delete(cluster, gone, again, there)
    assert (ending.deleted, ending.refused) == ((there,), "")
    assert (await cluster.pod("again")).metadata.deletion_timestamp is None
    assert await _mark(cluster, "again") is None


async def test_a_victim_with_constant_write_conflicts_does_not_count_as_gone(
    cluster: Cluster, server: ApiServer
) -> None:
    """A conflict does not mean that it is gone: the preempting pod must not wait for it, but be decided again."""
    (victim,) = await _victims(cluster, "low")
    server.faults.plan(Fault("PATCH", "/status$", "answer", times=1, code=409))
    ending = await _delete(cluster, victim)
    assert ending.deleted == ()
    assert "409" in ending.refused
    assert (await _delete(cluster, victim)).deleted == (victim,)


@pytest.mark.parametrize("code", [404, 409, 422, 500])
async def test_a_victim_whose_webhook_denies_the_write_does_not_count_as_gone(
    cluster: Cluster, server: ApiServer, code: int
) -> None:
    """The webhook chooses the code. It is a definite answer: the preempting pod is decided about again."""
    (victim,) = await _victims(cluster, "low")
    denial = webhook_fails("DELETE", "/low$")
    denial.code, denial.message = code, 'admission webhook "w.example.com" denied the request: no'
    server.faults.plan(denial)
    ending = await _delete(cluster, victim)
    assert ending.deleted == ()
    assert "denied the request" in ending.refused


async def test_the_mark_of_a_victim_that_is_not_deleted_is_taken_back(cluster: Cluster, server: ApiServer) -> None:
    """Nobody is deleted before all are marked. Who bears a mark while it is not being deleted was left by a crash."""
    victims = await _victims(cluster, "a", "b")
    taken_back = ("False", "PreemptionByScheduler", "mooring: the API server rejected the preemption")
    server.faults.plan(Fault("PATCH", "/b/status$", "answer", times=99, code=403))
    ending = await _delete(cluster, *victims)
    assert ending.deleted == ()
    assert "403" in ending.refused
    assert [pod.metadata.deletion_timestamp for pod in (await cluster.pods()).values()] == [None, None]
    assert (await _mark(cluster, "a"), await _mark(cluster, "b")) == (taken_back, None)
    server.faults.planned.clear()
    server.faults.plan(Fault("DELETE", "/b$", "answer", times=99, code=403))
    ending = await _delete(cluster, *victims)
    assert ending.deleted == victims[:1]
    assert "403" in ending.refused
    assert await _mark(cluster, "b") == taken_back


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
    ending = await _delete(Cluster(client), *victims)
    assert (ending.deleted, client.sent) == (victims, 200)
    assert client.most == 16
    # Thousands of tasks would start in one turn of the loop.
    assert client.most_tasks < 20

"""Pods that must go, against an API server: those that can never start, and the victims of preemption."""

import asyncio
from collections.abc import AsyncIterator

import pytest
from prometheus_client import REGISTRY

from devcluster.apiserver.http.faults import Fault, webhook_fails
from devcluster.apiserver.serve import ApiServer
from mooring import names
from mooring.annotations.assignment import AssignedVf, Assignment, dump_assignment
from mooring.annotations.inventory import Inventory, dump_inventory
from mooring.kube.client import Client
from scheduler.cache.assigned_pod import AssignedPod
from scheduler.cycle.instructions import DeleteVictims, DeleteVictimsResult
from scheduler.kube.objects import OwnedMetadata, Pod
from scheduler.server.evict import delete_victims
from tests.scheduler.conftest import MakeNode, MakePf
from tests.scheduler.server.cluster import NODES, Cluster
from tests.scheduler.server.process import ALONE, running
from tests.scheduler.server.stage import Stage
from tests.support.polling import eventually, until

OWNER = [{"apiVersion": "apps/v1", "kind": "ReplicaSet", "name": "r", "uid": "u", "controller": True}]


def _evictions() -> float:
    labels = {"cause": "NeverStarts", "result": "evicted"}
    return REGISTRY.get_sample_value("mooring_evictions_total", labels) or 0.0


async def _contradict(stage: Stage, make_node: MakeNode, make_pf: MakePf) -> None:
    """Bind a pod with a VF, and publish then an inventory without that VF."""
    await stage.add_node(make_node("n1", (make_pf(vfs=4),)))
    pod = await stage.add_pod("p", metadata={"ownerReferences": OWNER})
    vfs = (AssignedVf("pf0", 3, "0000:04:00.5", "ethernet", "rail0"),)
    text = dump_assignment(Assignment(pod.metadata.uid, "n1", vfs))
    await stage.bind("p", {names.ASSIGNMENT: text, names.REQUEST: "[{}]"})
    inventory = dump_inventory(Inventory("boot-1", (make_pf(vfs=2),)))
    await stage.patch(f"{NODES}/n1", metadata={"annotations": {names.INVENTORY: inventory}})


async def test_a_pod_that_can_never_start_is_evicted(stage: Stage, make_node: MakeNode, make_pf: MakePf) -> None:
    """Five minutes after its leader saw that its VF is gone; its owner gets the reason, and the metric counts it."""
    await _contradict(stage, make_node, make_pf)
    before = _evictions()

    async def is_leaving() -> bool:
        pod = (await stage.pods()).get("p")
        return pod is None or pod.metadata.deletion_timestamp is not None

    async def has_event() -> bool:
        events = [one["message"] for one in await stage.events("p") if one["reason"] == "NeverStarts"]
        return any(one.startswith("evicted: cannot start on node n1: VF 0000:04:00.5") for one in events)

    async with stage.lead():
        await until(lambda: stage.machine.next_due() is not None)
        stage.now += 301.0
        await stage.add_pod("bell")
        await eventually(is_leaving)
        await eventually(has_event)
        await until(lambda: not stage.loop.writes)
    assert _evictions() - before == 1


async def test_a_pod_of_the_same_name_is_not_evicted_in_place_of_another(
    stage: Stage, make_node: MakeNode, make_pf: MakePf
) -> None:
    """The uid is a precondition: a new pod of that name stays."""
    await _contradict(stage, make_node, make_pf)
    async with stage.lead():
        await until(lambda: stage.machine.next_due() is not None)
        # Deleted and made again while this scheduler's watch is behind: the eviction finds another uid.
        (order,) = stage.machine.tick(stage.now + 301.0)
        await stage.delete("p")
        await stage.add_pod("p", nodeSelector={"no": "where"})
        stage.loop._carry_out([order])
        await until(lambda: not stage.loop.writes)
        assert (await stage.pod("p")).metadata.deletion_timestamp is None


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

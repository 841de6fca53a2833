"""Pods that must go, against an API server: those that can never start, and the victims of preemption."""

import asyncio
from functools import partial

import pytest

from devcluster.apiserver.http.faults import Fault
from mooring import names
from mooring.annotations.assignment import AssignedVf, Assignment, dump_assignment
from mooring.annotations.inventory import Inventory, dump_inventory
from scheduler.cache.assigned_pod import AssignedPod
from scheduler.cycle.instructions import DeleteVictims, DeleteVictimsResult
from scheduler.kube.objects import OwnedMetadata, Pod
from scheduler.server.evict import delete_victims
from tests.scheduler.conftest import MakePf
from tests.scheduler.server.cluster import NODES, Cluster, counter, when
from tests.scheduler.server.process import ALONE, scheduler
from tests.scheduler.server.stage import Stage
from tests.support.polling import until

OWNER = [{"apiVersion": "apps/v1", "kind": "ReplicaSet", "name": "r", "uid": "u", "controller": True}]
DENIAL = 'admission webhook "w.example.com" denied the request: no'
BUDGETS = "/apis/policy/v1/namespaces/default/poddisruptionbudgets"
# The condition DisruptionTarget of a victim: status, reason, message.
MARK = ("True", "PreemptionByScheduler", "mooring: preempting to accommodate a higher priority pod")
CANCELED = ("False", "PreemptionByScheduler", "mooring: the API server rejected the preemption")


@pytest.fixture
async def stage(stage: Stage, make_pf: MakePf) -> Stage:
    """Give a bound pod with a VF that its node's inventory no longer has."""
    await stage.add_rdma_node("n1", vfs=4)
    pod = await stage.add_pod("p", metadata={"ownerReferences": OWNER})
    vfs = (AssignedVf("pf0", 3, "0000:04:00.5", "ethernet", "rail0"),)
    text = dump_assignment(Assignment(pod.metadata.uid, "n1", vfs))
    await stage.bind("p", {names.ASSIGNMENT: text, names.REQUEST: "[{}]"})
    inventory = dump_inventory(Inventory("boot-1", (make_pf(vfs=2),)))
    await stage.patch(f"{NODES}/n1", metadata={"annotations": {names.INVENTORY: inventory}})
    return stage


async def test_a_pod_that_can_never_start_is_evicted(stage: Stage) -> None:
    """Five minutes after its leader saw that its VF is gone; its owner gets the reason, and the metric counts it."""
    evictions = partial(counter, "mooring_evictions_total", cause="NeverStarts", result="evicted")
    before = evictions()

    async with stage.lead():
        await until(lambda: stage.machine.next_due() is not None)
        stage.now += 301.0
        await stage.add_pod("bell")
        event = await stage.event("p", reason="NeverStarts")
        assert event["message"].startswith("evicted: cannot start on node n1: VF 0000:04:00.5")
        pod = (await stage.pods()).get("p")
        assert pod is None or pod.metadata.deletion_timestamp
        await until(lambda: not stage.loop.writes)
    assert evictions() - before == 1


async def test_a_pod_of_the_same_name_is_not_evicted_in_place_of_another(stage: Stage) -> None:
    """The uid is a precondition: a new pod of that name stays."""
    async with stage.lead():
        await until(lambda: stage.machine.next_due() is not None)
        # Deleted and made again while this scheduler's watch is behind: the eviction finds another uid.
        (order,) = stage.machine.tick(stage.now + 301.0)
        await stage.delete("p")
        await stage.add_pod("p", nodeSelector={"no": "where"})
        stage.loop._carry_out([order])
        await until(lambda: not stage.loop.writes)
        assert (await stage.pod("p")).metadata.deletion_timestamp is None


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


def _rejects(method: str, path: str, code: int, message: str = "no") -> Fault:
    return Fault(method, path, "answer", times=99, code=code, reason="InternalError", message=message)


async def test_preemption_deletes_a_victim_that_no_budget_protects_and_the_pod_gets_its_vf(cluster: Cluster) -> None:
    """Nominated, victim marked with the reason and deleted with grace, an event on it, then bound with its VF."""
    await cluster.add_rdma_node("n1", vfs=2)
    budget = {"metadata": {"name": "b"}, "spec": {"selector": {"matchLabels": {"app": "kept"}}, "minAvailable": 1}}
    await cluster.call("POST", BUDGETS, budget)
    await cluster.add_priority_class("high", 1000)
    async with scheduler(cluster, *ALONE):
        await cluster.add_pod("low", "[{}]")
        await cluster.bound("low")
        # Younger, so it would be the victim without its budget.
        await cluster.add_pod("kept", "[{}]", metadata={"labels": {"app": "kept"}})
        await cluster.bound("kept")
        await cluster.add_pod("high", "[{}]", priorityClassName="high")
        await when(lambda: cluster.pod("high"), lambda pod: pod.status.nominated_node_name == "n1")
        pods = await cluster.going("low")
        assert await _mark(cluster, "low") == MARK
        assert not pods["high"].spec.node_name
        assert pods["kept"].metadata.deletion_timestamp is None
        await cluster.delete("low")
        pods = await cluster.bound("high")
        assert not pods["high"].status.nominated_node_name
        (event,) = [one for one in await cluster.events() if one["reason"] == "Preempted"]
    assert (event["involvedObject"]["name"], event["related"]["name"]) == ("low", "high")
    assert event["message"] == f"Preempted by pod {pods['high'].metadata.uid} on node n1"
    assert (event["type"], event["action"]) == ("Normal", "Preempting")
    await cluster.call("DELETE", f"{BUDGETS}/b")


async def test_a_victim_that_is_gone_is_neither_deleted_nor_an_error(cluster: Cluster) -> None:
    """Another pod that has its name meanwhile is left alone: neither condition nor deletion reach it."""
    gone, again, there = await _victims(cluster, "gone", "again", "there")
    await cluster.delete("gone")
    await cluster.delete("again")
    await cluster.add_pod("again")
    assert await _delete(cluster, gone, again, there) == DeleteVictimsResult((there,), "")
    assert (await cluster.pod("again")).metadata.deletion_timestamp is None
    assert await _mark(cluster, "again") is None


@pytest.mark.parametrize(
    ("fault", "refused", "deleted", "marks"),
    [
        # Nobody is deleted before all are marked: a mark on a pod that is not being deleted was left by a crash.
        pytest.param(_rejects("PATCH", "/b/status$", 403), "403", "", {"a": CANCELED, "b": None}, id="no-mark"),
        # Another write was faster; that does not mean that the pod is gone.
        pytest.param(_rejects("PATCH", "/b/status$", 409), "409", "", {"a": CANCELED, "b": None}, id="conflict"),
        pytest.param(_rejects("DELETE", "/b$", 403), "403", "a", {"b": CANCELED}, id="no-deletion"),
        # A webhook chooses the code of its denial.
        *(
            pytest.param(_rejects("DELETE", "/b$", code, DENIAL), DENIAL, "a", {"b": CANCELED}, id=f"denied-{code}")
            for code in (404, 409, 422, 500)
        ),
    ],
)
async def test_a_victim_that_cannot_be_written_does_not_count_as_gone(
    cluster: Cluster, fault: Fault, refused: str, deleted: str, marks: dict[str, object]
) -> None:
    """The preempting pod is decided again, the mark of every victim that stays is removed, and the next try works."""
    victims = await _victims(cluster, "a", "b")
    cluster.plan(fault)
    result = await _delete(cluster, *victims)
    assert result.deleted == tuple(victim for victim in victims if victim.pod == f"default/{deleted}")
    assert refused in result.refused
    assert {name: await _mark(cluster, name) for name in marks} == marks
    # Pods without a node are gone at once.
    assert set(await cluster.pods()) == {"a", "b"} - {deleted}
    cluster.server.faults.planned.clear()
    assert victims[1] in (await _delete(cluster, *victims)).deleted

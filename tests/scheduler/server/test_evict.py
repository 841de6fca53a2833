"""Pods that can never start are evicted by their own uid."""

from typing import Any

import msgspec
from prometheus_client import REGISTRY

from mooring import names
from mooring.annotations.assignment import AssignedVf, Assignment, dump_assignment
from mooring.annotations.inventory import Inventory, dump_inventory
from mooring.kube.client import MERGE_PATCH
from scheduler.kube.objects import Pod
from tests.scheduler.server.stage import PODS, MakeNode, MakePf, Stage
from tests.support.polling import eventually


def _evictions() -> float:
    labels = {"cause": "NeverStarts", "result": "evicted"}
    return REGISTRY.get_sample_value("mooring_evictions_total", labels) or 0.0


async def _have_ended(stage: Stage) -> bool:
    return not stage.loop.writes


OWNER = [{"apiVersion": "apps/v1", "kind": "ReplicaSet", "name": "r", "uid": "u", "controller": True}]


async def _contradicted(stage: Stage, make_node: MakeNode, make_pf: MakePf, **metadata: Any) -> Pod:
    """Make a pod that is bound with a VF, and then an inventory without that VF."""
    await stage.add_node(make_node("n1", (make_pf(vfs=4),)))
    pod = await stage.add_pod("p", metadata)
    vfs = (AssignedVf("pf0", 3, "0000:04:00.5", "ethernet", "rail0"),)
    text = dump_assignment(Assignment(pod.metadata.uid, "n1", vfs))
    target = {"apiVersion": "v1", "kind": "Node", "name": "n1"}
    about = {"name": "p", "annotations": {names.ASSIGNMENT: text, names.REQUEST: "[{}]"}}
    binding = {"apiVersion": "v1", "kind": "Binding", "metadata": about, "target": target}
    await stage.client.request("POST", f"{PODS}/p/binding", msgspec.json.encode(binding))
    inventory = dump_inventory(Inventory("boot-1", (make_pf(vfs=2),)))
    patch = msgspec.json.encode({"metadata": {"annotations": {names.INVENTORY: inventory}}})
    await stage.client.request("PATCH", "/api/v1/nodes/n1", patch, MERGE_PATCH)
    return pod


async def test_a_pod_that_can_never_start_is_evicted(stage: Stage, make_node: MakeNode, make_pf: MakePf) -> None:
    """Five minutes after its leader saw that its VF is gone; its owner gets the reason, and the metric counts it."""
    await _contradicted(stage, make_node, make_pf, ownerReferences=OWNER)
    before = _evictions()
    async with stage.run():
        stage.loop.lead()
        await eventually(lambda: _is_due(stage))
        stage.now += 301.0
        await stage.add_pod("bell")
        await eventually(lambda: _is_leaving(stage))
        await eventually(lambda: _has_event(stage, "evicted: cannot start on node n1: VF 0000:04:00.5"))
        await eventually(lambda: _have_ended(stage))
    assert _evictions() - before == 1


async def _is_due(stage: Stage) -> bool:
    return stage.machine.next_due() is not None


async def _is_leaving(stage: Stage) -> bool:
    pod = await stage.pod("p")
    return pod is None or pod.metadata.deletion_timestamp is not None


async def _has_event(stage: Stage, begin: str) -> bool:
    return any(reason == "NeverStarts" and message.startswith(begin) for reason, message in await stage.events("p"))


async def test_a_pod_of_the_same_name_is_not_evicted_in_place_of_another(
    stage: Stage, make_node: MakeNode, make_pf: MakePf
) -> None:
    """The uid is a precondition: a new pod of that name stays."""
    await _contradicted(stage, make_node, make_pf, ownerReferences=OWNER)
    async with stage.run():
        stage.loop.lead()
        await eventually(lambda: _is_due(stage))
        # Deleted and made again while this scheduler's watch is behind: the eviction finds another uid.
        (order,) = stage.machine.tick(stage.now + 301.0)
        await stage.client.request("DELETE", f"{PODS}/p", params={"gracePeriodSeconds": "0"})
        await stage.add_pod("p", nodeSelector={"no": "where"})
        stage.loop._follow([order])
        await eventually(lambda: _have_ended(stage))
        pod = await stage.pod("p")
        assert pod is not None
        assert pod.metadata.deletion_timestamp is None

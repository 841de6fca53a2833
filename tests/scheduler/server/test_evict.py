"""Pods that can never start are evicted by their own uid."""

from prometheus_client import REGISTRY

from mooring import names
from mooring.annotations.assignment import AssignedVf, Assignment, dump_assignment
from mooring.annotations.inventory import Inventory, dump_inventory
from tests.scheduler.conftest import MakeNode, MakePf
from tests.scheduler.server.cluster import NODES
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
        stage.loop._follow([order])
        await until(lambda: not stage.loop.writes)
        assert (await stage.pod("p")).metadata.deletion_timestamp is None

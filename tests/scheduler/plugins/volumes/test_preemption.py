"""Preemption of less important pods for one whose volumes keep it away."""

from mooring.kube.events import Changed, Identity
from scheduler.cycle.instructions import DeleteVictims, Instruction
from tests.scheduler.volume_store import HOST, Store, on


def _victims(instructions: list[Instruction]) -> list[tuple[str, str]]:
    return [
        (order.node, assigned.uid)
        for order in instructions
        if isinstance(order, DeleteVictims)
        for assigned in order.victims
    ]


def test_a_claim_for_one_pod_at_a_time_is_taken_from_a_less_important_pod(store: Store) -> None:
    """The pod with the ReadWriteOncePod claim goes; another pod on the node, of the same priority, stays."""
    store.nodes("n1")
    store.claim("c", "v", modes=["ReadWriteOncePod"])
    store.volume("v", claim={"name": "c", "namespace": "default", "uid": "u-c"})
    holder = store.pod("c", node="n1")
    store.pod(node="n1")
    store.pod("c", spec={"priority": 1})
    assert _victims(store.run()) == [("n1", holder.metadata.uid)]


def test_a_pod_is_preempted_for_a_nodes_limit_of_attached_volumes(store: Store) -> None:
    """The node attaches one volume only: the pod that has one goes, a pod without one stays."""
    store.nodes("n1")
    store.limit("n1", 1)
    for name in ("a", "b"):
        store.claim(name, f"v{name}")
        store.volume(f"v{name}", claim={"name": name, "namespace": "default", "uid": f"u-{name}"})
    holder = store.pod("a", node="n1")
    store.pod(node="n1")
    store.pod("b", spec={"priority": 1})
    assert _victims(store.run()) == [("n1", holder.metadata.uid)]


def test_no_pod_is_preempted_where_the_volume_cannot_be_used(store: Store) -> None:
    """Both nodes are full; only the pods on the volume's own node are in the way."""
    for name in ("n1", "n2"):
        node = store.make_node(name, labels={HOST: name}, allocatable={"cpu": "1", "pods": "9", "memory": "1Gi"})
        store.machine.nodes(Changed(Identity(name), node), store.now)
    store.claim("c", "v")
    store.volume("v", where=on(HOST, "n2"), claim={"name": "c", "namespace": "default", "uid": "u-c"})
    busy = {"containers": [{"name": "c", "resources": {"requests": {"cpu": "1"}}}]}
    store.pod(node="n1", spec=busy)
    there = store.pod(node="n2", spec=busy)
    store.pod("c", spec=busy | {"priority": 1})
    assert _victims(store.run()) == [("n2", there.metadata.uid)]

"""Preemption of less important pods for one whose volumes keep it away."""

import pytest

from scheduler.cycle.instructions import Instruction
from tests.scheduler.group_life import changed_event, orders
from tests.scheduler.volume_store import HOST, Store, on


def _victims(instructions: list[Instruction]) -> list[tuple[str, str]]:
    return [(order.node, assigned.uid) for order in orders(instructions) for assigned in order.victims]


@pytest.mark.parametrize("claims", ["cc", "ab"], ids=["ReadWriteOncePod claim", "limit of attached volumes"])
def test_a_pod_is_preempted_for_its_claim_or_its_attached_volume(claims: str, store: Store) -> None:
    """The less important pod that has it goes; another pod on the node, of the same priority, stays."""
    store.nodes("n1")
    store.limit("n1", 1)
    for name in claims:
        store.claim(name, f"v{name}", modes=["ReadWriteOncePod"])
        store.volume(f"v{name}", claim={"name": name, "namespace": "default", "uid": f"u-{name}"})
    holder = store.pod(claims[0], node="n1")
    store.pod(node="n1")
    store.pod(claims[1], spec={"priority": 1})
    assert _victims(store.run()) == [("n1", holder.metadata.uid)]


def test_no_pod_is_preempted_where_the_volume_cannot_be_used(store: Store) -> None:
    """Both nodes are full; only the pods on the volume's own node are in the way."""
    for name in ("n1", "n2"):
        node = store.make_node(name, labels={HOST: name}, allocatable={"cpu": "1", "pods": "9", "memory": "1Gi"})
        store.machine.nodes(changed_event(node), store.now)
    store.claim("c", "v")
    store.volume("v", where=on(HOST, "n2"), claim={"name": "c", "namespace": "default", "uid": "u-c"})
    busy = {"containers": [{"name": "c", "resources": {"requests": {"cpu": "1"}}}]}
    store.pod(node="n1", spec=busy)
    there = store.pod(node="n2", spec=busy)
    store.pod("c", spec=busy | {"priority": 1})
    assert _victims(store.run()) == [("n2", there.metadata.uid)]

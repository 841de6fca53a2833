"""If a driver publishes its capacity, no volume is requested where there is too little."""

from typing import Any

import pytest

from scheduler.kube.storage_objects import CSIDriver, CSIStorageCapacity
from tests.scheduler.volume_store import HOST, Store

NO_ROOM = "1 node(s) did not have enough free storage."


@pytest.fixture
def driver(store: Store) -> Store:
    _publish(store)
    store.nodes("n1")
    return store


def _publish(store: Store, *, is_on: bool = True) -> None:
    store.tell(CSIDriver, {"metadata": {"name": "csi.x"}, "spec": {"storageCapacity": is_on}})


def _room(store: Store, node: str, size: str | None, **fields: Any) -> None:
    document: dict[str, Any] = {
        "metadata": {"name": f"on-{node}", "namespace": "kube-system"},
        "storageClassName": "late",
        "capacity": size,
        "nodeTopology": {"matchLabels": {HOST: node}},
    }
    store.tell(CSIStorageCapacity, document | fields)


def _want(store: Store, size: str = "1Gi", selected: str = "") -> str:
    """Show a pod whose claim needs a volume of this size; return the outcome."""
    store.claim("c", size=size, selected=selected)
    store.pod("c")
    return store.outcome()


def test_a_volume_is_made_where_the_driver_has_capacity_for_it(driver: Store) -> None:
    """The first node in order is full: it is not chosen again and again."""
    driver.nodes("n2", "n3")
    _room(driver, "n1", "1Gi")
    _room(driver, "n2", "9Gi", maximumVolumeSize="1Gi")
    _room(driver, "n3", "4Gi")
    assert _want(driver, "4Gi") == "n3 c=new"


@pytest.mark.parametrize(
    "fields",
    [
        {"capacity": None},
        {"capacity": "much"},
        {"nodeTopology": None},
        {"nodeTopology": {"matchExpressions": [{"key": HOST, "operator": "Near"}]}},
        {"nodeTopology": {"matchExpressions": [{"key": HOST, "operator": "DoesNotExist"}]}},
        {"storageClassName": "another"},
    ],
)
def test_capacity_without_a_matching_topology_does_not_count(fields: Any, driver: Store) -> None:
    """In kube-scheduler's words; more capacity requeues the pod."""
    _room(driver, "n1", "4Gi", **fields)
    assert _want(driver) == NO_ROOM
    driver.now = 10.0
    _room(driver, "n1", "4Gi")
    assert driver.outcome() == "n1 c=new"


@pytest.mark.parametrize("topology", [{}, {"matchExpressions": [{"key": HOST, "operator": "Exists"}]}])
def test_capacity_may_be_accessible_from_many_nodes(topology: Any, driver: Store) -> None:
    driver.nodes("n2")
    _room(driver, "n1", "4Gi", nodeTopology=topology)
    assert _want(driver, selected="n2") == "n2 c=new"


def test_an_existing_volume_needs_no_capacity(driver: Store) -> None:
    driver.volume("v")
    assert _want(driver) == "n1 c=v"


def test_less_capacity_requeues_no_pod_and_a_driver_that_stops_publishing_does(driver: Store) -> None:
    """Growth helps; a driver that publishes nothing is simply tried."""
    _room(driver, "n1", "2Gi")
    assert _want(driver, "4Gi") == NO_ROOM
    driver.now = 10.0
    _room(driver, "n1", "1Gi")
    driver.gone(CSIStorageCapacity, "on-n1")
    assert driver.machine.pending_pods.depths()["unschedulable"] == 1
    _publish(driver, is_on=False)
    assert driver.outcome() == "n1 c=new"


def test_without_a_driver_that_publishes_capacity_every_node_has_enough(store: Store) -> None:
    store.nodes("n1")
    assert _want(store, "4Gi") == "n1 c=new"

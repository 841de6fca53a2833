"""If a driver publishes its capacity, no volume is requested where there is too little."""

from typing import Any

import pytest

from scheduler.kube.storage_objects import CSIDriver, CSIStorageCapacity
from tests.scheduler.volume_store import HOST, Store

NO_ROOM = "node(s) did not have enough free storage"


@pytest.fixture
def driver(store: Store) -> Store:
    """Give the store with a driver that publishes its capacity."""
    _track(store)
    return store


def _track(store: Store, **spec: Any) -> None:
    store.tell(CSIDriver, {"metadata": {"name": "csi.x"}, "spec": {"storageCapacity": True} | spec})


def _room(store: Store, node: str, size: str | None, **fields: Any) -> None:
    document: dict[str, Any] = {
        "metadata": {"name": f"on-{node}", "namespace": "kube-system"},
        "storageClassName": "late",
        "capacity": size,
        "nodeTopology": {"matchLabels": {HOST: node}},
    }
    store.tell(CSIStorageCapacity, document | fields)


def test_a_volume_is_made_where_the_driver_has_capacity_for_it(driver: Store) -> None:
    """The first node in order is full: it is not chosen again and again."""
    driver.nodes("n1", "n2", "n3")
    _room(driver, "n1", "1Gi")
    _room(driver, "n2", "9Gi", maximumVolumeSize="1Gi")
    _room(driver, "n3", "4Gi")
    driver.claim("c", size="4Gi")
    driver.pod("c")
    assert driver.pre_filter().plan.node == "n3"


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
    driver.nodes("n1")
    _room(driver, "n1", "4Gi", **fields)
    driver.claim("c")
    driver.pod("c")
    assert driver.message() == f"0/1 nodes are available: 1 {NO_ROOM}."
    driver.now = 10.0
    _room(driver, "n1", "4Gi")
    assert driver.pre_filter().plan.node == "n1"


@pytest.mark.parametrize("topology", [{}, {"matchExpressions": [{"key": HOST, "operator": "Exists"}]}])
def test_capacity_may_be_accessible_from_many_nodes(topology: Any, driver: Store) -> None:
    """An empty selector takes all nodes."""
    driver.nodes("n1", "n2")
    _room(driver, "n1", "4Gi", nodeTopology=topology)
    driver.claim("c", selected="n2")
    driver.pod("c")
    assert driver.pre_filter().plan.node == "n2"


def test_an_existing_volume_needs_no_capacity(driver: Store) -> None:
    driver.nodes("n1")
    driver.volume("v")
    driver.claim("c")
    driver.pod("c")
    assert [one.volume.metadata.name for one in driver.pre_filter().plan.matches] == ["v"]


def test_less_capacity_requeues_no_pod_and_a_driver_that_stops_publishing_does(driver: Store) -> None:
    """Growth helps; a driver that publishes nothing is simply tried."""
    driver.nodes("n1")
    _room(driver, "n1", "2Gi")
    driver.claim("c", size="4Gi")
    driver.pod("c")
    assert NO_ROOM in driver.message()
    driver.now = 10.0
    _room(driver, "n1", "1Gi")
    driver.gone(CSIStorageCapacity, "on-n1")
    assert driver.machine.pending_pods.depths()["unschedulable"] == 1
    _track(driver, storageCapacity=False)
    assert driver.pre_filter().plan.node == "n1"


def test_without_a_driver_that_publishes_capacity_every_node_has_enough(store: Store) -> None:
    store.nodes("n1")
    store.claim("c", size="4Gi")
    store.pod("c")
    assert store.pre_filter().plan.node == "n1"

"""How many volumes of a driver a node attaches."""

import pytest

from scheduler.kube.storage_objects import CSINode, VolumeAttachment
from tests.scheduler.conftest import Json
from tests.scheduler.volume_store import Store


def _volumes(store: Store, *names: str) -> None:
    """Show volumes with a claim of their name each."""
    for name in names:
        store.volume(name)
        store.claim(name, name)


def test_a_driver_attaches_no_more_volumes_than_its_limit(store: Store) -> None:
    """Volumes that pods use and those attached without a pod count once each; a volume already there adds none."""
    store.nodes("n1")
    store.limit("n1", 3)
    _volumes(store, "v1", "v2", "v3", "v4")
    store.pod("v1", node="n1")
    store.attach("n1", "v1")
    store.attach("n1", "v2")
    store.pod("v3")
    assert store.choose() == "n1"
    store.pod("v2")
    assert store.choose() == "n1"
    store.pod("v4")
    assert store.message() == "0/1 nodes are available: 1 node(s) exceed max volume count."
    store.now = 10.0
    store.limit("n1", 4)
    assert store.choose() == "n1"


@pytest.mark.parametrize("allocatable", [{"count": 0}, {}, None])
def test_a_limit_of_0_is_one_and_none_is_no_limit(allocatable: Json | None, store: Store) -> None:
    """As for kube-scheduler."""
    store.nodes("n1")
    driver = {"name": "csi.x"} | ({} if allocatable is None else {"allocatable": allocatable})
    store.tell(CSINode, {"metadata": {"name": "n1"}, "spec": {"drivers": [driver]}})
    _volumes(store, "v")
    store.pod("v")
    if allocatable:
        assert store.message() == "0/1 nodes are available: 1 node(s) exceed max volume count."
    else:
        assert store.choose() == "n1"


def test_a_detached_volume_no_longer_counts(store: Store) -> None:
    """The attachment's end requeues the pods that wait for it; a change of its status requeues none."""
    store.nodes("n1")
    store.limit("n1", 1)
    _volumes(store, "v1", "v2")
    store.attach("n1", "v1")
    store.pod("v2")
    assert "exceed max volume count" in store.message()
    store.now = 10.0
    store.attach("n1", "v1")
    assert store.machine.pending_pods.depths()["unschedulable"] == 1
    store.gone(VolumeAttachment, "a-n1-v1")
    assert store.choose() == "n1"

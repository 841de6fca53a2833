"""How many volumes of a driver a node attaches."""

from scheduler.kube.storage_objects import CSINode, VolumeAttachment
from tests.scheduler.volume_store import Store


def test_a_driver_attaches_no_more_volumes_than_its_limit(store: Store) -> None:
    """Volumes that pods use and those attached without a pod count once each; a volume already there adds none."""
    store.nodes("n1")
    store.limit("n1", 3)
    for name in ("v1", "v2", "v3"):
        store.volume(name)
        store.claim(f"c{name}", name)
    store.pod("cv1", node="n1")
    store.attach("n1", "v1")
    store.attach("n1", "v2")
    store.pod("cv3")
    assert store.choose() == "n1"
    store.volume("v4")
    store.claim("cv4", "v4")
    store.pod("cv2")
    assert store.choose() == "n1"
    store.pod("cv4")
    assert store.message() == "0/1 nodes are available: 1 node(s) exceed max volume count."
    store.now = 10.0
    store.limit("n1", 4)
    assert store.choose() == "n1"


def test_a_driver_that_attaches_none_takes_no_volume(store: Store) -> None:
    """A limit of 0 is one, as for kube-scheduler."""
    store.nodes("n1")
    store.limit("n1", 0)
    store.volume("v")
    store.claim("c", "v")
    store.pod("c")
    assert store.message() == "0/1 nodes are available: 1 node(s) exceed max volume count."


def test_a_detached_volume_no_longer_counts(store: Store) -> None:
    """The attachment's end requeues the pods that wait for it; a change of its status requeues none."""
    store.nodes("n1")
    store.limit("n1", 1)
    for name in ("v1", "v2"):
        store.volume(name)
        store.claim(f"c{name}", name)
    store.attach("n1", "v1")
    store.pod("cv2")
    assert "exceed max volume count" in store.message()
    store.now = 10.0
    store.attach("n1", "v1")
    assert store.machine.pending_pods.depths()["unschedulable"] == 1
    store.gone(VolumeAttachment, "a-n1-v1")
    assert store.choose() == "n1"


def test_a_node_whose_drivers_have_no_limit_takes_any_number(store: Store) -> None:
    store.nodes("n1")
    store.tell(CSINode, {"metadata": {"name": "n1"}, "spec": {"drivers": [{"name": "csi.x"}]}})
    store.volume("v1")
    store.claim("c", "v1")
    store.pod("c")
    assert store.choose() == "n1"

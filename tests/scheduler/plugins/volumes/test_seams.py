"""Events between a decision and its bind while a pod waits for volumes: its volume taken away, its own changes."""

import pytest

from mooring.kube.events import Synced
from mooring.parsing import MAX_BYTES
from scheduler.cycle.decisions import Bind
from scheduler.cycle.instructions import PreBind, Report
from scheduler.kube.storage_objects import PersistentVolume
from tests.scheduler.group_life import annotated, changed
from tests.scheduler.volume_store import HOST, Store, on

OF_C = {"namespace": "default", "name": "c", "uid": "u-c"}


@pytest.fixture
def matched(store: Store) -> PreBind:
    store.nodes("n1")
    store.storage_class("late", "kubernetes.io/no-provisioner")
    store.volume("v")
    store.claim("c")
    store.pod("c")
    return store.pre_filter()


def _after_deletion(store: Store, order: PreBind) -> PreBind:
    """Delete the pod, and return the order for the next one."""
    store.show(changed(order.decision.pod_info.pod, metadata={"deletionTimestamp": "2026-01-01T00:00:00Z"}))
    store.now = 10.0
    return store.pre_filter()


@pytest.mark.parametrize("event", ["reset", "removed", "not listed"])
def test_a_volume_that_is_taken_away_ends_the_wait_at_once(event: str, matched: PreBind, store: Store) -> None:
    """No change concerns the claim; a list may skip the moment at which the volume named it."""
    store.prepared(matched, v="4" if event == "reset" else "1000")
    if event == "reset":
        store.volume("v", claim=OF_C)
    assert store.run() == []
    if event == "reset":
        store.volume("v")
    elif event == "removed":
        store.gone(PersistentVolume, "v")
    else:
        store.machine.handle(PersistentVolume, Synced(()), store.now)
    is_reset = event == "reset"
    reason = 'ClaimRef got reset for pv "v"' if is_reset else 'failed to check binding: persistentvolume "v" not found'
    assert [one.message for one in store.run() if isinstance(one, Report)] == [f"binding volumes: {reason}"]


def test_an_assumed_volume_that_is_given_up_requeues_pods_that_wait_for_one(matched: PreBind, store: Store) -> None:
    """The first pod's claim could not be written and the pod is deleted: no event of the API concerns the second."""
    store.claim("d")
    store.pod("d")
    assert "didn't find available persistent volumes" in store.message()
    store.prepared(matched, "forbidden")
    second = _after_deletion(store, matched)
    assert second.decision.pod_info.uid != matched.decision.pod_info.uid


def test_a_selected_node_that_is_given_up_no_longer_restricts_the_claims_other_pods(store: Store) -> None:
    """They share a claim; the first one took the node's capacity and was deleted before anything was written."""
    store.nodes("n1", node="1")
    store.claim("c")
    cpu = {"containers": [{"name": "c", "resources": {"requests": {"cpu": "5"}}}]}
    store.pod("c", spec=cpu)
    order = store.pre_filter()
    store.pod("c", spec={"nodeSelector": {"node": "2"}})
    store.nodes("n2", node="2")
    assert "0/2 nodes are available" in store.message()
    assert _after_deletion(store, order).plan.node == "n2"


def test_annotations_that_have_grown_too_large_meanwhile_are_not_bound(store: Store) -> None:
    """A Binding that makes them too large would poison the pod; it comes again when they are smaller."""
    store.nodes("n1")
    store.claim("c")
    pod = store.pod("c")
    store.prepared(store.pre_filter())
    store.show(annotated(pod, {"a": "x" * MAX_BYTES}))
    store.claim("c", "v", selected="n1")
    store.volume("v", where=on(HOST, "n1"), claim=OF_C)
    assert not any(isinstance(one, Bind) for one in store.run())
    store.now = 10.0
    assert "annotations would have" in store.message()
    store.show(pod)
    store.now = 30.0
    assert store.choose() == "n1"

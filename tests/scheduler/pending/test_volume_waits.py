"""A pod that is decided and waits for its volumes: what it holds meanwhile, and how the wait ends."""

from collections.abc import Callable, Mapping
from typing import Any

import pytest

from mooring.kube.events import Changed, Identity, Removed, Synced, Unreadable
from scheduler.cycle.decisions import Bind
from scheduler.cycle.instructions import PreBind, PreBindResult, Report
from scheduler.kube.objects import Pod
from scheduler.kube.outcomes import BOUND
from scheduler.kube.storage_objects import PersistentVolumeClaim
from scheduler.pending.volume_waits import PATIENCE_S
from tests.scheduler.conftest import MakeNode, MakePod
from tests.scheduler.volume_store import HOST, Store, on

OF_C = {"namespace": "default", "name": "c", "uid": "u-c"}


def _late(store: Store, *nodes: str) -> PreBind:
    """Let a pod with one claim be decided about; its volume is to be made."""
    store.nodes(*(nodes or ("n1",)))
    store.claim("c")
    store.pod("c")
    return store.pre_filter()


def _static(store: Store, **volume: Any) -> PreBind:
    """Let a pod with one claim be decided about that gets a volume which is there."""
    store.storage_class("late", "kubernetes.io/no-provisioner")
    store.volume("v", **volume)
    store.claim("c")
    store.pod("c")
    return store.pre_filter()


def _version(store: Store) -> dict[str, str]:
    """Return what our write of the claim's node gave as its version: the next."""
    return {"default/c": str(store._version + 1)}


def _outcome(store: Store) -> list[str]:
    """Run, and return binds by node and messages."""
    told: Mapping[type[Any], Callable[[Any], str]] = {
        Bind: lambda one: one.assigned.node,
        Report: lambda one: one.message,
    }
    return [told[type(one)](one) for one in store.run() if type(one) in told]


def test_a_pod_is_bound_when_its_volume_is_made(store: Store) -> None:
    """The claim must be bound to a known volume, and show that the volume controller has finished."""
    order = _late(store)
    store.prepared(order, **_version(store))
    assert store.run() == []
    store.claim("c", selected="n1")
    assert store.run() == []
    store.claim("c", "v", selected="n1")
    assert store.run() == []
    store.volume("v", where=on(HOST, "n1"), claim=OF_C)
    (bind,) = store.run()
    assert bind == order.decision
    assert isinstance(bind, Bind)
    (report,) = store.machine.finished(bind, BOUND, store.now)
    assert isinstance(report, Report)
    assert report.reason == "Scheduled"


def test_a_static_volume_binds_the_pod_when_claim_and_volume_are_bound(store: Store) -> None:
    store.nodes("n1")
    order = _static(store)
    store.prepared(order, v=str(store._version + 1))
    store.volume("v", claim=OF_C)
    assert store.run() == []
    store.claim("c", "v")
    assert _outcome(store) == ["n1"]


def test_a_claim_that_got_another_volume_than_planned_requeues_the_pod(store: Store) -> None:
    """That volume may be usable elsewhere only."""
    store.nodes("n1", "n2")
    store.prepared(_static(store, where=on(HOST, "n1")))
    store.volume("v", where=on(HOST, "n1"), claim=OF_C)
    store.volume("w", where=on(HOST, "n2"), claim=OF_C)
    store.claim("c", "w")
    assert _outcome(store) == ['binding volumes: PVC "c" is bound to pv "w", not to "v"']
    store.now = 10.0
    assert store.choose() == "n2"


def test_node_and_volume_are_reserved_meanwhile(store: Store, make_pod: MakePod) -> None:
    """No other pod gets the resources, nor the volume that the API does not show as taken yet."""
    store.nodes("n1")
    store.storage_class("late", "kubernetes.io/no-provisioner")
    store.volume("v")
    store.claim("c")
    store.claim("d")
    cpu = {"containers": [{"name": "c", "resources": {"requests": {"cpu": "5"}}}]}
    store.pod("c", spec=cpu)
    store.pre_filter()
    store.pod("d")
    assert "didn't find available persistent volumes" in store.message()
    store.pod(spec=cpu)
    assert store.message() == "0/1 nodes are available: 1 Insufficient cpu."


def test_pods_that_share_a_claim_go_to_the_node_that_was_chosen_for_it(store: Store) -> None:
    """Before the API shows that choice; both are bound when the volume is made."""
    store.nodes("n1", "n2")
    store.claim("c")
    store.pod("c")
    store.pod("c")
    first, second = store.run()
    assert isinstance(first, PreBind)
    assert isinstance(second, PreBind)
    assert first.plan.node == second.plan.node
    store.prepared(first)
    store.prepared(second)
    store.claim("c", "v", selected=first.plan.node)
    store.volume("v")
    assert _outcome(store) == [first.plan.node] * 2


def _provisioner_gives_up(store: Store) -> None:
    store.claim("c", selected="n1")
    assert store.run() == []
    store.claim("c")


def _volume_is_elsewhere(store: Store) -> None:
    store.volume("v", where=on(HOST, "n2"))
    store.claim("c", "v", selected="n1")


CHECK = "failed to check provisioning pvc: persistentvolumeclaim "
MISPLACED = 'pv "v" node affinity doesn\'t match node "n1": no matching NodeSelectorTerms'


@pytest.mark.parametrize(
    ("happen", "why"),
    [
        (_provisioner_gives_up, 'provisioning failed for PVC "c"'),
        (lambda store: store.gone(PersistentVolumeClaim, "c"), f'{CHECK}"c" not found'),
        (lambda store: store.claim("c", selected="n1", going=True), f'{CHECK}"c" is being deleted'),
        (lambda store: store.claim("c", uid="another"), f'{CHECK}"c" not found'),
        (lambda store: store.machine.handle(PersistentVolumeClaim, Synced(()), store.now), f'{CHECK}"c" not found'),
        (
            lambda store: store.machine.nodes(Removed(Identity("n1")), store.now),
            'failed to get node "n1": node "n1" not found',
        ),
        (_volume_is_elsewhere, MISPLACED),
        (lambda store: setattr(store, "now", PATIENCE_S), "context deadline exceeded"),
    ],
)
def test_a_plan_that_cannot_be_fulfilled_ends_the_reservation(
    happen: Callable[[Store], object], why: str, store: Store
) -> None:
    """The pod gets kube-scheduler's message, is tried again after its backoff, and holds nothing until then."""
    order = _late(store)
    uid = order.decision.pod_info.uid
    store.prepared(order, **_version(store))
    happen(store)
    (report,) = store.machine.tick(store.now)
    assert isinstance(report, Report)
    assert report.message == f"binding volumes: {why}"
    assert store.machine.cache.assigned(uid) is None
    assert store.machine.pending_pods.depths()["backoff"] == 1
    store.now += 10.0
    assert store.run() or store.machine.pending_pods.depths()["unschedulable"] == 1


def test_a_node_whose_labels_exclude_the_volume_now_ends_the_wait_at_once(store: Store) -> None:
    """Nothing of claim or volume changes; the pod would never get its disk there."""
    store.nodes("n1", disk="x")
    store.prepared(_static(store, where=on("disk", "x")))
    store.volume("v", where=on("disk", "x"), claim=OF_C)
    store.nodes("n1", disk="x", color="blue")
    assert store.run() == []
    store.nodes("n1", disk="y")
    assert store.message() == f"binding volumes: {MISPLACED}"


def test_a_refused_write_ends_the_reservation(store: Store) -> None:
    order = _late(store)
    told = store.machine.finished(order, PreBindResult(fault="the object has been modified"), store.now)
    assert [one.message for one in told if isinstance(one, Report)] == ["binding volumes: the object has been modified"]
    assert store.machine.cache.assigned(order.decision.pod_info.uid) is None
    store.now = 10.0
    assert store.pre_filter().plan.node == "n1"


def test_an_answer_to_an_earlier_decision_does_not_count_for_a_later_one(store: Store) -> None:
    first = _late(store)
    store.gone(PersistentVolumeClaim, "c")
    store.prepared(first, "not found")
    store.run()
    store.claim("c")
    store.now = 10.0
    second = store.pre_filter()
    store.prepared(first, "late")
    store.prepared(first)
    store.claim("c", "v", selected="n1")
    store.volume("v")
    assert store.run() == []
    store.prepared(second)
    assert _outcome(store) == ["n1"]


def test_an_old_version_of_the_claim_is_ignored(store: Store) -> None:
    """A late watch shows the claim without its node: that is not the provisioner's refusal."""
    order = _late(store)
    store.prepared(order, **{"default/c": str(store._version + 5)})
    store.claim("c")
    assert store.run() == []


@pytest.mark.parametrize("ending", ["removed", "deleting", "ended", "unreadable", "bound elsewhere", "not listed"])
def test_a_pod_that_ends_while_it_waits_leaves_nothing_behind(ending: str, store: Store) -> None:
    """Resources and assumed volumes are free again, and no pod is bound later."""
    order = _late(store, "n1", "n2")
    pod = order.decision.pod_info.pod
    identity = Identity(pod.metadata.name, "default", pod.metadata.uid)
    store.prepared(order)
    if ending == "removed":
        store.machine.pods(Removed(identity), store.now)
    elif ending == "unreadable":
        store.machine.pods(Unreadable(identity, "x"), store.now)
    elif ending == "not listed":
        store.machine.handle(Pod, Synced(()), store.now)
    else:
        pod.metadata.deletion_timestamp = "2026-01-01T00:00:00Z" if ending == "deleting" else None
        pod.status.phase = "Failed" if ending == "ended" else "Pending"
        pod.spec.node_name = "n2" if ending == "bound elsewhere" else ""
        store.show(pod)
    store.claim("c", "v", selected="n1")
    store.volume("v")
    assert store.run() == []
    assigned = store.machine.cache.assigned(pod.metadata.uid)
    assert assigned is None if ending != "bound elsewhere" else assigned is not None and assigned.node == "n2"
    assert store.machine.next_due() is None


def test_the_wait_is_due_at_its_deadline(store: Store) -> None:
    """So that the loop requeues for it; what is touched is due at once."""
    order = _late(store)
    assert store.machine.next_due() == PATIENCE_S
    store.prepared(order, **_version(store))
    assert store.machine.next_due() == 0.0
    store.run()
    assert store.machine.next_due() == PATIENCE_S


def test_a_pod_without_volumes_of_its_own_has_none_to_wait_for(store: Store, make_node: MakeNode) -> None:
    """Volumes that bind to no place (a token, a config map) are none of these."""
    store.machine.nodes(Changed(Identity("n1"), make_node()), 0.0)
    pod = store.pod(spec={"volumes": [{"name": "t", "projected": {}}, {"name": "e", "emptyDir": {}}]})
    assert not pod.spec.node_name
    (bind,) = store.run()
    assert isinstance(bind, Bind)
    assert not bind.pod_info.volumes

"""A pod's life through the machine: events in, instructions out."""

import random
from typing import Any

import pytest

from mooring.kube.events import Event, Identity, Removed, Synced, Unreadable
from scheduler.cycle.instructions import Report
from scheduler.kube.objects import Node, Pod
from scheduler.kube.selecting_objects import StatefulSet
from scheduler.state.event_handlers import absent_uids
from tests.scheduler.group_life import Life, as_bound, binds, changed, changed_event, claiming, notices, reports_of
from tests.scheduler.state.cluster import Cluster
from tests.scheduler.story import play, stories


def test_a_pod_without_interfaces_is_bound_without_an_assignment(life: Life) -> None:
    life.see(life.make_node(), life.make_pod(), life.make_pod(request=[]))
    assert [decision.annotations for decision in binds(life.decide_ready())] == [{}, {}]


def test_reasons_are_counted_over_the_nodes(life: Life) -> None:
    """As in kube-scheduler, sorted by text, with the nodes named in `why`."""
    life.nodes("n1", "n2", vfs=1)
    life.see(life.make_node("n3"), life.make_node("n4", spec={"unschedulable": True}), life.make_pod(request=[{}, {}]))
    (report,) = life.decide_ready()
    assert isinstance(report, Report)
    assert report.message == (
        "0/4 nodes are available: 1 node(s) had no RDMA inventory, 1 node(s) were unschedulable, "
        "2 not enough free RDMA VFs. preemption: 0/4 nodes are available: "
        "4 Preemption is not helpful for scheduling."
    )
    assert report.why["refused"] == {
        "node(s) had no RDMA inventory": ["n3"],
        "node(s) were unschedulable": ["n4"],
        "not enough free RDMA VFs": ["n1", "n2"],
    }


def denied(name: str, namespace: str = "bad") -> str:
    """Return the step in which a Binding is denied."""
    return f"answer denied {namespace}/{name} | told > {namespace}/{name} Unschedulable: binding denied: why"


STORIES = {
    # However late, and whatever unrelated the watch shows meanwhile.
    "an assumed pod never expires without an answer": """
        node n1 | pod a | decide > a | at 100000 | pod a | pod b | node n1 | decide | at 200000 | relist a b |
        decide""",
    # The API server does not check whether the node exists: the pod is bound, and a log line says so.
    "a Bind to a node that was deleted meanwhile is reported": """
        node n1 | pod a | decide > a | lose n1 | at 2 | answer bound a | told
        > log: pod bound to a node that was deleted meanwhile a n1""",
    "a changed pod is scheduled again": """
        node n1 | pod a | decide > a | pod a [{"vlan":1}] | answer changed a | at 0.5 | decide | told
        | at 1 | decide | told > a Unschedulable: 0/1 nodes are available: 1 vlan 1 is not allowed on the network.""",
    "a rejected Binding is reported and its pod waits for a change": """
        node n1 0 | pod a none | decide > a | answer refused a
        | told > a Unschedulable: the API server rejected the binding: why
        | at 50 | node n2 0 | at 100 | decide | told""",
    # Its owner gets field and rule; other pods are not delayed; the fix is all that it needs.
    "a malformed request is named, and its pod is scheduled once it is fixed": """
        node n1 4 | pod bad [{"min_tx_rate":9,"max_tx_rate":5}] | pod good | decide > good
        | told > bad InvalidRequest: annotation 'mooring.dev/interfaces'[0].min_tx_rate: 9 exceeds max_tx_rate 5
        | pod bad [{}] | decide > bad""",
    # What was assumed for it elsewhere is free at once: our Binding can only be refused now.
    "a pod bound by another scheduler counts on its node": """
        node n1 | node n2 0 | pod a | pod b | decide > a | watch a n2 | at 2 | decide > b | at 3 | answer taken a
        | assigned a > n2""",
    # The next pod of its signature is tried, and a change of it lets it be tried again.
    "a bug in a decision affects one pod only": """
        pod a none | pod b none | decide | at 10 | node n1 0 | fail
        | told > a Unschedulable: internal error while scheduling this pod: see the scheduler's log | decide > b
        | pod a [] | at 40 | decide > a""",
    # A namespace whose Binds fail or wait for a webhook gets few at once, and the others feel nothing.
    # Nothing was written.
    "a denied Bind releases its room at once, its owner is told of the webhook, and it comes again": f"""
        node n1 | pod bad/a | decide > bad/a | at 0.1 | {denied("a")} | at 0.2 | pod b | decide > b | at 0.3
        | answer bound b | at 0.4 | delete b | at 0.5 | decide | at 1.1 | decide > bad/a""",
    # Its other pods wait in the queue and reserve nothing.
    "a namespace that waits for its webhook takes little room until a Bind succeeds": f"""
        node n1 20 | create bad/0..3 | decide > bad/0..3 | at 2 | create bad/4..9 | pod other
        | decide > other | due > 10 | at 2.1 | {denied("0")} | decide > bad/0 | at 2.2 | answer bound bad/1
        | answer bound bad/2 | answer bound bad/3 | at 2.3 | decide > bad/4..9""",
    # As of pods that are too large for etcd, whose Binding is answered with 500 for ever.
    "pods that nobody gets an answer hold for up their namespace for some seconds": """
        node n1 20 | create bad/0..3 | decide > bad/0..3 | at 2 | pod bad/4 | decide | at 10.1 | tick
        | decide > bad/4""",
    "where Binds are denied at once few are tried at a time, and no pod that is deleted": f"""
        node n1 20 | pod bad/a | decide > bad/a | at 0.1 | {denied("a")} | at 0.2 | create bad/0..8
        | decide > bad/0..3 | depth backoff > 6 | at 0.3 | delete bad/4 | delete bad/5 | at 0.4
        | {denied("0")} | {denied("1")} | {denied("2")} | {denied("3")} | at 0.5 | decide > bad/6..8""",
    "a group of a namespace in trouble waits too": """
        node n1 20 | create bad/0..3 | decide > bad/0..3 | at 2 | pod bad/m0 {"name":"g","min":2} | pod bad/m1
        {"name":"g","min":2} | at 4 | tick | decide | at 4.1 | answer bound bad/0 | decide > bad/m0 bad/m1""",
    "an answer is that definite ends the reservation": """
        node n1 | pod a | pod b | decide > a | answer KIND | at 0.5 | delete a | at 2 | decide > b""",
}
KINDS = {kind: f"{kind} a" for kind in ("taken", "changed", "gated", "deleting", "gone")}
KINDS["refused"] = "refused a | told > a Unschedulable: the API server rejected the binding: why"


@stories(STORIES, KIND=KINDS)
def test_bindings(story: str, cluster: Cluster) -> None:
    play(cluster, story)


def test_what_is_bound_is_not_forgotten(cluster: Cluster) -> None:
    """A second answer a to Binding, which comes late, takes no pod off its node."""
    play(cluster, "node n1 | pod a | decide > a | answer bound a")
    assert cluster.machine.cache.forget(cluster.pods["a"].metadata.uid, 1.0) is None
    play(cluster, "assigned a > n1")


def test_our_own_status_writes_requeue_no_pod(life: Life) -> None:
    """A pod that only got its condition is not tried again, and is reported once."""
    pod = life.make_pod(request=[{}])
    life.see(life.make_node(), pod)
    (report,) = life.decide_ready()
    assert isinstance(report, Report)
    condition = {"type": "PodScheduled", "status": "False", "message": report.message}
    life.see(changed(pod, status={"conditions": [condition]}, metadata={"resourceVersion": "9"}), now=50.0)
    assert life.machine.step(50.0) is None
    life.see(life.make_node("n2", labels={"new": "label"}), now=60.0)
    assert reports_of(life.decide_ready(60.0)) == ["0/2 nodes are available: 2 node(s) had no RDMA inventory."]
    life.see(life.make_node("n2", labels={"newer": "label"}), now=90.0)
    assert life.decide_ready(90.0) == []


def test_a_restart_rebuilds_the_same_use_from_the_api(life: Life) -> None:
    """A new machine that lists what the old one bound sees the same VFs free, and repeats no message."""
    node = life.make_node(pfs=(life.make_pf(),))
    pods = [life.make_pod(request=[{"min_tx_rate": 1000}]) for _ in range(3)]
    life.see(node, *pods)
    bound = [as_bound(decision) for decision in binds(life.decide_ready())]
    nobody = "1 No preemption victims found for incoming pod"
    message = f"0/1 nodes are available: 1 not enough free RDMA VFs. preemption: 0/1 nodes are available: {nobody}."
    condition = {"type": "PodScheduled", "status": "False", "message": message}
    waiting = life.make_pod(request=[{}, {}], status={"conditions": [condition]})
    life.see(waiting)
    fresh = life.successor()
    fresh.machine.handle(Pod, Synced(tuple(changed_event(pod) for pod in (*bound, waiting))), 0.0)
    fresh.machine.handle(Node, Synced((changed_event(node),)), 0.0)
    assert fresh.machine.cache.vf_accounting("n1").free_vfs == life.machine.cache.vf_accounting("n1").free_vfs
    assert fresh.decide_ready() == []
    fresh.machine.check()


@pytest.mark.parametrize(
    "fields",
    [
        {"spec": {"schedulerName": "other"}},
        {"spec": {"schedulingGates": [{"name": "wait"}]}},
        {"metadata": {"deletionTimestamp": "2026-01-01T00:00:00Z"}},
        {"status": {"phase": "Failed"}},
    ],
)
def test_a_pod_that_is_not_to_be_scheduled_is_left_alone(life: Life, fields: dict[str, Any]) -> None:
    life.see(life.make_node(), life.make_pod(**fields))
    assert life.machine.step(0.0) is None


def test_an_unreadable_pod_is_reported_once_and_keeps_what_it_holds(life: Life) -> None:
    held = claiming(life.make_pod(node="n1"), 0)
    life.nodes("n1", vfs=1)
    life.see(held, life.make_pod(request=[{}]))
    broken = Unreadable(Identity("p", "default", held.metadata.uid), "Expected `str`")
    assert [notice.subject for notice in notices(life.machine.pods(broken, 0.0))] == ["pod"]
    assert life.machine.pods(broken, 0.0) == []
    assert binds(life.decide_ready()) == []


def test_an_ignored_object_is_forgotten_when_it_is_deleted(life: Life) -> None:
    """Whether its deletion was seen or not; a new object of that name is reported again."""
    kinds: dict[type[Any], str] = {Node: "node", Pod: "pod", StatefulSet: "cluster_objects"}
    for kind, subject in kinds.items():
        broken = Unreadable(Identity("name", "default", "u"), "Expected `str`")
        endings: tuple[Event[Any], ...] = (Removed(broken.identity), Synced(()))
        for gone in endings:
            assert [notice.subject for notice in notices(life.machine.handle(kind, broken, 0.0))] == [subject]
            assert life.machine.handle(kind, Synced((broken,)), 0.0) == []
            life.machine.handle(kind, gone, 0.0)
            assert len(life.machine.event_handlers.unreadable_objects) == 0


def test_a_bound_pod_is_known_in_its_version_only(life: Life) -> None:
    """An unchanged object in a new list is skipped; an assumed pod has no version, and a waiting pod is read."""
    bound, waiting = life.make_pod(node="n1"), life.make_pod()
    for pod in (bound, waiting):
        pod.metadata.resource_version = "7"
    life.see(life.make_node(), bound, waiting)

    def has(pod: Pod, version: str) -> bool:
        return life.machine.event_handlers.has(Pod, Identity(pod.metadata.name, "default", pod.metadata.uid, version))

    assert has(bound, "7")
    assert not any((has(bound, "8"), has(waiting, "7"), has(life.make_pod(), "7")))
    life.machine.handle(Pod, Synced((), (Identity("p", "default", bound.metadata.uid, "7"),)), 0.0)
    assert life.machine.cache.assigned(bound.metadata.uid) is not None
    assert life.machine.pending_pods.depths()["active"] == 0
    life.see(waiting)
    assert len(binds(life.decide_ready())) == 1
    assert not has(waiting, "")


def test_a_relisted_set_replaces_what_was_known(cluster: Cluster) -> None:
    play(cluster, "node n2 0 | node n1 | claim held 0 | pod a | decide | at 1 | relist a")
    node = cluster.make_node(pfs=(cluster.make_pf(vfs=1),))
    cluster.machine.handle(Node, Synced((changed_event(node),)), 1.0)
    assert cluster.machine.cache.node_names() == {"n1"}
    play(cluster, "at 2 | decide > a")


def test_pods_that_ask_for_more_than_can_be_counted_fit_nowhere(life: Life) -> None:
    """Waiting or bound by another scheduler, in one container or in several: they are told, and the rest goes on."""
    greedy = [{"name": name, "resources": {"requests": {"memory": "8Ei"}}} for name in "ab"]
    below = [{"name": "a", "resources": {"requests": {"cpu": "-100"}}}]
    life.see(life.make_node(), life.make_node("n2"), life.make_pod(spec={"containers": greedy}))
    assert reports_of(life.decide_ready()) == ["0/2 nodes are available: 2 Insufficient memory."]
    life.see(*(life.make_pod(node="n1", spec={"containers": greedy}) for _ in range(3)))
    life.see(life.make_pod(node="n2", spec={"containers": below}))
    modest = {"containers": [{"name": "c", "resources": {"requests": {"cpu": "6", "memory": "1Gi"}}}]}
    life.see(*(life.make_pod(spec=modest) for _ in range(2)), now=5.0)
    assert [bind.assigned.node for bind in binds(life.decide_ready(5.0))] == ["n2"]


@pytest.mark.parametrize("size", [0, 1, 2047, 2048, 2049, 10_000])
def test_missing_objects_are_named_in_order(size: int) -> None:
    chance = random.Random(size)
    known = [f"u{number}" for number in range(size)]
    there = [uid for uid in known if chance.random() < 0.9] + ["new"]
    chance.shuffle(there)
    found = list(absent_uids(known, there))
    assert [uid for uid in found if uid is not None] == sorted(set(known) - set(there))
    assert found.count(None) == -(-len(there) // 2048) + -(-size // 2048)

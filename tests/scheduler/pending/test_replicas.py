"""Many pods of one signature cost one decision for each event."""

from mooring import names
from mooring.kube.events import Identity, Removed
from scheduler.cycle.instructions import Report
from tests.scheduler.group_life import changed
from tests.scheduler.pending.scene import Scene, requesting
from tests.scheduler.reference.messages import refusal


def test_a_new_pods_message_counts_the_present_nodes(scene: Scene) -> None:
    """Not the nodes at the time when pods of its signature became unschedulable."""
    scene.node("n1")
    scene.pod(spec=requesting("32"))
    assert len(scene.tries()) == 1
    scene.machine.nodes(Removed(Identity("n1")), scene.now)
    scene.pod(spec=requesting("32"))
    told = {one.message for one in scene.machine.step(scene.now) or [] if isinstance(one, Report)}
    assert told == {"no nodes available to schedule pods"}


def test_many_unschedulable_replicas_cost_one_decision_for_each_event(scene: Scene) -> None:
    """And each one that finds a node one more; the others are not even tried."""
    scene.node(vfs=4)
    for _ in range(4):
        scene.pod(request=[{}])
    assert len(scene.tries()) == 4
    for _ in range(300):
        scene.pod(request=[{}], metadata={"labels": {"app": "flood"}})
    assert len(scene.tries()) == 300
    for vfs, found in ((5, 1), (8, 3), (8, 0)):
        scene.node(vfs=vfs, labels={"vfs": str(vfs), "found": str(found)})
        tried = scene.tries()
        assert len(tried) == found + 1 if found else len(tried) <= 1
    other = scene.pod(request=[], metadata={"labels": {"app": "other"}})
    assert scene.tries() == [other.metadata.uid]


def test_many_new_replicas_that_fit_nowhere_cost_one_decision(scene: Scene) -> None:
    """Each gets the answer of the first; an event that may help has them tried again."""
    scene.node(vfs=1)
    holder = scene.pod(request=[{}])
    assert scene.tries() == [holder.metadata.uid]
    looked: list[str] = []
    told: list[Report] = []

    def come(count: int) -> None:
        for _ in range(count):
            scene.pod(request=[{}])
            told.extend(one for one in scene.machine.step(scene.now, looked.append) or [] if isinstance(one, Report))

    come(300)
    assert looked.count("PreFilter") == 1
    assert len({one.pod.metadata.uid for one in told}) == 300
    assert {one.message for one in told} == {told[0].message}
    scene.node(vfs=2)
    come(1)
    # It comes before the probe, whose backoff is not over, and takes the VF that is free now.
    assert looked.count("PreFilter") == 2
    come(2)
    assert looked.count("PreFilter") == 3, "the first of them says again that nothing is left"
    scene.machine.check()


def test_pods_that_differ_are_each_tried(scene: Scene) -> None:
    """Another request, namespace, label or selector may fit where the first pod does not."""
    scene.node()
    pods = [
        scene.pod(request=[{}, {}]),
        scene.pod(request=[{}, {}, {}]),
        scene.pod(request=[{}, {}], metadata={"labels": {"app": "a"}}),
        scene.pod(request=[{}, {}], metadata={"namespace": "other"}),
        scene.pod(request=[{}, {}], spec={"nodeSelector": {"no": "where"}}),
        scene.pod(request=[{}, {}], annotations={names.PLACEMENT: '{"pfs":"distinct"}'}),
    ]
    uids = [pod.metadata.uid for pod in pods]
    assert scene.tries() == uids
    scene.node("n2")
    assert sorted(scene.tries()) == uids


def test_a_volume_named_after_its_pod_does_not_give_it_a_signature_of_its_own(scene: Scene) -> None:
    """Each pod's service account volume has a random name; they are replicas all the same."""
    scene.node()
    for number in range(10):
        scene.pod(request=[{}, {}], spec={"volumes": [{"name": f"kube-api-access-{number}"}]})
    assert len(scene.tries()) == 10
    scene.node("n2")
    assert len(scene.tries()) == 1


def test_pods_of_one_signature_get_a_new_message_when_other_plugins_reject_them(scene: Scene) -> None:
    """The probe's answer is theirs too: no pod keeps a reason that is no longer true."""
    scene.node(spec={"unschedulable": True})
    pods = [scene.pod(request=[{}, {}]) for _ in range(3)]
    assert len(scene.tries()) == 3
    scene.node()
    scene.now += 100.0
    told = [one for one in scene.machine.step(scene.now) or [] if isinstance(one, Report)]
    assert sorted(one.pod.metadata.uid for one in told) == [pod.metadata.uid for pod in pods]
    assert {refusal(one.message) for one in told} == {"0/1 nodes are available: 1 not enough free RDMA VFs."}


def test_a_gated_pod_stays_out_of_the_queue_until_its_last_gate_is_removed(scene: Scene) -> None:
    """It is counted as gated until it is deleted, requeues no pod, and is tried as soon as it may be."""
    scene.node()
    gates = [{"name": "a"}, {"name": "b"}]
    pod, other = scene.pod(spec={"schedulingGates": gates}), scene.pod(spec={"schedulingGates": gates})
    assert scene.machine.pending_pods.depths()["gated"] == 2
    scene.remove(other)
    assert scene.machine.pending_pods.depths()["gated"] == 1
    assert scene.tries() == []
    for left, expected in ((gates[1:], []), (None, [pod.metadata.uid])):
        scene.show(changed(pod, spec={"schedulingGates": left}))
        assert scene.tries() == expected
    assert scene.machine.pending_pods.depths()["gated"] == 0

"""Which cluster events requeue which unschedulable pods, through the machine: those that they may help."""

import pytest

from mooring import names
from mooring.annotations.inventory import CNI, Inventory, Out, dump_inventory
from mooring.indexes import Indexes
from mooring.kube.events import Identity, Removed
from scheduler.cycle.decisions import Bind
from scheduler.cycle.instructions import Report
from scheduler.kube.outcomes import BOUND, Outcome
from tests.scheduler.conftest import Json
from tests.scheduler.group_life import as_bound, changed
from tests.scheduler.pending.scene import Scene, requesting
from tests.scheduler.reference.messages import refusal


def _with_port() -> Json:
    return {"containers": [{"name": "c", "ports": [{"hostPort": 80, "containerPort": 80}]}]}


def test_a_heartbeat_of_a_node_requeues_no_pod(scene: Scene) -> None:
    """The plugin that rejected it reads neither conditions' times, other annotations, nor versions of programs."""
    scene.node()
    scene.pod(request=[{}, {}])
    assert len(scene.tries()) == 1
    scene.node(annotations={"other": "value"})
    inventory = Inventory("boot-1", (scene._make_pf(vfs=1),), {CNI: "2.0"})
    scene.node(annotations={names.INVENTORY: dump_inventory(inventory)})
    assert scene.tries() == []


@pytest.mark.parametrize(
    ("change", "helped"),
    [
        ({"vfs": 2}, "vfs"),
        ({"allocatable": {"cpu": "9"}}, "cpu"),
        ({"labels": {"zone": "a"}}, "zone"),
        ({"spec": {"taints": None}}, "taint"),
    ],
    ids=["inventory", "allocatable", "labels", "taints"],
)
def test_a_change_of_a_node_requeues_the_pods_that_it_may_help(change: Json, helped: str, scene: Scene) -> None:
    """A pod refused for VFs by what the node offers, one for cpu by what it has, and so on; a new node, all of them."""
    tainted: Json = {"spec": {"taints": [{"key": "k", "effect": "NoSchedule"}]}}
    tolerating = {"tolerations": [{"key": "k", "operator": "Exists"}]}
    scene.node(**tainted)
    waiting = {
        "vfs": scene.pod(request=[{}, {}, {}], spec=tolerating).metadata.uid,
        "cpu": scene.pod(spec=requesting("32") | tolerating).metadata.uid,
        "zone": scene.pod(spec={"nodeSelector": {"zone": "b"}} | tolerating).metadata.uid,
        "taint": scene.pod().metadata.uid,
    }
    assert scene.tries() == list(waiting.values())
    scene.node(**(tainted | change))
    assert scene.tries() == [waiting[helped]]
    scene.node("n2", **tainted)
    placed = {"taint"} if helped == "taint" else set()
    assert set(scene.tries()) == {waiting[name] for name in waiting.keys() - placed}


def test_a_deleted_node_requeues_pods_that_its_pods_anti_affinity_kept_away(scene: Scene) -> None:
    away = {"topologyKey": "zone", "labelSelector": {"matchLabels": {"a": "b"}}}
    anti = {"podAntiAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": [away]}}
    scene.node("n1", labels={"zone": "z"})
    scene.node("n2", labels={"zone": "z"})
    scene.show(scene.pod(node="n1"), labels={"a": "b"})
    waiting = scene.pod(spec={"affinity": anti}).metadata.uid
    assert scene.tries() == [waiting]
    scene.machine.nodes(Removed(Identity("n1")), scene.now)
    assert scene.tries() == [waiting]
    assert scene.machine.cache.assigned(waiting) is not None


@pytest.mark.parametrize(
    "state", [{"ready": False}, {"pf": {"out": (Out(Indexes.of([0]), "held by pod x"),)}}], ids=["not Ready", "VF held"]
)
def test_a_node_that_is_ready_again_or_releases_a_vf_can_help(state: Json, scene: Scene) -> None:
    """A node that stays as it is helps no pod, so no timer requeues one; a VF's pod may be long gone."""
    scene.node(**state)
    scene.now += 100.0
    pod = scene.pod(request=[{}])
    assert scene.tries() == [pod.metadata.uid]
    assert scene.machine.next_due() is None
    scene.node()
    assert scene.tries() == [pod.metadata.uid]


def test_a_deleted_pod_without_vfs_does_not_help_one_that_waits_for_vfs(scene: Scene) -> None:
    """Only what was freed can help: here cpu, there a VF."""
    scene.node()
    scene.holder()
    plain = scene.pod(node="n1", spec=requesting("1"))
    waits_for_vf = scene.pod(request=[{}])
    waits_for_cpu = scene.pod(spec=requesting("8"))
    assert scene.tries() == [waits_for_vf.metadata.uid, waits_for_cpu.metadata.uid]
    scene.remove(plain)
    assert scene.tries() == [waits_for_cpu.metadata.uid]


def test_a_pod_of_another_scheduler_that_ends_can_help(scene: Scene) -> None:
    """Whichever scheduler bound it, its resources are free when it has succeeded or failed."""
    scene.node()
    foreign = scene.pod(node="n1", spec=requesting("6") | {"schedulerName": "default-scheduler"})
    pod = scene.pod(spec=requesting("4"))
    assert scene.tries() == [pod.metadata.uid]
    scene.show(changed(foreign, status={"phase": "Succeeded"}))
    assert scene.tries() == [pod.metadata.uid]


def test_a_refused_bind_requeues_the_pods_that_its_resources_may_help(scene: Scene) -> None:
    scene.node()
    first, second = scene.pod(request=[{}]), scene.pod(request=[{}])
    (decision,) = scene.machine.step(scene.now) or []
    assert isinstance(decision, Bind)
    assert scene.tries() == [second.metadata.uid]
    scene.machine.finished(decision, Outcome("gone"), scene.now)
    scene.remove(first)
    assert scene.tries() == [second.metadata.uid]


def test_a_bind_with_new_labels_requeues_only_the_pods_that_they_may_help(scene: Scene) -> None:
    """API servers since 1.35 write the node's zone on a pod that is bound: that frees nothing."""
    zone = {"topology.kubernetes.io/zone": "z1"}
    term = {"topologyKey": "topology.kubernetes.io/zone", "labelSelector": {"matchLabels": zone}}
    near_it = {"affinity": {"podAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": [term]}}}
    scene.node(vfs=1, labels=zone)
    scene.pod(request=[{}], spec=requesting("7"))
    (decision,) = scene.machine.step(scene.now) or []
    assert isinstance(decision, Bind)
    scene.pod(request=[{}])
    scene.pod(spec=requesting("8"))
    near = scene.pod(spec=near_it)
    assert len(scene.tries()) == 3
    scene.machine.finished(decision, BOUND, scene.now)
    scene.show(as_bound(decision), labels=zone, resourceVersion="9")
    scene.machine.check()
    assert scene.tries() == [near.metadata.uid]


def _among(kind: str, label: str) -> Json:
    """Return a pod that may run only, or never, beside pods with such a label."""
    term = {"topologyKey": "zone", "labelSelector": {"matchLabels": {"app": label}}}
    return {"affinity": {kind: {"requiredDuringSchedulingIgnoredDuringExecution": [term]}}}


@pytest.mark.parametrize("how", ["labels", "assigned"])
def test_an_event_that_makes_preemption_possible_requeues_pods_refused_for_cpu(how: str, scene: Scene) -> None:
    """The plugin that prevented it rejects no node any more; a new pod then gets no old answer."""
    foreign = {"schedulerName": "default-scheduler", "priority": 100}
    scene.node(labels={"zone": "a"})
    scene.pod(node="n1", spec=requesting("7") | foreign | {"priority": 0})
    other = scene.pod(node="n1", spec=foreign, metadata={"labels": {"app": "y"} if how == "labels" else {}})
    kind = "podAntiAffinity" if how == "labels" else "podAffinity"
    pod = scene.pod(spec=requesting("4") | {"priority": 50} | _among(kind, "y"))
    assert scene.tries() == [pod.metadata.uid]
    if how == "labels":
        scene.show(other, labels={"app": "z"})
    else:
        scene.pod(node="n1", spec=foreign, metadata={"labels": {"app": "y"}})
    assert scene.tries() == [pod.metadata.uid]
    assert scene.machine.reservations.node_of(pod.metadata.uid) == "n1"


def test_an_event_that_lets_a_pod_fit_beside_a_nominated_one_requeues_it(scene: Scene) -> None:
    """It was rejected because of that pod only: one more VF is enough."""
    scene.node(vfs=1)
    scene.pod(node="n1", spec=requesting("8") | {"schedulerName": "default-scheduler", "priority": 0})
    first = scene.pod(spec=requesting("5") | {"priority": 50}, request=[{}])
    pod = scene.pod(spec={"priority": 10}, request=[{}])
    assert scene.tries() == [first.metadata.uid, pod.metadata.uid]
    scene.node(vfs=2)
    assert pod.metadata.uid in scene.tries()


def test_a_pod_with_a_higher_priority_is_tried_first(scene: Scene) -> None:
    scene.node(vfs=1)
    low, high = scene.pod(request=[{}]), scene.pod(request=[{}], spec={"priority": 1000})
    assert scene.tries() == [high.metadata.uid, low.metadata.uid]


@pytest.mark.parametrize(
    ("theirs", "ours", "reason"),
    [
        (requesting("6"), requesting("4"), "Insufficient cpu"),
        (requesting(memory="12Gi"), requesting(memory="8Gi"), "Insufficient memory"),
        (_with_port(), _with_port(), "node(s) didn't have free ports for the requested pod ports"),
    ],
    ids=["cpu", "memory", "ports"],
)
def test_pods_that_others_bound_count(theirs: Json, ours: Json, reason: str, scene: Scene) -> None:
    """Those of kube-scheduler, and static pods, which no scheduler bound."""
    scene.node()
    static = {"annotations": {"kubernetes.io/config.mirror": "x"}, "ownerReferences": [{"kind": "Node", "name": "n1"}]}
    scene.pod(node="n1", spec=theirs | {"schedulerName": "default-scheduler"}, metadata=static)
    pod = scene.pod(spec=ours)
    (report,) = scene.machine.step(0.0) or []
    assert isinstance(report, Report)
    assert report.pod.metadata.uid == pod.metadata.uid
    assert refusal(report.message) == f"0/1 nodes are available: 1 {reason}."

"""Which cluster events requeue which unschedulable pods, through the machine: those that they may help."""

from collections.abc import Callable
from typing import Any

import msgspec
import pytest

from mooring import names
from mooring.assignment import AssignedVf, Assignment, dump_assignment
from mooring.indexes import Indexes
from mooring.inventory import Inventory, Out, Pf, dump_inventory
from mooring.kube.events import Changed, Identity, Removed
from scheduler.cycle.decisions import Bind
from scheduler.cycle.instructions import Report
from scheduler.kube.binding_outcome import BOUND, Outcome
from scheduler.kube.objects import Node, Pod
from scheduler.state.machine import Machine
from tests.scheduler.reference.messages import refusal

MakePf = Callable[..., Pf]
MakeNode = Callable[..., Node]
MakePod = Callable[..., Pod]
Json = dict[str, Any]


class Scene:
    """A machine, and its events; ``tries`` counts its decisions."""

    def __init__(self, machine: Machine, make_node: MakeNode, make_pf: MakePf, make_pod: MakePod) -> None:
        self.machine = machine
        self._make_node = make_node
        self._make_pf = make_pf
        self._make_pod = make_pod
        self.now = 0.0

    def node(self, name: str = "n1", vfs: int = 1, pf: Json | None = None, **fields: Any) -> None:
        node = self._make_node(name, (self._make_pf(vfs=vfs, **(pf or {})),), **fields)
        self.machine.nodes(Changed(Identity(name), node), self.now)

    def pod(self, **fields: Any) -> Pod:
        return self.show(self._make_pod(**fields))

    def holder(self, **fields: Any) -> Pod:
        """Show a bound pod that has VF 0 of n1."""
        pod = self._make_pod(node="n1", **fields)
        vfs = (AssignedVf("pf0", 0, "0000:04:00.2", "ethernet", "rail0"),)
        text = dump_assignment(Assignment(pod.metadata.uid, "n1", vfs))
        return self.show(pod, annotations={names.ASSIGNMENT: text})

    def show(self, pod: Pod, **metadata: Any) -> Pod:
        document = msgspec.to_builtins(pod)
        document["metadata"] |= metadata
        seen = msgspec.convert(document, Pod)
        self.machine.pods(Changed(_identity(pod), seen), self.now)
        return seen

    def remove(self, pod: Pod) -> None:
        self.machine.pods(Removed(_identity(pod)), self.now)

    def tries(self) -> list[str]:
        """Let all backoffs end, and return the pods tried, in order, until none is ready."""
        self.now += 100.0
        tried: list[str] = []
        while True:
            uid = self._next()
            if uid is None:
                return tried
            tried.append(uid)

    def _next(self) -> str | None:
        before = {uid: one.attempts for uid, one in self.machine.pending_pods.pending.items()}
        if self.machine.step(self.now) is None:
            return None
        after = self.machine.pending_pods.pending.items()
        (uid,) = [uid for uid, one in after if one.attempts > before.get(uid, 0)]
        return uid


def _identity(pod: Pod) -> Identity:
    return Identity(pod.metadata.name, pod.metadata.namespace, pod.metadata.uid)


@pytest.fixture
def scene(machine: Machine, make_node: MakeNode, make_pf: MakePf, make_pod: MakePod) -> Scene:
    return Scene(machine, make_node, make_pf, make_pod)


def _spec(cpu: str) -> Json:
    return {"containers": [{"name": "c", "resources": {"requests": {"cpu": cpu}}}]}


def _with_port() -> Json:
    return {"containers": [{"name": "c", "ports": [{"hostPort": 80, "containerPort": 80}]}]}


def test_a_heartbeat_of_a_node_requeues_no_pod(scene: Scene) -> None:
    """Its conditions' times, its other annotations, the versions of its programs: no plugin reads them."""
    scene.node()
    scene.pod(request=[{}, {}])
    assert len(scene.tries()) == 1
    scene.node(annotations={"other": "value"})
    inventory = Inventory("boot-1", (scene._make_pf(vfs=1),), {"cni": "2.0"})
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
        "cpu": scene.pod(spec=_spec("32") | tolerating).metadata.uid,
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
    """A pod kept away from a zone by another pod there may go there once that pod's node is deleted."""
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


def test_a_node_that_is_ready_again_can_help(scene: Scene) -> None:
    """A node that stays not Ready helps no pod, so no timer requeues one; a node that is Ready again does."""
    scene.node(ready=False)
    scene.now += 100.0
    pod = scene.pod(request=[{}])
    assert scene.tries() == [pod.metadata.uid]
    assert scene.machine.next_due() is None
    scene.node(ready=True)
    assert scene.tries() == [pod.metadata.uid]


def test_a_vf_that_its_node_releases_can_help(scene: Scene) -> None:
    """The pod is long gone, the node still had its VF: the inventory shows when it is free."""
    scene.node(pf={"out": (Out(Indexes.of([0]), "held by pod x"),)})
    pod = scene.pod(request=[{}])
    assert scene.tries() == [pod.metadata.uid]
    scene.node()
    assert scene.tries() == [pod.metadata.uid]


def test_a_deleted_pod_without_vfs_does_not_help_one_that_waits_for_vfs(scene: Scene) -> None:
    """Only what was freed can help: here cpu, there a VF."""
    scene.node()
    scene.holder()
    plain = scene.pod(node="n1", spec=_spec("1"))
    waits_for_vf = scene.pod(request=[{}])
    waits_for_cpu = scene.pod(spec=_spec("8"))
    assert scene.tries() == [waits_for_vf.metadata.uid, waits_for_cpu.metadata.uid]
    scene.remove(plain)
    assert scene.tries() == [waits_for_cpu.metadata.uid]


def test_a_pod_of_another_scheduler_that_ends_can_help(scene: Scene) -> None:
    """Whichever scheduler bound it, its resources are free when it has succeeded or failed."""
    scene.node()
    foreign = scene.pod(node="n1", spec=_spec("6") | {"schedulerName": "default-scheduler"})
    pod = scene.pod(spec=_spec("4"))
    assert scene.tries() == [pod.metadata.uid]
    document = msgspec.to_builtins(foreign) | {"status": {"phase": "Succeeded"}}
    scene.machine.pods(Changed(_identity(foreign), msgspec.convert(document, Pod)), scene.now)
    assert scene.tries() == [pod.metadata.uid]


def test_a_refused_bind_requeues_the_pods_that_its_resources_may_help(scene: Scene) -> None:
    """The end of a reservation frees its resources."""
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
    bound = scene.pod(request=[{}], spec=_spec("7"))
    (decision,) = scene.machine.step(scene.now) or []
    assert isinstance(decision, Bind)
    scene.pod(request=[{}])
    scene.pod(spec=_spec("8"))
    near = scene.pod(spec=near_it)
    assert len(scene.tries()) == 3
    scene.machine.finished(decision, BOUND, scene.now)
    seen = msgspec.to_builtins(bound)
    seen["spec"]["nodeName"] = "n1"
    seen["metadata"] |= {"labels": zone, "resourceVersion": "9"}
    seen["metadata"]["annotations"] |= decision.annotations
    scene.machine.pods(Changed(_identity(bound), msgspec.convert(seen, Pod)), scene.now)
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
    scene.pod(node="n1", spec=_spec("7") | foreign | {"priority": 0})
    other = scene.pod(node="n1", spec=foreign, metadata={"labels": {"app": "y"} if how == "labels" else {}})
    kind = "podAntiAffinity" if how == "labels" else "podAffinity"
    pod = scene.pod(spec=_spec("4") | {"priority": 50} | _among(kind, "y"))
    assert scene.tries() == [pod.metadata.uid]
    if how == "labels":
        scene.show(other, labels={"app": "z"})
    else:
        scene.pod(node="n1", spec=foreign, metadata={"labels": {"app": "y"}})
    assert scene.tries() == [pod.metadata.uid]
    assert scene.machine.nominator.node_of(pod.metadata.uid) == "n1"


def test_an_event_that_lets_a_pod_fit_beside_a_nominated_one_requeues_it(scene: Scene) -> None:
    """It was rejected because of that pod only: one more VF is enough."""
    scene.node(vfs=1)
    scene.pod(node="n1", spec=_spec("8") | {"schedulerName": "default-scheduler", "priority": 0})
    first = scene.pod(spec=_spec("5") | {"priority": 50}, request=[{}])
    pod = scene.pod(spec={"priority": 10}, request=[{}])
    assert scene.tries() == [first.metadata.uid, pod.metadata.uid]
    scene.node(vfs=2)
    assert pod.metadata.uid in scene.tries()


def test_a_new_pods_message_counts_the_present_nodes(scene: Scene) -> None:
    """Not the nodes at the time when pods of its signature became unschedulable."""
    scene.node("n1")
    scene.pod(spec=_spec("32"))
    assert len(scene.tries()) == 1
    scene.machine.nodes(Removed(Identity("n1")), scene.now)
    scene.pod(spec=_spec("32"))
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
    """It is counted as gated, requeues no pod, and is tried as soon as it may be."""
    scene.node()
    gates = [{"name": "a"}, {"name": "b"}]
    pod = scene.pod(spec={"schedulingGates": gates})
    assert scene.machine.pending_pods.depths()["gated"] == 1
    assert scene.tries() == []
    document = msgspec.to_builtins(pod)
    for left, expected in ((gates[1:], []), (None, [pod.metadata.uid])):
        document["spec"]["schedulingGates"] = left
        scene.machine.pods(Changed(_identity(pod), msgspec.convert(document, Pod)), scene.now)
        assert scene.tries() == expected
    assert scene.machine.pending_pods.depths()["gated"] == 0


def test_a_gated_pod_that_is_deleted_is_gone(scene: Scene) -> None:
    """From the count too."""
    pod = scene.pod(spec={"schedulingGates": [{"name": "a"}]})
    scene.remove(pod)
    assert scene.machine.pending_pods.depths()["gated"] == 0


def test_a_pod_with_a_higher_priority_is_tried_first(scene: Scene) -> None:
    """Whenever it came."""
    scene.node(vfs=1)
    low, high = scene.pod(request=[{}]), scene.pod(request=[{}], spec={"priority": 1000})
    assert scene.tries() == [high.metadata.uid, low.metadata.uid]


@pytest.mark.parametrize(
    ("theirs", "ours", "reason"),
    [
        (_spec("6"), _spec("4"), "Insufficient cpu"),
        (
            {"containers": [{"name": "c", "resources": {"requests": {"memory": "12Gi"}}}]},
            {"containers": [{"name": "c", "resources": {"requests": {"memory": "8Gi"}}}]},
            "Insufficient memory",
        ),
        (_with_port(), _with_port(), "node(s) didn't have free ports for the requested pod ports"),
    ],
    ids=["cpu", "memory", "ports"],
)
def test_pods_that_others_bound_count(theirs: Json, ours: Json, reason: str, scene: Scene) -> None:
    """Those of kube-scheduler, and static pods, which no scheduler bound."""
    scene.node()
    static = {"annotations": {"kubernetes.io/config.mirror": "x"}, "ownerReferences": [{"kind": "Node"}]}
    scene.pod(node="n1", spec=theirs | {"schedulerName": "default-scheduler"}, metadata=static)
    pod = scene.pod(spec=ours)
    (report,) = scene.machine.step(0.0) or []
    assert isinstance(report, Report)
    assert report.pod.metadata.uid == pod.metadata.uid
    assert refusal(report.message) == f"0/1 nodes are available: 1 {reason}."

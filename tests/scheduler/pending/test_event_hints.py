"""Which cluster events requeue which unschedulable pods, through the machine: those that they may help."""

import pytest

from mooring.annotations.inventory import CNI, Inventory, dump_inventory
from mooring.names import INVENTORY
from scheduler.state.machine import Machine
from tests.scheduler.conftest import MakeNode, MakePf, MakePod
from tests.scheduler.group_life import changed
from tests.scheduler.scene import Scene
from tests.scheduler.story import play, stories

SPREAD = """
    [{"maxSkew":1,"topologyKey":"zone","whenUnsatisfiable":"DoNotSchedule","nodeTaintsPolicy":"Honor",
    "labelSelector":{"matchLabels":{"app":"x"}}}]"""
SKEWED = f"""
    nodes n1 zone=a | nodes n2 zone=b | come o@n2 vfs=0 port=80 | come x@n1 vfs=0 labels=app:x | come p vfs=0 port=80
    labels=app:x topologySpreadConstraints={"".join(SPREAD.split())} | tries > p"""
THEIRS = "nodeName=n1 schedulerName=default-scheduler vfs=0"


@pytest.fixture
def scene(machine: Machine, make_node: MakeNode, make_pf: MakePf, make_pod: MakePod) -> Scene:
    return Scene(machine, make_node, make_pf, make_pod)


def test_a_heartbeat_of_a_node_requeues_no_pod(scene: Scene) -> None:
    """The plugin that rejected it reads neither conditions' times, other annotations, nor versions of programs."""
    play(scene, "nodes n1 vfs=1 | come a vfs=2 | tries > a")
    inventory = Inventory("boot-1", (scene.make_pf(vfs=1),), {CNI: "2.0"})
    for annotations in ({"other": "value"}, {INVENTORY: dump_inventory(inventory)}):
        scene.show_node("n1", scene.make_pf(vfs=1), annotations=annotations)
    play(scene, "tries")


@pytest.mark.parametrize(
    ("change", "helped"), [("vfs=2", "vfs"), ("cpu=9", "cpu"), ("zone=a", "zone"), ("taint=", "taint")]
)
def test_a_change_of_a_node_requeues_the_pods_that_it_may_help(change: str, helped: str, scene: Scene) -> None:
    """A pod refused for VFs by what the node offers, one for cpu by what it has, and so on; a new node, all of them."""
    play(scene, "nodes n1 vfs=1 taint=k | come vfs vfs=3 tolerates=k | come cpu cpu=32 tolerates=k vfs=0")
    play(scene, "come zone nodeSelector=zone:b tolerates=k vfs=0 | come taint vfs=0 | tries > vfs cpu zone taint")
    play(scene, f"nodes n1 vfs=1 taint=k {change} | tries > {helped} | nodes n2 vfs=1 taint=k")
    assert set(scene.tries().split()) == {"vfs", "cpu", "zone", "taint"} - ({"taint"} & {helped})


@stories(
    {
        "a node is deleted whose pods' anti-affinity kept others away": """
            nodes n1 n2 zone=z | come there nodeName=n1 labels=a:b vfs=0 | come a away=a:b vfs=0 | tries > a | lose n1 |
            tries > a | assigned a > n2""",
        # A node that stays as it is helps no pod, so no timer requeues one.
        # Another zone, whose port is taken, has fewer of them.
        "a pod that others bound evens out the zones": f"""
            {SKEWED} | come y@n2 vfs=0 labels=app:x | tries > p | assigned p > n1""",
        "the zone with fewer pods is gone": f"{SKEWED} | lose n2 | tries > p | assigned p > n1",
        "the zone with fewer pods is closed by a taint": f"""
            {SKEWED} | nodes n2 zone=b taint=k | tries > p | assigned p > n1""",
        "a pod leaves the zone with more pods": f"{SKEWED} | delete x | tries > p | assigned p > n1",
        "a pod of the zone with more pods counts no more": f"""
            {SKEWED} | change x labels=app:z | tries > p | assigned p > n1""",
        "the zone with fewer pods becomes another one": f"""
            {SKEWED} | nodes n2 zone=a | tries > p | assigned p > n1""",
        "a pod is gone that kept it away": """
            nodes n1 zone=z | come y@n1 vfs=0 labels=app:y | come p vfs=0 away=app:y | tries > p | delete y | tries > p
            | assigned p > n1""",
        "a node comes to a zone in which it is near its pods": """
            nodes n1 | come y@n1 vfs=0 labels=app:y | come p vfs=0 near=app:y | tries > p | nodes n1 zone=b | tries > p
            | assigned p > n1""",
        "a node is Ready again": """
            nodes n1 ready=no | tries | come a vfs=1 | tries > a | due > never | nodes n1 | tries > a""",
        # The VF's pod may be long gone.
        "a node releases a VF": """
            nodes n1 vfs=1 held=1 | come a vfs=1 | tries > a | due > never | nodes n1 vfs=1 | tries > a""",
        # Only what was freed can help: here cpu, there a VF.
        "a deleted pod without VFs does not help one that waits for VFs": """
            nodes n1 vfs=1 | come holder@n1 vfs=1 | come plain nodeName=n1 cpu=1 vfs=0 | come a vfs=1 | come b cpu=8
            vfs=0 | tries > a b | delete plain | tries > b""",
        # Whichever scheduler bound it, its resources are free when it has succeeded or failed.
        "a pod of others ends": f"""
            nodes n1 | come b {THEIRS} cpu=6 | come a cpu=4 vfs=0 | tries > a | phase Succeeded b | tries > a""",
        "a Binding is rejected": """
            nodes n1 vfs=1 | come a b vfs=1 | step > a | tries > b | answer gone | delete a | tries > b""",
        # API servers since 1.35 write the node's zone on a pod that is bound: that frees nothing.
        "a Binding with new labels helps only those that wait for labels": """
            nodes n1 vfs=1 zone=z1 | come a vfs=1 cpu=7 | step > a | come b vfs=1 | come c cpu=8 vfs=0 | come d
            near=zone:z1 vfs=0 | tries > b c d | answer bound zone=z1 | tries > d""",
        # The plugin that prevented it rejects no node any more; a new pod then gets no old answer.
        "changed labels make preemption possible": f"""
            nodes n1 zone=a | come low {THEIRS} cpu=7 | come other {THEIRS} priority=100 labels=app:y | come a cpu=4
            priority=50 away=app:y vfs=0 | tries > a | change other labels=app:z | tries > a | nominated a n1""",
        "a pod bound by another scheduler makes preemption possible": f"""
            nodes n1 zone=a | come low {THEIRS} cpu=7 | come a cpu=4 priority=50 near=app:y vfs=0 | tries > a | come
            other {THEIRS} priority=100 labels=app:y | tries > a | nominated a n1""",
        # It was rejected because of that pod only: one more VF is enough. The more important pod is tried first.
        "a pod fits beside a nominated one": f"""
            nodes n1 vfs=1 | come low {THEIRS} cpu=8 | come b vfs=1 priority=10 | come a vfs=1 cpu=5 priority=50 | tries
            > a b | nodes n1 vfs=2 | tries > b | assigned b > n1""",
        # It is counted as gated until it is deleted, requeues no pod, and is tried as soon as it may be.
        "the last scheduling gate is removed": """
            nodes n1 | come a b gates=xy vfs=0 | gated > 2 | delete b | gated > 1 | tries | change a gates=y | tries |
            change a gates= | tries > a | gated > 0""",
        # Another request, namespace, label or selector may fit where the first pod does not.
        "pods that differ are each tried": """
            nodes n1 vfs=1 | come a vfs=2 | come b vfs=3 | come c vfs=2 labels=app:a | come d vfs=2 namespace=other |
            come e vfs=2 nodeSelector=no | come f vfs=2 pfs=distinct | tries > a b c d e f | nodes n2 vfs=1 | tries > a
            b c d e f""",
        # The probe's answer is theirs too: no pod keeps a reason that is no longer true.
        "pods of one signature get a new message when other plugins reject them": """
            nodes n1 vfs=1 taint=k | come a-0..2 vfs=2 | tries > a-0..2 | nodes n1 vfs=1 | refuses a-0..2: 0/1 nodes are
            available: 1 not enough free RDMA VFs.""",
        # Not the nodes at the time when pods of its signature became unschedulable.
        "a new pod's message counts the present nodes": """
            nodes n1 | come a cpu=32 vfs=0 | tries > a | lose n1 | come b cpu=32 vfs=0 | refuses a b: no nodes available
            to schedule pods""",
    }
)
def test_an_event_requeues_the_pods_that_it_may_help(story: str, scene: Scene) -> None:
    play(scene, story)


@pytest.mark.parametrize(
    ("amount", "reason"),
    [
        ("cpu=6", "Insufficient cpu"),
        ("memory=12Gi", "Insufficient memory"),
        ("port=80", "node(s) didn't have free ports for the requested pod ports"),
    ],
)
def test_pods_that_others_bound_count(amount: str, reason: str, scene: Scene) -> None:
    """Those of kube-scheduler, and static pods, which no scheduler bound."""
    static = {"annotations": {"kubernetes.io/config.mirror": "x"}, "ownerReferences": [{"kind": "Node", "name": "n1"}]}
    play(scene, f"nodes n1 | come theirs {THEIRS} {amount}")
    scene.show(changed(scene.pods["theirs"], metadata=static))
    play(scene, f"come a {amount} vfs=0 | refuses a: 0/1 nodes are available: 1 {reason}.")


def test_many_unschedulable_replicas_cost_one_decision_for_each_event(scene: Scene) -> None:
    """And each one that finds a node one more; the others are not even tried."""
    play(scene, "nodes n1 vfs=4 | come a-0..3 vfs=1 | tries > a-0..3")
    play(scene, "come flood-0..299 vfs=1 labels=app:flood | tries > flood-0..299")
    for vfs, placed in ((5, 1), (8, 3), (8, 0)):
        play(scene, f"nodes n1 vfs={vfs} placed={placed}")
        tried = scene.tries().split()
        assert len(tried) == placed + 1 if placed else len(tried) <= 1
    play(scene, "come other vfs=0 labels=app:other | tries > other")


def test_many_new_replicas_that_fit_nowhere_cost_one_decision(scene: Scene) -> None:
    """Each gets the answer of the first; an event that may help has them tried again."""
    play(scene, "nodes n1 vfs=1 | come holder vfs=1 | tries > holder")
    plugins: list[str] = []
    told: dict[str, str] = {}

    def come(name: str, count: int) -> None:
        for number in range(count):
            play(scene, f"come {name}-{number} vfs=1")
            told.update(scene.refusals(plugins))

    come("a", 300)
    assert plugins.count("PreFilter") == 1
    assert (len(told), len(set(told.values()))) == (300, 1)
    play(scene, "nodes n1 vfs=2")
    come("b", 1)
    # It comes before the probe, whose backoff is not over, and takes the VF that is free now.
    assert plugins.count("PreFilter") == 2
    come("c", 2)
    assert plugins.count("PreFilter") == 3, "the first of them says again that nothing is left"
    scene.machine.check()

"""Which VFs count as taken: those that an assignment claims, for as long as its pod is there, and what two claim."""

import re
from array import array

import pytest

from mooring import names
from mooring.annotations.assignment import read_assignment
from mooring.annotations.inventory import Out
from mooring.indexes import Indexes
from tests.scheduler.group_life import Life, annotated, binds, claiming, notices, reports_of
from tests.scheduler.state.cluster import Cluster
from tests.scheduler.story import play, stories


def test_a_pod_gets_its_node_and_exact_vfs_in_one_decision(life: Life) -> None:
    """The Bind carries the assignment, one entry per interface in order, for this uid and node."""
    pod = life.make_pod(request=[{"min_tx_rate": 5000}, {"name": "rdma1"}])
    life.nodes("n1")
    (decision,) = binds(life.see(pod) + life.decide_ready())
    assignment = read_assignment(decision.annotations[names.ASSIGNMENT])
    assert (assignment.uid, assignment.node) == (pod.metadata.uid, "n1")
    assert [(vf.vf, vf.pci, vf.min_tx_rate, vf.name) for vf in assignment.vfs] == [
        (0, "0000:04:00.2", 5000, None),
        (1, "0000:04:00.3", 0, "rdma1"),
    ]


def disputed(*pods: str) -> str:
    """Return what is told of the only VF of n1, which these pods claim."""
    claimants = ", ".join(f"default/{name}" for name in pods)
    rule = f"is claimed by {claimants}: it is not assigned again until all of them are gone"
    told = [f"{name} DisputedVf: VF 0000:04:00.2 of node n1 {rule}" for name in pods]
    return "; ".join([*told, f"log: VF is claimed twice {pods[-1]} n1"])


BOTH = disputed("one", "two")

STORIES = {
    # After a start nodes and pods come in any order: only together they show a dispute.
    "a VF that two pods claim is reported, by a new leader again as long as it remains": f"""
        node n1 | claim one 0 | told | claim two 0 | told > {BOTH} | disputes > 1 | repeat > {BOTH} | delete one |
        repeat | disputes > 0""",
    "a dispute is reported when the node is listed at last": f"""
        claim one 0 | claim two 0 | told | node n1 | told > {BOTH} | disputes > 1""",
    # Not at each heartbeat of the node; a third claimant is news.
    "a dispute is reported once": f"""
        node n1 | claim one 0 | claim two 0 | told > {BOTH} | node n1 1 numa=1 | told | claim three 0
        | told > {disputed("one", "two", "three")}""",
    # Then, and only then, a pod that waits for it is requeued.
    "a VF is free again when its pod has ended or is gone": """
        node n1 | claim held 0 | pod a | decide | at 5 | delete held | at 6 | decide > a | answer bound a | at 7 | pod b
        | decide | at 8 | watch a | phase Succeeded a | at 9 | decide > b""",
    "a claim on a VF that does not exist takes nothing": "node n1 | claim other 3 | pod a | decide > a",
    # Somebody removes it from a running pod: the VF is in the pod all the same.
    "a pod keeps its VF whatever happens to its annotation": """
        node n1 | pod a | decide > a | watch a | strip a | pod b | decide | delete a | at 100 | decide > b""",
    # Neither pod's end frees it, nor both together while the node's ledger holds it for one of them.
    "a disputed VF is given when both pods are gone and the node has it back": """
        node n1 | claim one 0 | claim two 0 | pod a | decide | at 1 | delete one | at 100 | decide
        | node n1 1 out=0:held_by_pod_uid-0 | at 101 | delete two | at 200 | decide | node n1 | at 300 | decide > a""",
}


@stories(STORIES)
def test_claims(story: str, cluster: Cluster) -> None:
    play(cluster, story)


@pytest.mark.parametrize(
    ("annotation", "why"),
    [
        ('{"v":1,"uid":"other","node":"n1","vfs":[]}', "is not this pod's uid"),
        ('{"v":1,"uid":"uid-0","node":"n2","vfs":[]}', "is not this pod's node"),
        ('{"v":1,"uid":"uid-0","node":"n1","vfs":[{"pf":7}]}', "vfs[0]"),
        ("{", "not valid JSON"),
    ],
)
def test_an_assignment_is_valid_for_its_own_pod_and_node_only(life: Life, annotation: str, why: str) -> None:
    forged = life.make_pod(node="n1", annotations={names.ASSIGNMENT: annotation})
    (notice,) = notices(life.see(life.make_node(pfs=(life.make_pf(vfs=1),)), forged))
    assert notice.subject == "assignment"
    assert why in notice.fields["reason"]
    life.see(life.make_pod(request=[{}]))
    assert len(binds(life.decide_ready())) == 1


def test_the_time_a_vf_became_free_is_kept_only_for_existing_vfs(cluster: Cluster) -> None:
    """Neither forged assignments nor nodes that come and go leave anything behind."""
    play(cluster, "claim a 0 | claim b 1 | claim c 3 | node n1 2 | at 3 | delete a | delete c")
    assert cluster.machine.cache.free_since("n1") == {"pf0": array("d", [3.0])}
    play(cluster, "at 4 | lose n1 | at 5 | delete b")
    assert cluster.machine.cache.free_since("n1") == {}


def test_a_pf_that_comes_back_has_the_times_of_before(life: Life) -> None:
    """Otherwise its VFs would count as never used, and the one that was released last could be taken first."""
    pods = [claiming(life.make_pod(node="n1"), vf) for vf in (0, 1)]
    other_pf, other_pod = life.make_pf(1), claiming(life.make_pod(node="n1"), 0, pf=1)
    life.see(life.make_node(pfs=(life.make_pf(vfs=2), other_pf)), *pods, other_pod)
    life.now = 3.0
    life.gone(pods[0])
    life.see(life.make_node(pfs=(other_pf,)))
    life.now = 4.0
    life.gone(other_pod)
    assert dict(life.machine.cache.free_since("n1")) == {"pf0": array("d", [3.0]), "pf1": array("d", [4.0])}


def test_an_unreadable_inventory_is_reported_once_and_the_node_takes_pods_without_vfs(life: Life) -> None:
    node = life.make_node(annotations={names.INVENTORY: "{"})
    (notice,) = notices(life.see(node))
    assert (notice.subject, notice.fields["node"]) == ("inventory", "n1")
    assert life.see(life.make_node(annotations={names.INVENTORY: "{"}, labels={"a": "b"})) == []
    life.see(life.make_pod())
    assert len(binds(life.decide_ready())) == 1


def test_a_vf_held_out_by_the_node_keeps_its_rate_once(life: Life) -> None:
    """A VF that is both out and claimed counts once in Σ min; out alone it counts too."""
    out = (Out(Indexes.of([0, 1]), "held", min_tx_rate=40_000),)
    life.show_node("n1", life.make_pf(out=out))
    life.see(claiming(life.make_pod(node="n1"), 0))
    (room,) = life.machine.cache.vf_accounting("n1").free_vfs.capacities
    assert (room.vfs, room.mbps) == (2, 10_000)


def test_a_returned_vf_is_the_last_to_be_given_again(cluster: Cluster) -> None:
    """Its node may still be restoring it: those that have been free the longest come first."""
    play(cluster, "node n1 3 | claim held 0 | at 5 | delete held | at 6 | pod a | pod b | pod c | decide > a b c")
    given = [cluster.decided[name].assigned.assignment for name in "abc"]
    assert [assignment.vfs[0].vf for assignment in given if assignment] == [1, 2, 0]


def test_annotations_count_as_they_are_when_a_pod_is_bound(life: Life) -> None:
    """They grew while the pod waited, so that a Binding would poison it; any change of them may help.

    The API server does not check the size in a Binding, and then refuses every later write.
    """
    pod = life.make_pod(request=[{}])
    large = annotated(pod, {"x": "y" * 262_000})
    life.see(pod)
    assert reports_of(life.decide_ready()) == ["no nodes available to schedule pods"]
    life.see(large, life.make_node(pfs=(life.make_pf(),)))
    (report,) = reports_of(life.decide_ready(10.0))
    assert re.fullmatch(r"annotations would have 262\d* .*the limit is 262144", report)
    life.see(large, now=20.0)
    assert life.decide_ready() == []
    life.see(pod, now=30.0)
    assert len(binds(life.decide_ready())) == 1

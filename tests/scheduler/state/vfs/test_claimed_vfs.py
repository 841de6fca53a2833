"""Which VFs count as taken: those that an assignment claims, for as long as its pod is there, and what two claim."""

import re
from array import array
from collections.abc import Iterable

import pytest

from mooring import names
from mooring.annotations.assignment import read_assignment
from mooring.annotations.inventory import Out
from mooring.indexes import Indexes
from mooring.kube.events import Identity, Removed
from scheduler.constraints.protocol import VFS
from scheduler.cycle.instructions import Instruction, Report
from scheduler.kube.objects import Pod
from tests.scheduler.group_life import binds, claiming
from tests.scheduler.state.bindings import Bindings
from tests.scheduler.state.life import Life
from tests.scheduler.state.steps import annotated, notices, reports_of
from tests.scheduler.story import play


def test_a_pod_gets_its_node_and_exact_vfs_in_one_decision(life: Life) -> None:
    """The Bind carries the assignment, one entry per interface in order, for this uid and node."""
    pod = life.make_pod(request=[{"min_tx_rate": 5000}, {"name": "rdma1"}])
    life.see(life.n1(), pod)
    (decision,) = life.binds()
    assignment = read_assignment(decision.annotations[names.ASSIGNMENT])
    assert (assignment.uid, assignment.node) == (pod.metadata.uid, "n1")
    assert [(vf.vf, vf.pci, vf.min_tx_rate, vf.name) for vf in assignment.vfs] == [
        (0, "0000:04:00.2", 5000, None),
        (1, "0000:04:00.3", 0, "rdma1"),
    ]


def test_many_pods_at_once_on_one_vf_bind_exactly_one(life: Life) -> None:
    """The VF is reserved from the decision on, before any answer: all others get the reason why they wait."""
    life.see(life.n1(vfs=1), *(life.make_pod(request=[{}]) for _ in range(20)))
    instructions = life.steps()
    assert len(binds(instructions)) == 1
    assert reports_of(instructions) == ["0/1 nodes are available: 1 not enough free RDMA VFs."] * 19


STORIES = {
    # Then, and only then, a pod that waits for it is requeued.
    "a VF is free again when its pod has ended or is gone": """
        node | claim held 0 | pod a | bind | at 5 | gone held | at 6 | bind > a | answer a bound | at 7 | pod b | bind
        | at 8 | watch a | end a | at 9 | bind > b""",
    "a claim on a VF that does not exist takes nothing": "node | claim other 3 | pod a | bind > a",
    # Somebody removes it from a running pod: the VF is in the pod all the same.
    "a pod keeps its VF whatever happens to its annotation": """
        node | pod a | bind > a | watch a | strip a | pod b | bind | gone a | at 100 | bind > b""",
    # Neither pod's end frees it, nor both together while the node's ledger holds it for one of them.
    "a disputed VF is given when both pods are gone and the node has it back": """
        node | claim one 0 | claim two 0 | pod a | bind | at 1 | gone one | at 100 | bind | hold one | at 101 | gone two
        | at 200 | bind | node | at 300 | bind > a""",
}


@pytest.mark.parametrize("story", STORIES.values(), ids=STORIES)
def test_claims(story: str, bindings: Bindings) -> None:
    play(bindings, story)


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
    (notice,) = notices(life.see(life.n1(vfs=1), forged))
    assert notice.subject == "assignment"
    assert why in notice.fields["reason"]
    life.see(life.make_pod(request=[{}]))
    assert len(life.binds()) == 1


def test_the_time_a_vf_became_free_is_kept_only_for_existing_vfs(life: Life) -> None:
    """Neither forged assignments nor nodes that come and go leave anything behind."""
    pods = [claiming(life.make_pod(node="n1"), vf) for vf in (0, 1, 3)]
    life.see(life.n1(vfs=2), *pods)
    for pod in (pods[0], pods[2]):
        life.remove(pod, 3.0)
    assert life.machine.cache.free_since("n1") == {"pf0": array("d", [3.0])}
    life.machine.nodes(Removed(Identity("n1")), 4.0)
    life.remove(pods[1], 5.0)
    assert life.machine.cache.free_since("n1") == {}


def test_a_pf_that_comes_back_has_the_times_of_before(life: Life) -> None:
    """Otherwise its VFs would count as never used, and the one that was released last could be taken first."""
    pods = [claiming(life.make_pod(node="n1"), vf) for vf in (0, 1)]
    other_pf, other_pod = life.make_pf(1), claiming(life.make_pod(node="n1"), 0, pf=1)
    life.see(life.make_node(pfs=(life.make_pf(vfs=2), other_pf)), *pods, other_pod)
    life.remove(pods[0], 3.0)
    life.see(life.make_node(pfs=(other_pf,)))
    life.remove(other_pod, 4.0)
    assert dict(life.machine.cache.free_since("n1")) == {"pf0": array("d", [3.0]), "pf1": array("d", [4.0])}


def test_an_unreadable_inventory_is_reported_once_and_the_node_takes_pods_without_vfs(life: Life) -> None:
    node = life.make_node(annotations={names.INVENTORY: "{"})
    (notice,) = notices(life.see(node))
    assert (notice.subject, notice.fields["node"]) == ("inventory", "n1")
    assert life.see(life.make_node(annotations={names.INVENTORY: "{"}, labels={"a": "b"})) == []
    life.see(life.make_pod())
    assert len(life.binds()) == 1


def test_a_vf_held_out_by_the_node_keeps_its_rate_once(life: Life) -> None:
    """A VF that is both out and claimed counts once in Σ min; out alone it counts too."""
    out = (Out(Indexes.of([0, 1]), "held", min_tx_rate=40_000),)
    node = life.n1(vfs=4, out=out)
    life.see(node, claiming(life.make_pod(node="n1"), 0))
    (room,) = life.machine.cache.vf_accounting("n1").free_vfs.capacities
    assert (room.vfs, room.mbps) == (2, 10_000)


def test_a_returned_vf_is_the_last_to_be_given_again(life: Life) -> None:
    """Its node may still be restoring it: those that have been free the longest come first."""
    held = claiming(life.make_pod(node="n1"), 0)
    life.see(life.n1(vfs=3), held)
    life.remove(held, 5.0)
    life.see(*(life.make_pod(request=[{}]) for _ in range(3)), now=6.0)
    given = [decision.assigned.assignment for decision in life.binds(6.0)]
    assert [assignment.vfs[0].vf for assignment in given if assignment] == [1, 2, 0]


def test_annotations_count_as_they_are_when_a_pod_is_bound(life: Life) -> None:
    """They grew while the pod waited, so that a Binding would poison it; any change of them may help.

    The API server does not check the size in a Binding, and then refuses every later write.
    """
    pod = life.make_pod(request=[{}])
    large = annotated(pod, pod.annotations | {"x": "y" * 262_000})
    life.see(pod)
    assert reports_of(life.steps()) == ["no nodes available to schedule pods"]
    life.see(large, life.n1())
    (report,) = reports_of(life.steps(10.0))
    assert re.fullmatch(r"annotations would have 262\d* .*the limit is 262144", report)
    life.see(large, now=20.0)
    assert life.steps(20.0) == []
    life.see(pod, now=30.0)
    assert len(life.binds(30.0)) == 1


def _claimant(life: Life, name: str) -> Pod:
    """Make a bound pod that claims the only VF of n1."""
    return claiming(life.make_pod(name, node="n1"), 0)


def _told(instructions: Iterable[Instruction]) -> tuple[list[str], list[str]]:
    """Return the pods with a report, and the names in the log."""
    instructions = list(instructions)
    reports = [one.pod.key for one in instructions if isinstance(one, Report)]
    return reports, [one.fields["reason"] for one in notices(instructions) if one.subject == "dispute"]


BOTH = (["default/one", "default/two"], ["claimed by default/one, default/two"])


@pytest.mark.parametrize("first", ["node", "pods"])
def test_a_vf_that_two_pods_claim_is_reported_whatever_is_listed_first(first: str, life: Life) -> None:
    """After a start nodes and pods come in any order: only together they show a dispute."""
    pods = [_claimant(life, name) for name in ("one", "two")]
    found = life.see(life.n1(vfs=1), *pods) if first == "node" else life.see(*pods, life.n1(vfs=1))
    assert _told(found) == BOTH
    assert all("default/one, default/two" in message for message in reports_of(found))
    assert life.machine.vf_disputes.dispute_counts == {VFS: 1}


def test_a_dispute_is_reported_once(life: Life) -> None:
    """Not at each heartbeat of the node; a third claimant is news."""
    life.see(life.n1(vfs=1), _claimant(life, "one"), _claimant(life, "two"))
    assert _told(life.see(life.n1(vfs=1, numa=1))) == ([], [])
    assert len(_told(life.see(_claimant(life, "three")))[0]) == 3


def test_a_new_leader_reports_the_disputes_that_remain(life: Life) -> None:
    """The one before may have ended before it reported; a dispute that is over is not reported."""
    life.see(life.n1(vfs=1), one := _claimant(life, "one"), _claimant(life, "two"))
    assert _told(life.machine.vf_disputes.repeat_reports()) == BOTH
    life.remove(one, 1.0)
    assert life.machine.vf_disputes.repeat_reports() == []
    assert life.machine.vf_disputes.dispute_counts == {}

"""Which VFs count as taken: those that an assignment claims, for as long as its pod is there."""

from array import array

import pytest

from mooring import names
from mooring.annotations.assignment import read_assignment
from mooring.annotations.inventory import Out
from mooring.indexes import Indexes
from mooring.kube.events import Identity, Removed
from scheduler.cycle.instructions import Report
from scheduler.kube.outcomes import BOUND
from scheduler.state.machine import Machine
from tests.scheduler.state.steps import (
    MakeNode,
    MakePf,
    MakePod,
    annotated,
    as_bound,
    binds,
    claiming,
    notices,
    remove,
    reports_of,
    steps,
    take_in,
)


def test_a_pod_gets_its_node_and_exact_vfs_in_one_decision(
    machine: Machine, make_node: MakeNode, make_pf: MakePf, make_pod: MakePod
) -> None:
    """The Bind carries the assignment, one entry per interface in order, for this uid and node."""
    pod = make_pod(request=[{"min_tx_rate": 5000}, {"name": "rdma1"}])
    take_in(machine, make_node(pfs=(make_pf(),)), pod)
    (decision,) = binds(steps(machine))
    assignment = read_assignment(decision.annotations[names.ASSIGNMENT])
    assert (assignment.uid, assignment.node) == (pod.metadata.uid, "n1")
    assert [(vf.vf, vf.pci, vf.min_tx_rate, vf.name) for vf in assignment.vfs] == [
        (0, "0000:04:00.2", 5000, None),
        (1, "0000:04:00.3", 0, "rdma1"),
    ]


def test_many_pods_at_once_on_one_vf_bind_exactly_one(
    machine: Machine, make_node: MakeNode, make_pf: MakePf, make_pod: MakePod
) -> None:
    """The VF is reserved from the decision on, before any answer: all others get the reason why they wait."""
    take_in(machine, make_node(pfs=(make_pf(vfs=1),)), *(make_pod(request=[{}]) for _ in range(20)))
    instructions = steps(machine)
    assert len(binds(instructions)) == 1
    assert reports_of(instructions) == ["0/1 nodes are available: 1 not enough free RDMA VFs."] * 19


def test_a_vf_is_free_again_when_its_pod_has_ended_or_is_gone(
    machine: Machine, make_node: MakeNode, make_pf: MakePf, make_pod: MakePod
) -> None:
    """Then, and only then, a pod that waits for it is requeued."""
    waiting = make_pod(request=[{}])
    held = claiming(make_pod, 0)
    take_in(machine, make_node(pfs=(make_pf(vfs=1),)), held, waiting)
    assert binds(steps(machine)) == []
    remove(machine, held, now=5.0)
    (decision,) = binds(steps(machine, now=6.0))
    machine.finished(decision, BOUND, 6.0)
    second = make_pod(request=[{}])
    take_in(machine, second, now=7.0)
    assert binds(steps(machine, now=7.0)) == []
    ended = as_bound(decision)
    ended.status.phase = "Succeeded"
    take_in(machine, ended, now=8.0)
    assert [one.pod_info.uid for one in binds(steps(machine, now=9.0))] == [second.metadata.uid]


def test_a_vf_with_two_claims_is_free_when_both_are_gone(
    machine: Machine, make_node: MakeNode, make_pf: MakePf, make_pod: MakePod
) -> None:
    """Neither is trusted to free it; the log and an event on each of the pods name both."""
    one, two = claiming(make_pod, 0, name="one"), claiming(make_pod, 0, name="two")
    take_in(machine, make_node(pfs=(make_pf(vfs=1),)), one)
    instructions = take_in(machine, two)
    assert [notice.subject for notice in notices(instructions)] == ["dispute"]
    assert notices(instructions)[0].fields["reason"] == "claimed by default/one, default/two"
    assert [one.pod.key for one in instructions if isinstance(one, Report)] == ["default/one", "default/two"]
    assert all("default/one, default/two" in message for message in reports_of(instructions))
    waiting = make_pod(request=[{}])
    take_in(machine, waiting)
    for now, claimant, expected in ((100.0, one, 0), (200.0, two, 1)):
        remove(machine, claimant, now)
        assert len(binds(steps(machine, now))) == expected


@pytest.mark.parametrize(
    ("annotation", "why"),
    [
        ('{"v":1,"uid":"other","node":"n1","vfs":[]}', "is not this pod's uid"),
        ('{"v":1,"uid":"uid-0","node":"n2","vfs":[]}', "is not this pod's node"),
        ('{"v":1,"uid":"uid-0","node":"n1","vfs":[{"pf":7}]}', "vfs[0]"),
        ("{", "not valid JSON"),
    ],
)
def test_an_assignment_is_valid_for_its_own_pod_and_node_only(
    annotation: str, why: str, machine: Machine, make_node: MakeNode, make_pf: MakePf, make_pod: MakePod
) -> None:
    """Any other causes a log line and nothing else."""
    forged = make_pod(node="n1", annotations={names.ASSIGNMENT: annotation})
    (notice,) = notices(take_in(machine, make_node(pfs=(make_pf(vfs=1),)), forged))
    assert notice.subject == "assignment"
    assert why in notice.fields["reason"]
    take_in(machine, make_pod(request=[{}]))
    assert len(binds(steps(machine))) == 1


def test_a_claim_on_a_vf_that_does_not_exist_takes_nothing(
    machine: Machine, make_node: MakeNode, make_pf: MakePf, make_pod: MakePod
) -> None:
    """The inventory defines which VFs exist."""
    take_in(machine, make_node(pfs=(make_pf(vfs=1),)), claiming(make_pod, 3), make_pod(request=[{}]))
    assert len(binds(steps(machine))) == 1


def test_the_time_a_vf_became_free_is_kept_only_for_existing_vfs(
    machine: Machine, make_node: MakeNode, make_pf: MakePf, make_pod: MakePod
) -> None:
    """Neither forged assignments nor nodes that come and go leave anything behind."""
    pods = [claiming(make_pod, vf) for vf in (0, 1, 3)]
    take_in(machine, make_node(pfs=(make_pf(vfs=2),)), *pods)
    for pod in (pods[0], pods[2]):
        remove(machine, pod, now=3.0)
    assert machine.cache.free_since("n1") == {"pf0": array("d", [3.0])}
    machine.nodes(Removed(Identity("n1")), 4.0)
    remove(machine, pods[1], now=5.0)
    assert machine.cache.free_since("n1") == {}


def test_a_pf_that_comes_back_has_the_times_of_before(
    machine: Machine, make_node: MakeNode, make_pf: MakePf, make_pod: MakePod
) -> None:
    """Otherwise its VFs would count as never used, and the one that was released last could be taken first."""
    pods = [claiming(make_pod, vf) for vf in (0, 1)]
    other_pf, other_pod = make_pf(1), claiming(make_pod, 0, pf=1)
    take_in(machine, make_node(pfs=(make_pf(vfs=2), other_pf)), *pods, other_pod)
    remove(machine, pods[0], now=3.0)
    take_in(machine, make_node(pfs=(other_pf,)))
    remove(machine, other_pod, now=4.0)
    assert dict(machine.cache.free_since("n1")) == {"pf0": array("d", [3.0]), "pf1": array("d", [4.0])}


def test_an_unreadable_inventory_is_reported_once_and_the_node_takes_pods_without_vfs(
    machine: Machine, make_node: MakeNode, make_pod: MakePod
) -> None:
    """One line in the log however often the node's heartbeat comes."""
    node = make_node(annotations={names.INVENTORY: "{"})
    (notice,) = notices(take_in(machine, node))
    assert (notice.subject, notice.fields["node"]) == ("inventory", "n1")
    assert take_in(machine, make_node(annotations={names.INVENTORY: "{"}, labels={"a": "b"})) == []
    take_in(machine, make_pod())
    assert len(binds(steps(machine))) == 1


def test_annotations_that_would_poison_the_pod_are_refused_before_the_bind(
    machine: Machine, make_node: MakeNode, make_pf: MakePf, make_pod: MakePod
) -> None:
    """The API server does not check the size in a Binding, and then refuses every later write."""
    pod = make_pod(request=[{}], annotations={"big": "x" * 262_000})
    take_in(machine, make_node(pfs=(make_pf(),)), pod)
    (message,) = reports_of(steps(machine))
    assert message.startswith("annotations would have 262")
    assert message.endswith("the limit is 262144")


def test_a_vf_held_out_by_the_node_keeps_its_rate_once(
    machine: Machine, make_node: MakeNode, make_pf: MakePf, make_pod: MakePod
) -> None:
    """A VF that is both out and claimed counts once in Σ min; out alone it counts too."""
    out = (Out(Indexes.of([0, 1]), "held", min_tx_rate=40_000),)
    node = make_node(pfs=(make_pf(vfs=4, out=out),))
    take_in(machine, node, claiming(make_pod, 0))
    (room,) = machine.cache.vf_accounting("n1").free_vfs.capacities
    assert (room.vfs, room.mbps) == (2, 10_000)


def test_a_returned_vf_is_the_last_to_be_given_again(
    machine: Machine, make_node: MakeNode, make_pf: MakePf, make_pod: MakePod
) -> None:
    """Its node may still be restoring it: those that have been free the longest come first."""
    held = claiming(make_pod, 0)
    take_in(machine, make_node(pfs=(make_pf(vfs=3),)), held)
    remove(machine, held, now=5.0)
    take_in(machine, *(make_pod(request=[{}]) for _ in range(3)), now=6.0)
    given = [decision.assigned.assignment for decision in binds(steps(machine, now=6.0))]
    assert [assignment.vfs[0].vf for assignment in given if assignment] == [1, 2, 0]


def test_a_pod_keeps_its_vf_whatever_happens_to_its_annotation(
    machine: Machine, make_node: MakeNode, make_pf: MakePf, make_pod: MakePod
) -> None:
    """Somebody removes it from a running pod: the VF is in the pod all the same."""
    pod, other = make_pod(request=[{}]), make_pod(request=[{}])
    take_in(machine, make_node(pfs=(make_pf(vfs=1),)), pod)
    (bind,) = binds(steps(machine))
    take_in(machine, annotated(pod, pod.annotations | dict(bind.annotations), nodeName="n1"))
    take_in(machine, annotated(pod, {}, nodeName="n1"), other)
    assert binds(steps(machine)) == []
    remove(machine, pod)
    assert len(binds(steps(machine, 100.0))) == 1


def test_annotations_count_as_they_are_when_a_pod_is_bound(
    machine: Machine, make_node: MakeNode, make_pf: MakePf, make_pod: MakePod
) -> None:
    """They grew while the pod waited, so that a Binding would poison it; any change of them may help."""
    pod = make_pod(request=[{}])
    large = annotated(pod, pod.annotations | {"x": "y" * 262_000})
    take_in(machine, pod)
    assert reports_of(steps(machine)) == ["no nodes available to schedule pods"]
    take_in(machine, large, make_node(pfs=(make_pf(),)))
    (report,) = reports_of(steps(machine, 10.0))
    assert report.startswith("annotations would have")
    take_in(machine, large, now=20.0)
    assert steps(machine, 20.0) == []
    take_in(machine, pod, now=30.0)
    assert len(binds(steps(machine, 30.0))) == 1

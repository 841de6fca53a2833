"""What a bound pod uses, read again and again while it starts."""

from dataclasses import replace

import pytest

from mooring import names
from mooring.annotations.assignment import AssignedVf, Assignment, dump_assignment
from scheduler.cache.assigned_pod import AssignedPod, read_assigned_pod
from scheduler.kube.objects import Pod
from tests.scheduler.conftest import MakePod


def _given(uid: str, node: str = "n1", vf: int = 0) -> Assignment:
    assigned = AssignedVf(pf="pf0", vf=vf, pci=f"0000:04:00.{2 + vf}", link="ethernet", network="rail0")
    return Assignment(uid, node, (assigned,))


def _pod(make_pod: MakePod, text: str) -> Pod:
    return make_pod(node="n1", metadata={"uid": "uid-0"}, annotations={names.ASSIGNMENT: text})


def test_an_assignment_that_has_not_changed_is_kept_as_it_is(make_pod: MakePod) -> None:
    """The same object, so that it is in memory once."""
    given = _given("uid-0")
    written = dump_assignment(given)
    known = AssignedPod("uid-0", "default/p0", "n1", assignment=given, assumed=True)
    assigned, notices = read_assigned_pod(_pod(make_pod, written), known)
    assert assigned.assignment is given
    assert (assigned.assumed, notices) == (False, [])


@pytest.mark.parametrize(
    ("now", "believed"),
    [
        (_given("uid-0", vf=1), True),
        (_given("uid-9"), False),
        (_given("uid-0", node="n2"), False),
    ],
)
def test_a_changed_assignment_is_read_and_verified_against_its_pod(
    now: Assignment, believed: bool, make_pod: MakePod
) -> None:
    """Uid and node must be those of the pod, whatever was known; an invalid annotation does not take its VF away."""
    was = _given("uid-0")
    known = AssignedPod("uid-0", "default/p0", "n1", assignment=was)
    for before, stands in ((known, known.assignment), (replace(known, assumed=True), None)):
        assigned, notices = read_assigned_pod(_pod(make_pod, dump_assignment(now)), before)
        assert assigned.assignment == (now if believed else stands)
        assert bool(notices) != believed


def test_an_assignment_known_on_another_node_does_not_count(make_pod: MakePod) -> None:
    """Another scheduler bound the pod with our annotation: that names another node, not this one."""
    given = _given("uid-0", node="n2")
    written = dump_assignment(given)
    known = AssignedPod("uid-0", "default/p0", "n2", assignment=given, assumed=True)
    assigned, notices = read_assigned_pod(_pod(make_pod, written), known)
    assert assigned.assignment is None
    assert len(notices) == 1

"""What a bound pod uses, read again and again while it starts."""

import pytest

from mooring import names
from mooring.annotations.assignment import AssignedVf, Assignment, dump_assignment
from scheduler.cache.assigned_pod import AssignedPod, UnreadablePart, read_assigned_pod
from tests.scheduler.conftest import MakePod


def _given(uid: str, node: str = "n1", vf: int = 0) -> Assignment:
    assigned = AssignedVf(pf="pf0", vf=vf, pci=f"0000:04:00.{2 + vf}", link="ethernet", network="rail0")
    return Assignment(uid, node, (assigned,))


def _read(make_pod: MakePod, shown: Assignment, known: AssignedPod) -> tuple[AssignedPod, list[UnreadablePart]]:
    annotations = {names.ASSIGNMENT: dump_assignment(shown)}
    return read_assigned_pod(make_pod(node="n1", metadata={"uid": "uid-0"}, annotations=annotations), known)


@pytest.mark.parametrize(
    ("shown", "is_valid"),
    [
        pytest.param(_given("uid-0", vf=1), True, id="another VF"),
        pytest.param(_given("uid-9"), False, id="another pod's"),
        pytest.param(_given("uid-0", node="n2"), False, id="another node's"),
    ],
)
@pytest.mark.parametrize("assumed", [False, True])
def test_a_changed_assignment_is_read_and_verified_against_its_pod(
    shown: Assignment, is_valid: bool, assumed: bool, make_pod: MakePod
) -> None:
    """Uid and node must be those of the pod, whatever was known; an invalid annotation does not take its VF away."""
    before = _given("uid-0")
    known = AssignedPod("uid-0", "default/p0", "n1", assignment=before, assumed=assumed)
    assigned, notices = _read(make_pod, shown, known)
    assert assigned.assignment == (shown if is_valid else None if assumed else before)
    assert bool(notices) != is_valid


@pytest.mark.parametrize("node", ["n1", "n2"])
def test_an_assignment_that_has_not_changed_is_kept_as_it_is(node: str, make_pod: MakePod) -> None:
    """The same object, so that it is in memory once; not where another scheduler bound the pod to another node."""
    given = _given("uid-0", node)
    known = AssignedPod("uid-0", "default/p0", node, assignment=given, assumed=True)
    assigned, notices = _read(make_pod, given, known)
    assert assigned.assignment is (given if node == "n1" else None)
    assert len(notices) == (node != "n1")
    assert not assigned.assumed

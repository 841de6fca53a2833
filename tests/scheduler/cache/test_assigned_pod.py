"""What a bound pod uses, read again and again while it starts."""

import pytest

from mooring import names
from mooring.annotations.assignment import AssignedVf, Assignment, dump_assignment
from scheduler.cache.assigned_pod import AssignedPod, read_assigned_pod
from tests.scheduler.conftest import MakePod


def _given(uid: str = "uid-0", node: str = "n1", vf: int = 0) -> Assignment:
    assigned = AssignedVf(pf="pf0", vf=vf, pci=f"0000:04:00.{2 + vf}", link="ethernet", network="rail0")
    return Assignment(uid, node, (assigned,))


@pytest.mark.parametrize(
    ("shown", "known", "is_valid"),
    [
        pytest.param(_given(vf=1), _given(), True, id="another VF"),
        pytest.param(_given("uid-9"), _given(), False, id="another pod's"),
        pytest.param(_given(node="n2"), _given(), False, id="another node's"),
        pytest.param(_given(), _given(), True, id="the same"),
        pytest.param(_given(node="n2"), _given(node="n2"), False, id="the same, but another scheduler bound the pod"),
    ],
)
@pytest.mark.parametrize("assumed", [False, True])
def test_an_assignment_is_verified_against_its_pod(
    shown: Assignment, known: Assignment, is_valid: bool, assumed: bool, make_pod: MakePod
) -> None:
    """Uid and node must be those of the pod, whatever was known; an invalid annotation does not take its VF away.

    One that has not changed stays the same object, so that it is in memory once.
    """
    before = AssignedPod("uid-0", "default/p0", known.node, assignment=known, assumed=assumed)
    annotations = {names.ASSIGNMENT: dump_assignment(shown)}
    pod = make_pod(node="n1", metadata={"uid": "uid-0"}, annotations=annotations)
    assigned, notices = read_assigned_pod(pod, before)
    is_kept = not assumed and known.node == "n1"
    assert assigned.assignment == (shown if is_valid else known if is_kept else None)
    assert (assigned.assignment is known) == (shown == known if is_valid else is_kept)
    assert bool(notices) != is_valid
    assert not assigned.assumed

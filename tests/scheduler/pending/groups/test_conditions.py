"""The condition of a PodGroup: False with the reason while its members wait, True once enough of them are bound."""

from typing import Any

import msgspec
import pytest

from mooring.kube.events import Changed, Identity, Removed
from scheduler.cycle.instructions import Instruction, ReportGroup
from scheduler.kube.workload_objects import CoschedulingPodGroup, PodGroup
from tests.scheduler.group_life import Life, MakePod, as_bound, binds, changed, told

OF_TRAIN: dict[str, Any] = {"group": "", "spec": {"schedulingGroup": {"podGroupName": "train"}}}


def _show(life: Life, *conditions: tuple[str, str], uid: str = "u1") -> None:
    """Show a PodGroup of two with such conditions: type and status."""
    shown = [{"type": name, "status": status, "reason": "", "message": ""} for name, status in conditions]
    document = {
        "metadata": {"name": "train", "namespace": "default", "uid": uid, "resourceVersion": "7", "generation": 3},
        "spec": {"schedulingPolicy": {"gang": {"minCount": 2}}},
        "status": {"conditions": shown},
    }
    life.machine.handle(PodGroup, Changed(Identity("train", "default"), msgspec.convert(document, PodGroup)), life.now)


def _written(instructions: list[Instruction]) -> list[tuple[str, str, str]]:
    return [(one.status, one.reason, one.message) for one in instructions if isinstance(one, ReportGroup)]


def test_a_pod_group_says_what_its_waiting_members_are_told_and_later_that_it_is_scheduled(life: Life) -> None:
    """Once a second at most, and nothing twice; True only when enough Bindings have succeeded."""
    _show(life)
    life.nodes("n1")
    life.members(3, **OF_TRAIN)
    instructions = life.work()
    (message,) = set(told(instructions).values())
    assert _written(instructions) == []
    assert _written(life.work(1.0)) == [("False", "Unschedulable", message)]
    assert _written(life.work(1.0)) == []
    life.nodes("n2", "n3")
    first, second, third = binds(life.work(15.0))
    life.bound(first)
    assert _written(life.work(1.0)) == []
    life.bound(second)
    assert _written(life.work(1.0)) == [("True", "Scheduled", "members bound: 2, needed: at least 2")]
    life.bound(third)
    assert _written(life.work(1.0)) == []


def test_a_pod_group_that_takes_anothers_name_does_not_say_why_that_one_waited(life: Life) -> None:
    """Deleted and created again, which a watch may show as one change."""
    _show(life)
    life.nodes("n1")
    life.members(2, **OF_TRAIN)
    life.work()
    _show(life, uid="u2")
    life.now += 1.0
    assert _written(life.machine.tick(life.now)) == []
    ((status, _, message),) = _written(life.work(15.0)) + _written(life.work(1.0))
    assert (status, "1 of 2 members fit" in message) == ("False", True)


def test_an_incomplete_group_says_so(life: Life) -> None:
    _show(life)
    life.see(life.member("m0", **OF_TRAIN))
    ((status, reason, message),) = [one for _ in range(5) for one in _written(life.work(1.0))]
    assert (status, reason) == ("False", "Unschedulable")
    assert message.startswith("group train: 1 of at least 2 members exist")


@pytest.mark.parametrize("name", ["PodGroupScheduled", "PodGroupInitiallyScheduled"])
def test_a_condition_never_goes_back_from_true(life: Life, name: str) -> None:
    """In either version: not when all members have gone, nor for later ones that do not fit."""
    _show(life, (name, "True"))
    life.members(2, **OF_TRAIN)
    instructions = life.work()
    assert told(instructions)
    assert _written(instructions + life.work(1.0) + life.work(5.0)) == []


def test_a_new_leader_writes_what_an_earlier_one_has_not(life: Life) -> None:
    """It is shown members that are bound, and a PodGroup that does not say so; in any order."""
    _show(life, ("PodGroupScheduled", "False"))
    life.nodes("n1", "n2")
    life.see(*(life.member(group="", spec=OF_TRAIN["spec"] | {"nodeName": name}) for name in ("n1", "n2")))
    assert _written(life.work(1.0)) == [("True", "Scheduled", "members bound: 2, needed: at least 2")]
    # The write was lost: the PodGroup is shown again as it was.
    _show(life, ("PodGroupScheduled", "False"))
    assert len(_written(life.work(1.0))) == 1
    _show(life, ("PodGroupScheduled", "True"))
    assert _written(life.work(1.0)) == []


def test_a_pod_group_that_is_made_again_has_a_condition_of_its_own(life: Life) -> None:
    """What was said of the first holds for the second: it is another object."""
    _show(life)
    life.nodes("n1", "n2")
    life.members(2, **OF_TRAIN)
    life.bound(*binds(life.work()))
    assert [status for status, _, _ in _written(life.work(1.0))] == ["True"]
    life.machine.handle(PodGroup, Removed(Identity("train", "default")), life.now)
    assert _written(life.work(1.0)) == []
    _show(life, uid="u2")
    assert [status for status, _, _ in _written(life.work(1.0))] == ["True"]


def test_nothing_is_written_to_a_pod_group_of_scheduler_plugins(life: Life, make_pod: MakePod) -> None:
    """Its status belongs to another controller."""
    item = msgspec.convert(
        {"metadata": {"name": "train", "namespace": "default"}, "spec": {"minMember": 2}}, CoschedulingPodGroup
    )
    life.machine.handle(CoschedulingPodGroup, Changed(Identity("train", "default"), item), life.now)
    labels = {"labels": {"scheduling.x-k8s.io/pod-group": "train"}}
    life.see(*(changed(make_pod(f"m{number}", [{}, {}]), metadata=labels) for number in range(2)))
    instructions = life.work() + life.work(1.0) + life.work(5.0)
    assert told(instructions)
    assert _written(instructions) == []
    life.nodes("n1", "n2")
    placed = binds(life.work(15.0))
    assert len(placed) == 2
    life.see(*(as_bound(one) for one in placed))
    assert _written(life.work(1.0) + life.work(5.0)) == []


def test_a_job_that_is_over_before_its_condition_is_written_was_scheduled(life: Life) -> None:
    """What its members were told before it fitted does not stay."""
    _show(life)
    life.members(2, **OF_TRAIN)
    life.work()
    ((status, _, _),) = _written(life.work(1.0))
    assert status == "False"
    life.nodes("n1", "n2")
    for pod in life.bound(*binds(life.work(15.0))):
        life.see(changed(pod, status={"phase": "Succeeded"}))
    assert _written(life.work(1.0)) == [("True", "Scheduled", "members bound: 2, needed: at least 2")]


def test_a_pod_group_of_which_no_member_names_this_scheduler_is_left_alone(life: Life) -> None:
    """kube-scheduler writes to its own; a group that has a member of both is reported by this one too."""
    theirs: dict[str, Any] = {"group": "", "spec": {**OF_TRAIN["spec"], "schedulerName": "default-scheduler"}}
    _show(life)
    life.nodes("n1", "n2", "n3")
    pods = [life.member(f"m{number}", node=f"n{number + 1}", **theirs) for number in range(2)]
    life.see(*pods)
    assert _written(life.work(1.0) + life.work(5.0)) == []
    life.see(*(changed(pod, status={"phase": "Succeeded"}) for pod in pods[:1]))
    assert _written(life.work(1.0) + life.work(5.0)) == []
    life.see(life.member("ours", node="n3", **OF_TRAIN))
    assert [status for status, *_ in _written(life.work(1.0) + life.work(5.0))] == ["True"]

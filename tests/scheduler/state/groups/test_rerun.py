"""A job that is run again under the name of its group, as a CronJob's: the pods of earlier runs stay, as succeeded."""

from datetime import UTC, datetime
from typing import Any

import msgspec
import pytest

from mooring.kube.events import Changed, Identity, Removed
from scheduler.cycle.instructions import Evict, ReportGroup
from scheduler.kube.objects import Pod
from scheduler.kube.outcomes import Outcome
from scheduler.kube.workload_objects import PodGroup
from scheduler.pending.groups.pending_groups import GroupOptions
from scheduler.state.machine import Machine
from tests.scheduler.group_life import Life, binds, changed, told

NODES = ("n1", "n2", "n3")


def _time(seconds: float) -> str:
    return datetime.fromtimestamp(seconds, UTC).isoformat(timespec="seconds")


def _bound(life: Life, pod: Pod) -> Pod:
    """Return a pod as the API server shows it that was bound just now."""
    condition = {"type": "PodScheduled", "status": "True", "lastTransitionTime": _time(life.now)}
    return changed(pod, status={"conditions": [condition]})


def _member(life: Life, run: int, number: int, **fields: Any) -> Pod:
    """Make a pod of the Job of a run."""
    owners = [{"name": "train", "kind": "Job", "uid": f"job-{run}", "controller": True}]
    return life.member(f"run{run}-{number}", metadata={"ownerReferences": owners}, **fields)


def _run_to_end(life: Life, **fields: Any) -> list[Pod]:
    """Let the group of a job run to its end; its pods stay, as those of a Job do."""
    life.see(*(_member(life, 1, number, **fields) for number in range(3)))
    pods = [_bound(life, pod) for pod in life.bound(*binds(life.work()))]
    life.now += 600
    pods = [changed(pod, status={"phase": "Succeeded"}) for pod in pods]
    life.see(*pods)
    life.now += 3600
    return pods


@pytest.fixture(params=["first run", "second run", "second run, another scheduler"])
def second_life(request: pytest.FixtureRequest, life: Life) -> Life:
    """Return a machine with three nodes that has seen another run before, or is shown that it was, or has not."""
    life.nodes(*NODES)
    if request.param == "first run":
        return life
    pods = _run_to_end(life)
    if request.param == "second run":
        return life
    found = life.successor()
    found.nodes(*NODES)
    found.see(*pods)
    return found


def test_a_start_that_is_cut_short_is_as_urgent_in_the_second_run(second_life: Life) -> None:
    """Two Bindings of three are lost, and one node is left: nobody else is placed before all have a place."""
    life = second_life
    life.see(*(_member(life, 2, number) for number in range(3)))
    first, second, third = binds(life.work())
    life.bound(first)
    life.remove_node(second.assigned.node)
    for one in (second, third):
        life.machine.finished(one, Outcome("changed", ""), life.now)
    assert life.is_urgent()
    out = life.work()
    assert binds(out) == []
    assert all("1 of at least 3 members are placed, and 1 of 2 others fit" in one for one in told(out).values())


def test_a_member_that_is_made_again_joins_the_second_run(second_life: Life) -> None:
    life = second_life
    _, *failed = life.place(*(_member(life, 2, number) for number in range(3)))
    life.see(*(changed(pod, status={"phase": "Failed"}) for pod in failed))
    life.see(_member(life, 2, 3))
    assert len(binds(life.work(20.0))) == 1


@pytest.mark.parametrize("has_run", [False, True])
def test_half_of_the_second_run_is_ended(life: Life, has_run: bool) -> None:
    """With ``--end-half-groups``; those of the first run make it no whole group."""
    life = life.successor(Machine("mooring", group_options=GroupOptions(end_half_s=10)))
    life.nodes(*NODES)
    if has_run:
        _run_to_end(life)
    life.see(*(_member(life, 2, number) for number in range(3)))
    first, *lost = binds(life.work())
    life.bound(first)
    for one in lost:
        life.remove_node(one.assigned.node)
        life.machine.finished(one, Outcome("changed", ""), life.now)
    found = [one for _ in range(10) for one in life.work(2.0) if isinstance(one, Evict)]
    assert ["only 1 of at least 3 members" in one.reason for one in found] == [True]


def test_a_pod_group_that_is_made_again_does_not_say_that_members_of_an_earlier_run_are_bound(life: Life) -> None:
    """Its condition never goes back from True."""
    of_train: dict[str, Any] = {"group": "", "spec": {"schedulingGroup": {"podGroupName": "train"}}}
    life.nodes(*NODES)
    _show(life, "u1")
    _run_to_end(life, **of_train)
    life.machine.handle(PodGroup, Removed(Identity("train", "default")), life.now)
    _show(life, "u2")
    assert [one for _ in range(3) for one in life.work(1.0) if isinstance(one, ReportGroup)] == []
    life.place(*(_member(life, 2, number, **of_train) for number in range(3)))
    found = [one for _ in range(3) for one in life.work(1.0) if isinstance(one, ReportGroup)]
    assert [(one.status, one.message) for one in found] == [("True", "members bound: 3, needed: at least 3")]


def _show(life: Life, uid: str) -> None:
    """Show a PodGroup that was made just now."""
    document = {
        "metadata": {"name": "train", "namespace": "default", "uid": uid, "creationTimestamp": _time(life.now)},
        "spec": {"schedulingPolicy": {"gang": {"minCount": 3}}},
    }
    life.machine.handle(PodGroup, Changed(Identity("train", "default"), msgspec.convert(document, PodGroup)), life.now)

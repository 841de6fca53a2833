"""Groups that wait for the same room are tried by priority and age, whatever their backoffs are."""

import json

import pytest

from scheduler.cycle.instructions import DeleteVictimsResult
from scheduler.kube.objects import Pod
from tests.scheduler.group_life import Life, binds, bound_names, fill, orders


def _group(life: Life, name: str, priority: int = 0) -> list[Pod]:
    group = json.dumps({"name": name, "min": 2})
    pods = [life.member(f"{name}-{number}", group, spec={"priority": priority}) for number in range(2)]
    life.see(*pods)
    return pods


def _wait_long(life: Life, name: str, priority: int = 0) -> list[Pod]:
    """Fill two nodes, and let a group come that has been tried in vain for a while."""
    running = fill(life, "n1", "n2", spec={"priority": 5})
    _group(life, name, priority)
    for number in range(5):
        life.nodes(f"small-{number}", vfs=1)
        assert binds(life.work(10.0)) == []
    return running


@pytest.mark.parametrize("comes", ["before the room", "after the room"])
def test_the_older_of_two_groups_gets_the_room_that_both_wait_for(life: Life, comes: str) -> None:
    """The younger one has a backoff of a second at the most, and the older one of ten."""
    running = _wait_long(life, "old")
    if comes == "before the room":
        _group(life, "young")
        assert binds(life.work()) == []
    life.gone(*running)
    if comes == "after the room":
        _group(life, "young")
    assert bound_names(life.work(1.0)) == ["old-0", "old-1"]


def test_room_that_comes_in_parts_goes_to_the_older_group(life: Life) -> None:
    running = _wait_long(life, "old")
    _group(life, "young")
    assert binds(life.work()) == []
    life.gone(running[0])
    assert binds(life.work(1.0)) == []
    life.gone(running[1])
    found = life.work(1.0) + life.work(1.0) + life.work(1.0)
    assert bound_names(found) == ["old-0", "old-1"]


def test_a_younger_group_of_higher_priority_goes_first(life: Life) -> None:
    running = _wait_long(life, "high", priority=1)
    _group(life, "low")
    life.gone(*running)
    assert bound_names(life.work(1.0)) == ["high-0", "high-1"]


def test_a_younger_group_gets_the_room_that_is_of_no_use_to_the_older_one(life: Life) -> None:
    """It waits for one decision about the older one, not for its backoff."""
    running = fill(life, "n1", "n2")
    life.see(*(life.member(f"old-{number}", '{"name":"old","min":4}') for number in range(4)))
    for number in range(5):
        life.nodes(f"small-{number}", vfs=1)
        assert binds(life.work(10.0)) == []
    life.gone(*running)
    _group(life, "young")
    assert bound_names(life.work()) == ["young-0", "young-1"]


def test_a_younger_group_waits_while_a_slow_decision_about_an_older_one_is_set_aside(life: Life) -> None:
    """A pod on its own does not, and takes what is enough for neither."""
    life.nodes("n1", "n2", "n3", vfs=100)
    old = [life.member(f"old-{n}", '{"name":"old","min":250}', request=[{}]) for n in range(250)]
    life.see(*old)
    life.machine.step(life.now)
    young = [life.member(f"young-{n}", '{"name":"young","min":60}', request=[{}]) for n in range(60)]
    life.see(*young, life.make_pod("single", [{}]))
    order = [one.pod_info.pod.metadata.name.split("-")[0] for one in binds(life.work())]
    assert list(dict.fromkeys(order)) == ["single", "old"]


def test_a_younger_group_that_has_waited_long_does_not_overtake_the_older_one_between_its_slices(life: Life) -> None:
    """After 15 s it may start beside the older group's paused decision. It gives way after each slice of its own."""
    life.nodes("n1", "n2", "n3", vfs=100)
    for name, count in (("old", 290), ("young", 280)):
        group = json.dumps({"name": name, "min": count})
        life.see(*(life.member(f"{name}-{n}", group, request=[{}]) for n in range(count)))
        assert life.machine.step(life.now) == []
    life.now += 20.0
    assert {name.split("-")[0] for name in bound_names(life.work())} == {"old"}


@pytest.mark.parametrize(
    ("of_group", "own", "first"), [(10, 0, "g"), (None, 10, "g"), (0, 10, "between"), (5, 10, "between")]
)
def test_room_kept_for_a_pod_is_kept_from_groups_of_no_higher_priority(
    life: Life, of_group: int | None, own: int, first: str
) -> None:
    """The priority of a PodGroup counts for its members, whatever their own is, above that of the pod or below it."""
    (running,) = fill(life, "n1", spec={"priority": 0})
    life.see(life.make_pod("between", [{}, {}], spec={"priority": 5}))
    (order,) = orders(life.work())
    life.machine.finished(order, DeleteVictimsResult(order.victims), life.now)
    life.pod_group(schedulingPolicy={"gang": {"minCount": 1}}, priority=of_group)
    life.gone(running)
    life.see(life.member("g", "", spec={"priority": own, "schedulingGroup": {"podGroupName": "train"}}))
    found = life.work(1.0)
    assert bound_names(found) == [first]
    assert orders(found) == []

"""Which group comes first: by priority and age, whatever the backoffs are and whatever a pod's owner changes."""

import json
from typing import Any

import pytest

from mooring import names
from mooring.kube.events import Identity, Removed
from scheduler.cycle.instructions import DeleteVictimsResult
from scheduler.kube.objects import Pod
from tests.scheduler.group_life import Life, annotated, binds, bound_names, fill, orders


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


@pytest.mark.parametrize("comes", ["before the room", "before parts of the room", "after the room"])
def test_the_older_of_two_groups_gets_the_room_that_both_wait_for(life: Life, comes: str) -> None:
    """The younger one has a backoff of a second at the most, and the older one of ten. A part is too small for both."""
    running = _wait_long(life, "old")
    if comes != "after the room":
        _group(life, "young")
        assert binds(life.work()) == []
    if comes == "before parts of the room":
        life.gone(running.pop())
        assert binds(life.work(1.0)) == []
    life.gone(*running)
    if comes == "after the room":
        _group(life, "young")
    found = life.work(1.0)
    if comes == "before parts of the room":
        found += life.work(1.0) + life.work(1.0)
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


# 11:00 on the day; pods are created in the hours before.
NOW = 1_767_265_200.0
GROUP = '{"name":"%s","min":%d}'


@pytest.fixture
def full(life: Life) -> Life:
    """A cluster whose only room is taken, by a pod that ends."""
    life.now = NOW
    life.nodes("n1", vfs=4)
    life.place(life.make_pod("last", [{}, {}, {}, {}]))
    return life


def _aged_member(life: Life, name: str, group: str, hour: int, **fields: Any) -> Pod:
    metadata = {"creationTimestamp": f"2026-01-01T{hour:02}:00:00Z"} | fields.pop("metadata", {})
    return life.member(name, group, metadata=metadata, **fields)


def _first_bound(life: Life) -> str:
    """End the pod that takes all room; return which group is bound."""
    (last,) = (one for one in life.machine.cache.assigned_pods() if one.pod.endswith("/last"))
    life.machine.pods(Removed(Identity("last", "default", last.uid)), life.now)
    made = [one for _ in range(8) for one in binds(life.work(2.5))]
    (group,) = {one.pod_info.pod.metadata.name.partition("-")[0] for one in made}
    return group


def _come(life: Life, name: str, count: int, hour: int) -> list[Pod]:
    """Let two members of a group come that needs so many."""
    members = [_aged_member(life, f"{name}-{number}", GROUP % (name, count), hour) for number in range(2)]
    life.see(*members)
    return members


def test_a_member_that_changes_what_it_asks_for_keeps_its_age(full: Life) -> None:
    members = _come(full, "old", 2, 3)
    _come(full, "young", 2, 5)
    full.work(1.0)
    full.see(*(annotated(one, {names.GROUP: '{"name":"old","min":2,"rails":"same"}'}) for one in members))
    assert _first_bound(full) == "old"


OURS, OTHERS = "mooring", "default-scheduler"


@pytest.mark.parametrize(
    ("started_with", "scheduler", "asks_for", "first"),
    [
        (0, OURS, 3, "old"),
        (1, OURS, 0, "old"),
        (1, OURS, 3, "old"),
        (3, OTHERS, 0, "old"),
        (3, OURS, 0, "young"),
    ],
    ids=[
        "it names the group when it has a node",
        "it was placed when less was asked for",
        "it asks for more itself when it has a node",
        "another scheduler has placed it",
        "a crash has cut its start short",
    ],
)
def test_a_pod_on_a_node_makes_a_group_urgent_only_if_a_start_of_it_was_cut_short(
    full: Life, started_with: int, scheduler: str, asks_for: int, first: str
) -> None:
    """A half group comes before older ones, and three members are asked for; a new leader finds the pod on a node."""
    group = GROUP % ("young", started_with) if started_with else ""
    lone = _aged_member(full, "runs", group, 6, request=None, node="n1", spec={"schedulerName": scheduler})
    full.see(lone)
    _come(full, "old", 2, 3)
    _come(full, "young", 3, 5)
    if asks_for:
        full.see(annotated(lone, {names.GROUP: GROUP % ("young", asks_for)}))
    assert _first_bound(full) == first


def test_nor_does_a_pod_group_that_asks_for_more_than_when_it_started(full: Life) -> None:
    named = {"schedulingGroup": {"podGroupName": "young"}}
    full.pod_group("young", schedulingPolicy={"gang": {"minCount": 1}})
    full.place(_aged_member(full, "young-0", "", 5, request=None, spec=named))
    _come(full, "old", 2, 3)
    full.pod_group("young", schedulingPolicy={"gang": {"minCount": 3}})
    full.see(*(_aged_member(full, f"young-{number}", "", 5, spec=named) for number in (1, 2)))
    assert _first_bound(full) == "old"

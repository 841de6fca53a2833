"""Groups among the victims of a pod: which of their members leave, and together with whom."""

import re
from functools import partial
from typing import Any

import pytest

from mooring.kube.events import Identity, Removed, Synced, Unreadable
from scheduler.cycle.instructions import DeleteVictimsResult, Instruction
from scheduler.kube.workload_objects import PodGroup
from tests.scheduler.cycle.groups.preemption.scene import GONE, POLICY, WHOLE, Scene, row
from tests.scheduler.group_life import Life, binds, changed, orders, told, victims

IDENTITY = Identity("train", "default")


def _in_mode(mode: Any) -> dict[str, Any]:
    return {"low": POLICY | {"disruptionMode": mode}}


for_pod = partial(row, pod=2)
LOW, LOWER = {"low": WHOLE}, {"low": WHOLE | {"priority": 1}}
# The words of both versions of the API, and an unknown one.
WHOLE_MODES: tuple[Any, ...] = ("PodGroup", {"all": {}}, "SomethingNew")
SINGLE_MODES: tuple[Any, ...] = (None, "Pod", {"single": {}})
SAYS_SO = {"min": 2, "disruption": "pod"}
CHOICES = [
    # By annotation.
    for_pod("a pod leaves before an older full group", "n1(g0~1) n2(g1~1) n3(a~9) > a", groups={"g": 2}),
    for_pod("a pod leaves before a younger full group", "n1(g0~9) n2(g1~9) n3(a~1) > a", groups={"g": 2}),
    for_pod(
        "many pods leave before a group", "n1(g0:3~9) n2(g1:3~9) n3(a:1~1+b:1~1+c:1~1) > a b c", pod=3, groups={"g": 2}
    ),
    for_pod("a group of lower priority leaves before a pod", "n1(g0) n2(g1) n3(a^5) > g0 g1", groups={"g": 2}),
    for_pod(
        "the smallest group leaves",
        "n1(g0~9) n2(g1~9) n3(g2~9) n4(few0~1) n5(few1~1) > few0 few1",
        groups={"g": 3, "few": 2},
    ),
    for_pod("a group is as important as its most important member", "n1(g0) n2(g1^10) >", groups={"g": 2}),
    for_pod("a group spares one member beyond min", "n1(g0) n2(g1) n3(g2) > g[012]", groups={"g": 2}),
    for_pod(
        "a group spares any member",
        "n1(g0) n2/r1(g1) n3/r2(g2) > g1",
        groups={"g": 2},
        spec={"nodeSelector": {"rack": "r1"}},
    ),
    for_pod("a node with too many members loses all", "n1(g0:1+g1:1) n2:1(g2:1) > g0 g1 g2", groups={"g": 2}),
    for_pod(
        "members leave one by one if all say so", "n1(g0) n2(g1) > g[01]", groups={"g": {"min": 2, "disruption": "pod"}}
    ),
    for_pod("members leave together if one says so", "n1(g0) n2(g1) > g0 g1", groups={"g": 2, "g0": SAYS_SO}),
    for_pod("the largest min of members counts", "n1(g0) n2(g1) n3(g2) > g0 g1 g2", groups={"g": 2, "g0": 3}),
    # By PodGroup.
    *(
        for_pod(f"members leave together in mode {mode}", "n1(low0) n2(low1) > low0 low1", pod_groups=_in_mode(mode))
        for mode in WHOLE_MODES
    ),
    *(
        for_pod(
            f"members leave one by one before a full group in mode {mode}",
            "n1(g0~9) n2(g1~9) n3(low0~1) n4(low1~1) > low[01]",
            groups={"g": 2},
            pod_groups=_in_mode(mode),
        )
        for mode in SINGLE_MODES
    ),
    for_pod(
        "a PodGroup's lower priority makes its pods victims", "n1(low0^50) n2(low1^50) > low0 low1", pod_groups=LOWER
    ),
    for_pod("a PodGroup is one victim", "n1(low0) n2(low1) n3(low2) n4(a:1+b:1) > low0 low1 low2", pod_groups=LOW),
    for_pod(
        "the budgets of all members count", "n1(low0) n2(low1) n3(a:1+b:1) > a b", pod_groups=LOW, budgets={"low": 1}
    ),
    for_pod("a PodGroup stays if another pod is enough", "n1(low0:1+low1:1+a) > a", pod_groups=LOW),
    for_pod(
        "a PodGroup leaves if another pod is not enough", "n1(low0:1+low1:1+a) > a low0 low1", pod=3, pod_groups=LOW
    ),
]


@pytest.mark.parametrize(("scene", "expected"), CHOICES)
def test_the_victims_of_a_pod(life: Life, scene: Scene, expected: str) -> None:
    assert re.fullmatch(expected, " ".join(victims(scene.play(life))))


def _come(life: Life, name: str, priority: int = 10) -> list[Instruction]:
    life.see(life.make_pod(name, [{}, {}], spec={"priority": priority}))
    return life.work(15.0)


def test_members_beyond_min_leave_one_by_one(life: Life) -> None:
    """Two of them, as pods without a group do: those that started last first. After that the whole group leaves."""
    nodes = " ".join(f"n{number}(g{number}~{1 if number < 4 else 10})" for number in range(6))
    Scene(nodes, groups={"g": 4}).show(life)
    # Orders that are not carried out yet count.
    first, second = (victims(_come(life, name)) for name in ("u1", "u2"))
    assert sorted([first, second]) == [["g4"], ["g5"]]
    assert victims(_come(life, "u3")) == ["g0", "g1", "g2", "g3"]


def test_a_group_can_spare_a_member_again_after_a_rejected_order(life: Life) -> None:
    Scene("n1(g0) n2(g1) n3(g2)", groups={"g": 2}).show(life)
    (order,) = orders(_come(life, "u1"))
    life.machine.finished(order, DeleteVictimsResult((), "no"), life.now)
    life.gone(order.pod)
    assert len(victims(_come(life, "u2"))) == 1


def test_members_that_are_fewer_than_min_leave_together(life: Life) -> None:
    """A member is lost. A pod without a group still leaves before the others."""
    pods = Scene("n1(g0) n2(g1) n3(g2) n4(a)", groups={"g": 3}).show(life)
    life.remove_node("n1")
    life.gone(pods["g0"])
    assert victims(_come(life, "u1")) == ["a"]
    assert victims(_come(life, "u2")) == ["g1", "g2"]


@pytest.mark.parametrize("scheduler", ["mooring", "default-scheduler"])
def test_a_pod_group_whose_priority_is_not_lower_stays(life: Life, scheduler: str) -> None:
    """The priority of its pods is lower, but does not count. Neither does the scheduler that placed them."""
    groups, specs = {"low": WHOLE | {"priority": 10}}, {"low0": {"schedulerName": scheduler}}
    instructions = Scene("n1(low0)", pod=2, pod_groups=groups, specs=specs).play(life)
    assert victims(instructions) == []
    assert "No preemption victims found for incoming pod" in told(instructions)["m0"]
    life.pod_group("low", **WHOLE)
    assert victims(life.work(15.0)) == ["low0"]


def test_nobody_leaves_while_a_member_of_a_pod_group_is_being_deleted(life: Life) -> None:
    scene = Scene("n1(low0) n2(low1)", pod=2, pod_groups={"low": WHOLE})
    life.see(changed(scene.show(life)["low0"], metadata=GONE))
    scene.come(life)
    assert victims(life.work()) == []


@pytest.mark.parametrize("event", [Removed(IDENTITY), Synced(()), None])
def test_a_pod_is_decided_about_again_when_members_may_leave_one_by_one(life: Life, event: Any) -> None:
    """Only the group's PodGroup changes: it is removed, missing in a new list, or without its mode and priority."""
    scene = Scene("n1(train0) n2(train1)", pod=2, pod_groups={"train": WHOLE | {"priority": 10}})
    assert victims(scene.play(life)) == []
    if event is None:
        life.pod_group(**POLICY)
    else:
        life.machine.handle(PodGroup, event, life.now)
    assert len(victims(life.work(15.0))) == 1


def test_members_of_a_pod_group_that_cannot_be_read_leave_as_a_whole(life: Life) -> None:
    """It might say so."""
    scene = Scene("n1(train0) n2(train1)", pod=2, pod_groups={"train": POLICY})
    scene.show(life)
    life.machine.handle(PodGroup, Unreadable(IDENTITY, "no object"), life.now)
    scene.come(life)
    assert len(victims(life.work())) == 2


def test_a_change_of_the_disruption_mode_alone_ends_a_contradiction(life: Life) -> None:
    """Members whose annotation contradicts their PodGroup start once only that field of it is corrected."""
    life.pod_group(**POLICY)
    life.nodes("n1", "n2")
    life.members(2, '{"disruption":"group"}', spec={"schedulingGroup": {"podGroupName": "train"}})
    assert binds(life.work()) == []
    life.pod_group(**WHOLE)
    assert len(binds(life.work(1.0))) == 2

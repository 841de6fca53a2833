"""Preemption of groups: one that may only be disrupted as a whole goes as a whole, or nobody of it goes."""

from typing import Any

import msgspec
import pytest

from mooring.kube.events import Changed, Identity, Removed, Synced, Unreadable
from scheduler.cycle.instructions import DeleteVictims, Instruction
from scheduler.kube.objects import Pod
from scheduler.kube.selecting_objects import PodDisruptionBudget
from scheduler.kube.workload_objects import PodGroup
from scheduler.state.machine import Machine
from tests.scheduler.group_life import Life, MakeNode, MakePf, MakePod, binds, changed, told

POLICY: dict[str, Any] = {"schedulingPolicy": {"gang": {"minCount": 2}}}
WHOLE = POLICY | {"disruptionMode": "PodGroup"}
OF_TRAIN = {"schedulingGroup": {"podGroupName": "train"}}


@pytest.fixture
def life(machine: Machine, make_node: MakeNode, make_pf: MakePf, make_pod: MakePod) -> Life:
    return Life(machine, make_node, make_pf, make_pod)


def _train(life: Life) -> list[Pod]:
    """Bind a group of two that has two nodes to itself."""
    life.nodes("n1", "n2")
    life.see(*(life.member(f"m{number}", group="", spec=OF_TRAIN) for number in range(2)))
    placed = binds(life.work())
    assert len(placed) == 2
    return life.bound(*placed)


def _rival(life: Life, name: str = "rival") -> list[Instruction]:
    life.see(life.make_pod(name, [{}, {}], spec={"priority": 10}))
    return life.work()


def _victims(instructions: list[Instruction]) -> list[str]:
    return [one.pod for order in instructions if isinstance(order, DeleteVictims) for one in order.victims]


@pytest.mark.parametrize("mode", ["PodGroup", {"all": {}}, "SomethingNew"])
def test_a_group_that_is_disrupted_as_a_whole_goes_as_a_whole(life: Life, mode: object) -> None:
    """All members are deleted in one order, also those on other nodes; in both versions' words, and in unknown ones."""
    life.pod_group(**POLICY)
    _train(life)
    life.pod_group(**POLICY, disruptionMode=mode)
    assert sorted(_victims(_rival(life))) == ["default/m0", "default/m1"]


def test_a_group_whose_priority_is_not_lower_stays(life: Life) -> None:
    """Its PodGroup's priority counts, and not that of its pods, which is lower."""
    life.pod_group(**WHOLE, priority=10)
    _train(life)
    instructions = _rival(life)
    assert _victims(instructions) == []
    assert "No preemption victims found for incoming pod" in told(instructions)["rival"]


def test_a_group_counts_as_one_victim(life: Life) -> None:
    """Two pods on the one node, or three of a group with a member on the other: the group is fewer victims."""
    life.pod_group(schedulingPolicy={"gang": {"minCount": 3}}, disruptionMode="PodGroup")
    life.nodes("n1", "n3", "n4")
    life.see(*(life.member(f"m{number}", group="", spec=OF_TRAIN) for number in range(3)))
    life.bound(*binds(life.work()))
    life.nodes("n2")
    life.see(life.make_pod("s0", [{}]), life.make_pod("s1", [{}]))
    life.bound(*binds(life.work()))
    assert sorted(_victims(_rival(life))) == ["default/m0", "default/m1", "default/m2"]


def test_the_budgets_of_all_members_count(life: Life) -> None:
    """A budget that protects a member on another node makes the group the worse victim."""
    life.pod_group(**WHOLE)
    life.nodes("n1", "n2")
    one, other = (life.member(f"m{number}", group="", spec=OF_TRAIN) for number in range(2))
    life.see(changed(one, metadata={"labels": {"app": "kept"}}), changed(other, metadata={"labels": {"app": "kept"}}))
    life.bound(*binds(life.work()))
    life.nodes("n3")
    life.see(life.make_pod("s0", [{}]), life.make_pod("s1", [{}]))
    life.bound(*binds(life.work()))
    budget: dict[str, Any] = {
        "metadata": {"name": "kept", "namespace": "default"},
        "spec": {"selector": {"matchLabels": {"app": "kept"}}},
        "status": {"disruptionsAllowed": 1},
    }
    item = msgspec.convert(budget, PodDisruptionBudget)
    life.machine.handle(PodDisruptionBudget, Changed(Identity("kept", "default"), item), life.now)
    assert sorted(_victims(_rival(life))) == ["default/s0", "default/s1"]


@pytest.mark.parametrize("mode", [None, "Pod", {"single": {}}])
def test_members_of_other_groups_are_preempted_one_by_one(life: Life, mode: object) -> None:
    life.pod_group(**POLICY, disruptionMode=mode)
    _train(life)
    assert len(_victims(_rival(life))) == 1


def test_another_pod_of_the_node_is_the_victim_if_that_is_enough(life: Life) -> None:
    """A node has members of a group and a pod on its own: the group goes only where it must."""
    life.pod_group(**WHOLE)
    life.nodes("n1", vfs=4)
    life.see(*(life.member(f"m{number}", group="", request=[{}], spec=OF_TRAIN) for number in range(2)))
    life.bound(*binds(life.work()))
    life.see(life.make_pod("alone", [{}, {}]))
    life.bound(*binds(life.work()))
    assert _victims(_rival(life)) == ["default/alone"]
    life.see(life.make_pod("large", [{}, {}, {}], spec={"priority": 11}))
    assert sorted(_victims(life.work())) == ["default/alone", "default/m0", "default/m1"]


def test_a_member_that_is_being_deleted_is_waited_for(life: Life) -> None:
    """It goes anyway, and nobody is deleted for the sake of the pod."""
    life.pod_group(**WHOLE)
    first, _ = _train(life)
    life.see(changed(first, metadata={"deletionTimestamp": "2026-01-01T00:00:00Z"}))
    instructions = _rival(life)
    assert _victims(instructions) == []


@pytest.mark.parametrize("how", ["removed", "relisted", "changed"])
def test_a_pod_comes_again_when_members_may_go_one_by_one(life: Life, how: str) -> None:
    """Nothing of the nodes changes, but the group's PodGroup does."""
    life.pod_group(**WHOLE, priority=10)
    _train(life)
    assert _victims(_rival(life)) == []
    if how == "removed":
        life.machine.handle(PodGroup, Removed(Identity("train", "default")), life.now)
    elif how == "relisted":
        life.machine.handle(PodGroup, Synced(()), life.now)
    else:
        life.pod_group(**POLICY)
    assert len(_victims(life.work(15.0))) == 1


def test_members_of_a_pod_group_that_cannot_be_read_go_as_a_whole(life: Life) -> None:
    """It might say so."""
    life.pod_group(**POLICY)
    _train(life)
    life.machine.handle(PodGroup, Unreadable(Identity("train", "default"), "no object"), life.now)
    assert len(_victims(_rival(life))) == 2


def test_the_priority_of_a_group_bound_by_another_scheduler_counts_too(life: Life) -> None:
    """What its PodGroup says holds whoever placed it."""
    life.pod_group(**WHOLE, priority=10)
    life.nodes("n1", allocatable={"cpu": "2", "pods": "10"})
    requests = {"containers": [{"name": "c", "resources": {"requests": {"cpu": "2"}}}]}
    foreign = life.make_pod(
        "foreign", None, node="n1", spec={**OF_TRAIN, **requests, "schedulerName": "default-scheduler"}
    )
    life.see(foreign)
    life.see(life.make_pod("rival", None, spec={"priority": 10, **requests}))
    assert _victims(life.work()) == []
    life.pod_group(**WHOLE)
    assert _victims(life.work(15.0)) == ["default/foreign"]


def test_a_change_of_the_disruption_mode_alone_ends_a_contradiction(life: Life) -> None:
    """Members whose annotation contradicts their PodGroup start once only that field of it is corrected."""
    life.pod_group(**POLICY)
    life.nodes("n1", "n2")
    life.see(*(life.member(f"m{number}", group='{"disruption":"group"}', spec=OF_TRAIN) for number in range(2)))
    assert binds(life.work()) == []
    life.pod_group(**WHOLE)
    assert len(binds(life.work(1.0))) == 2

"""Preemption beside groups: members of one that may only be disrupted as a whole are nobody's single victims."""

from typing import Any

import pytest

from mooring.kube.events import Identity, Removed, Synced, Unreadable
from scheduler.cycle.instructions import DeleteVictims, Instruction
from scheduler.kube.objects import Pod
from scheduler.kube.pod_groups import PodGroup
from scheduler.state.machine import Machine
from tests.scheduler.state.groups.life import Life, MakeNode, MakePf, MakePod, binds, changed, told

ONLY_TOGETHER = "node(s) had pods of a group that may only be disrupted as a whole"
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
def test_a_member_of_a_group_that_is_disrupted_as_a_whole_is_not_a_victim(life: Life, mode: object) -> None:
    """The pod that would need its room is told why; it is the same in both versions' words, and in unknown ones."""
    life.pod_group(**POLICY)
    _train(life)
    life.pod_group(**POLICY, disruptionMode=mode)
    instructions = _rival(life)
    assert _victims(instructions) == []
    message = (
        f"0/2 nodes are available: 2 not enough free RDMA VFs. preemption: 0/2 nodes are available: 2 {ONLY_TOGETHER}."
    )
    assert told(instructions) == {"rival": message}


@pytest.mark.parametrize("mode", [None, "Pod", {"single": {}}])
def test_members_of_other_groups_are_preempted_one_by_one(life: Life, mode: object) -> None:
    life.pod_group(**POLICY, disruptionMode=mode)
    _train(life)
    assert len(_victims(_rival(life))) == 1


def test_another_pod_of_the_node_is_the_victim_if_that_is_enough(life: Life) -> None:
    """A node has a spared member and a pod on its own: only the latter goes, and only where it makes enough room."""
    life.pod_group(**WHOLE)
    life.nodes("n1", vfs=4)
    life.see(*(life.member(f"m{number}", group="", request=[{}], spec=OF_TRAIN) for number in range(2)))
    life.bound(*binds(life.work()))
    life.see(life.make_pod("alone", [{}, {}]))
    life.bound(*binds(life.work()))
    life.see(life.make_pod("large", [{}, {}, {}], spec={"priority": 10}))
    assert told(life.work())["large"].endswith(f"preemption: 0/1 nodes are available: 1 {ONLY_TOGETHER}.")
    assert _victims(_rival(life)) == ["default/alone"]


def test_a_member_that_is_being_deleted_is_waited_for(life: Life) -> None:
    """It goes anyway, and nobody is deleted for the sake of the pod."""
    life.pod_group(**WHOLE)
    first, _ = _train(life)
    life.see(changed(first, metadata={"deletionTimestamp": "2026-01-01T00:00:00Z"}))
    instructions = _rival(life)
    assert _victims(instructions) == []
    assert ONLY_TOGETHER not in told(instructions)["rival"]


@pytest.mark.parametrize("how", ["removed", "relisted", "changed"])
def test_a_pod_comes_again_when_members_are_spared_no_longer(life: Life, how: str) -> None:
    """Nothing of the nodes changes, but the group's PodGroup does."""
    life.pod_group(**WHOLE)
    _train(life)
    assert _victims(_rival(life)) == []
    if how == "removed":
        life.machine.see(PodGroup, Removed(Identity("train", "default")), life.now)
    elif how == "relisted":
        life.machine.see(PodGroup, Synced(()), life.now)
    else:
        life.pod_group(**POLICY)
    assert len(_victims(life.work(15.0))) == 1


def test_members_of_a_pod_group_that_cannot_be_read_are_spared(life: Life) -> None:
    """It might say so."""
    life.pod_group(**POLICY)
    _train(life)
    life.machine.see(PodGroup, Unreadable(Identity("train", "default"), "no object"), life.now)
    assert _victims(_rival(life)) == []


def test_a_group_bound_by_another_scheduler_is_spared_too(life: Life) -> None:
    """What its PodGroup says holds whoever placed it."""
    life.pod_group(**WHOLE)
    life.nodes("n1", allocatable={"cpu": "2", "pods": "10"})
    requests = {"containers": [{"name": "c", "resources": {"requests": {"cpu": "2"}}}]}
    foreign = life.make_pod(
        "foreign", None, node="n1", spec={**OF_TRAIN, **requests, "schedulerName": "default-scheduler"}
    )
    life.see(foreign)
    life.see(life.make_pod("rival", None, spec={"priority": 10, **requests}))
    instructions = life.work()
    assert _victims(instructions) == []
    assert ONLY_TOGETHER in told(instructions)["rival"]

"""What happens after a group's victims are chosen: its members are nominated, wait, and start together."""

from collections.abc import Sequence
from typing import Any

from mooring.annotations.inventory import HELD_BY, Out
from mooring.indexes import Indexes
from mooring.kube.events import Identity, Removed
from scheduler.cycle.instructions import DeleteVictimsResult, Instruction, Report
from scheduler.cycle.preemption.preemption import VF_PATIENCE_S
from scheduler.kube.objects import Pod
from scheduler.kube.workload_objects import PodGroup
from tests.scheduler.cycle.groups.preemption.scene import GONE, POLICY, Scene
from tests.scheduler.group_life import Life, bound_names, changed, kept_on, orders, told, victims


def _preempt(life: Life, nodes: str = "n1:a n2:b", **fields: Any) -> tuple[list[Pod], list[Pod], list[Instruction]]:
    """Let a group preempt two pods; return these, the members, and what is decided."""
    scene = Scene(nodes, **fields)
    pods, members = scene.show(life), scene.come(life)
    instructions = life.work()
    gone = [pods[name] for name in victims(instructions)]
    assert len(gone) == len(life.machine.reservations) == 2
    return gone, members, instructions


def _hold_vf(life: Life, pod: Pod) -> str:
    """Show the node of a pod with a VF that it holds; return the node's name."""
    node, held = pod.spec.node_name or "", Out(Indexes.of([0]), f"{HELD_BY}{pod.metadata.uid}")
    life.show_node(node, life.make_pf(vfs=2, out=(held,)))
    return node


def _nothing_happens(instructions: Sequence[Instruction]) -> bool:
    return (victims(instructions), bound_names(instructions)) == ([], [])


def test_members_start_together_when_all_victims_have_left(life: Life) -> None:
    """The victims are deleted in one order."""
    gone, _, instructions = _preempt(life)
    assert len(orders(instructions)) == 1
    assert kept_on(life) == ["n1", "n2"]
    life.gone(gone[0])
    assert _nothing_happens(life.work(15.0))
    life.gone(gone[1])
    assert bound_names(life.work(15.0)) == ["m0", "m1"]
    assert len(life.machine.reservations) == 0


def test_no_further_pods_leave_while_victims_terminate(life: Life) -> None:
    """Others could."""
    gone, _, _ = _preempt(life, "n1:a n2:b n3:c n4:d")
    life.see(*(changed(pod, metadata=GONE) for pod in gone))
    life.gone(gone[0])
    assert all(_nothing_happens(life.work(20.0)) for _ in range(5))
    life.gone(gone[1])
    assert bound_names(life.work(20.0)) == ["m0", "m1"]


def test_a_more_important_pod_takes_the_room(life: Life) -> None:
    """All nominations of the group end; no pod leaves that does not help all of it."""
    gone, _, _ = _preempt(life)
    life.see(life.make_pod("urgent", [{}, {}], spec={"priority": 99}))
    life.gone(gone[0])
    assert [pod.metadata.name for pod in life.place()] == ["urgent"]
    assert _nothing_happens(life.work(30.0))
    life.gone(gone[1])
    assert _nothing_happens(life.work(30.0))
    assert len(life.machine.reservations) == 0


def test_a_less_important_pod_does_not_take_the_room(life: Life) -> None:
    """The room that one victim leaves is reserved until the last one has left, and the whole group fits."""
    gone, _, _ = _preempt(life)
    life.see(life.make_pod("single", [{}, {}], spec={"priority": 9}))
    life.gone(gone[0])
    assert _nothing_happens(life.work(15.0))
    life.gone(gone[1])
    assert bound_names(life.work(15.0)) == ["m0", "m1"]


def test_all_nominations_end_if_a_victim_cannot_be_deleted(life: Life) -> None:
    """Another attempt follows although nothing happens that could help."""
    _, _, instructions = _preempt(life)
    (order,) = orders(instructions)
    reports = life.machine.finished(order, DeleteVictimsResult((), "forbidden"), life.now)
    assert len(life.machine.reservations) == 0
    assert told(reports) == {}
    assert life.machine.next_due() == 0.0
    why = "the API server rejected the preemption: forbidden"
    assert told(life.machine.tick(life.now)) == {"m0": why, "m1": why}
    assert victims(life.work()) == []
    assert len(victims(life.work(15.0))) == 2


def test_all_nominations_end_if_a_member_is_deleted_and_not_created_again(life: Life) -> None:
    _, members, _ = _preempt(life)
    life.gone(members[0])
    life.work(29.0)
    assert len(life.machine.reservations) == 2
    life.work(30.0)
    assert len(life.machine.reservations) == 0


def test_no_room_is_reserved_for_a_group_without_its_pod_group(life: Life) -> None:
    _preempt(life, own=POLICY | {"priority": 10})
    life.machine.handle(PodGroup, Removed(Identity("train", "default")), life.now)
    life.work(30.0)
    assert len(life.machine.reservations) == 0


def test_the_event_of_each_victim_names_its_own_node(life: Life) -> None:
    _, _, instructions = _preempt(life)
    (order,) = orders(instructions)
    reports = life.machine.finished(order, DeleteVictimsResult(order.victims), life.now)
    nodes = {one.pod.metadata.name: one.message.rpartition(" ")[2] for one in reports if isinstance(one, Report)}
    assert nodes == {"a": "n1", "b": "n2"}


# VFs that a node has not released yet.


def test_a_group_waits_for_vfs_of_its_victims_but_not_for_ever(life: Life) -> None:
    """No other pod leaves until the time is over."""
    gone, _, _ = _preempt(life, "n1:a n2:b n3:c n4:d")
    node = _hold_vf(life, gone[0])
    life.gone(*gone)
    assert _nothing_happens(life.work(15.0))
    assert len(life.machine.reservations) == 2
    later = life.work(VF_PATIENCE_S + 1.0) + life.work(15.0)
    assert len(victims(later)) == 1
    assert node not in kept_on(life)


def test_a_new_leader_waits_for_vfs_of_pods_that_the_old_one_preempted(life: Life) -> None:
    scene = Scene("n1:a n2:b n3:c n4:d")
    pods = scene.show(life)
    gone = [pods["a"], pods["b"]]
    life.see(*(changed(pod, metadata=GONE) for pod in gone))
    scene.come(life)
    assert victims(life.work()) == []
    node = _hold_vf(life, gone[0])
    life.gone(*gone)
    assert _nothing_happens(life.work(15.0))
    life.nodes(node)
    assert bound_names(life.work(15.0)) == ["m0", "m1"]


def test_a_wait_for_vfs_that_is_over_makes_nothing_due(life: Life) -> None:
    """The VFs are released, and the group was not decided about since."""
    gone, _, _ = _preempt(life)
    node = _hold_vf(life, gone[0])
    life.gone(*gone)
    life.work(15.0)
    assert life.machine.reservations.next_due() is not None
    life.nodes(node)
    life.machine.tick(life.now + VF_PATIENCE_S + 1.0)
    assert life.machine.reservations.next_due() is None
    assert len(life.machine.reservations) == 2

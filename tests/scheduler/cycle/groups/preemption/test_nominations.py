"""What happens after a group's victims are chosen: its members are nominated, wait, and start together."""

from scheduler.cycle.instructions import DeleteVictimsResult, Report
from scheduler.cycle.preemption.preemption import VF_PATIENCE_S
from tests.scheduler.group_life import orders, told
from tests.scheduler.group_scene import GroupScene
from tests.scheduler.story import play, stories

# The group preempts all pods, or two of four.
FULL = "nodes n1 n2 | put a b cpu=1 | group pair-0..1 priority=10 | wait 0"
COME = "group pair-0..1 priority=10 | wait 0 | victims a b | kept n1 n2"
ALL = f"nodes n1 n2 | put a b cpu=1 | {COME}"
TWO = f"nodes n1 n2 | put a b | nodes n3 n4 | put c priority=5 | put d priority=6 | {COME}"


@stories(
    {
        "members start together when all victims have left": f"""
            {ALL} | delete a | wait 15 | victims | delete b | wait 15 > pair-0..1 | kept""",
        "no further pods leave while victims terminate": f"""
            {TWO} | terminate a b | delete a | wait 20 20 20 20 20 | victims | delete b | wait 20 > pair-0..1""",
        "a more important pod takes the room, and all nominations end": f"""
            {ALL} | come urgent priority=99 | delete a | wait 1 > urgent | wait 30 | victims | delete b | wait 30 |
            kept""",
        # The priority of the group's PodGroup decides, not that of its pods.
        "a less important pod does not take the room": """
            gang train 2 priority=10 | nodes n1 n2 | put a b | group train-0..1 kind=PodGroup priority=5 | wait 0 |
            victims a b | come single priority=9 | delete a | wait 15 | victims | delete b | wait 15 > train-0..1""",
        # No filter but that of cpu has rejected the node.
        "pods leave as soon as their node has enough VFs": """
            nodes n1 vfs=1 cpu=2 | put a vfs=0 cpu=2 | group train-0 cpu=2 priority=10 | wait 0 | victims | nodes n1
            vfs=2 cpu=2 | wait 15 | victims a""",
        "all nominations end at once with the last member": f"{ALL} | delete pair-0..1 | kept",
        "all nominations end if a member is deleted and not created again": f"""
            {ALL} | delete pair-0 | wait 29 | kept n1 n2 | wait 30 | kept""",
        "no room is reserved for a group without its PodGroup": """
            gang train 2 priority=10 | nodes n1 n2 | put a b | group train-0..1 kind=PodGroup | wait 0 | victims a b |
            kept n1 n2 | gang train | wait 30 | kept""",
        # After that no pod leaves on the node that does not release them.
        "a group waits for VFs of its victims, but not for ever": f"""
            nodes n1 vfs=3 | put a | put x vfs=1 priority=3 | nodes n2 | put b | nodes n3 | put c priority=5 | group
            pair-0..1 priority=10 | wait 0 | victims a b | nodes n1 vfs=3 held=1 | delete a b | wait 15 | victims | kept
            n1 n2 | wait {VF_PATIENCE_S + 1} 15 | victims c | kept n2 c""",
        "a new leader waits for VFs of pods that the old one preempted": """
            nodes n1 n2 | put a b | terminate a b | nodes n3 n4 | put c d | group pair-0..1 priority=10 | wait 0 |
            victims | nodes n1 held=1 | delete a b | wait 15 | victims | nodes n1 | wait 15 > pair-0..1""",
        "a new leader takes the room of a pod that is being deleted already": """
            nodes n1 n2 n3 | put a | put b priority=5 | put c priority=6 | terminate c | group pair-0..1 priority=10 |
            wait 0 | victims a | kept a c""",
        # The priority of the group's PodGroup decides, not that of its pods.
        "room of a nominated pod above a group does not count for it": """
            nodes n1 n2 | put a | put b priority=5 | come above priority=50 | wait 0 | victims a | gang train 2
            priority=10 | group train-0..1 kind=PodGroup priority=100 | wait 0 | victims""",
    }
)
def test_the_life_of_nominations(scene: GroupScene, story: str) -> None:
    play(scene, story)


def test_a_wait_for_vfs_that_is_over_makes_nothing_due(scene: GroupScene) -> None:
    """The VFs are released, and the group was not decided about since."""
    play(scene, f"{ALL} | nodes n1 held=1 | delete a b | wait 15")
    assert scene.machine.reservations.next_due() is not None
    play(scene, "nodes n1")
    scene.machine.tick(scene.now + VF_PATIENCE_S + 1.0)
    assert scene.machine.reservations.next_due() is None
    play(scene, "kept n1 n2")


def test_all_nominations_end_if_a_victim_cannot_be_deleted(scene: GroupScene) -> None:
    """Another attempt follows although nothing happens that could help."""
    play(scene, FULL)
    (order,) = orders(scene.found)
    reports = scene.machine.finished(order, DeleteVictimsResult((), "forbidden"), scene.now)
    play(scene, "kept")
    assert told(reports) == {}
    assert scene.machine.next_due() == 0.0
    why = "the API server rejected the preemption: forbidden"
    assert told(scene.machine.tick(scene.now)) == {"pair-0": why, "pair-1": why}
    play(scene, "wait 0 | victims | wait 15 | victims a b")


def test_the_event_of_each_victim_names_its_own_node(scene: GroupScene) -> None:
    """All are deleted in one order."""
    play(scene, FULL)
    (order,) = orders(scene.found)
    reports = scene.machine.finished(order, DeleteVictimsResult(order.victims), scene.now)
    nodes = {one.pod.metadata.name: one.message.rpartition(" ")[2] for one in reports if isinstance(one, Report)}
    assert nodes == {name: scene.node_of(name) for name in "ab"}

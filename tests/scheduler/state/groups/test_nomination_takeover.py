"""Room that is kept for a group: by a new leader until it has decided, and for a member that moves meanwhile."""

import gc
import time

from scheduler.cycle.preemption.preemption import VF_PATIENCE_S
from tests.scheduler.conftest import MakeScene
from tests.scheduler.group_life import changed
from tests.scheduler.group_scene import GroupScene
from tests.scheduler.story import play, stories

PAIR = "group pair-0:n1 pair-1:n2 priority=10"
OLDER = "come older priority=10 preemptionPolicy=Never"
# n1 holds VFs of a victim that the new leader never saw, n2 is free, and others are full.
HELD = "fill n3 n4 | nodes n2 | nodes n1 held=1"
STILL_KEPT = "wait 15 | victims | kept pair-0:n1 pair-1:n2"
SINGLE_KEPT = "wait 15 | victims | kept single:n1"
# The group has been decided about by this leader.
DECIDED = "fill n1 n2 | nodes n3 vfs=0 | group pair-0..1 priority=10 | wait 0 | victims on-n1 on-n2"
PREEMPTED = {"conditions": [{"type": "DisruptionTarget", "status": "True", "reason": "PreemptionByScheduler"}]}


class Takeover(GroupScene):
    """A scene in which the last leader has preempted pods."""

    def leave(self, *pods: str) -> None:
        self.show(*(changed(self.pods[name], status=PREEMPTED) for name in pods))
        self.terminate(*pods)


@stories(
    {
        # The victims are gone when it reads the cluster.
        "from an older pod": f"""
            fill n1 n2 | {OLDER} | wait 0 | WAITER | wait 0 | victims on-n1 on-n2 | delete on-n1 on-n2 | lead | wait 1 >
            pair-0..1""",
        "until the last victim is gone": f"""
            fill n1..4 | {OLDER} | wait 0 | leave on-n1 on-n2 | {PAIR} | wait 1 | victims | delete on-n1 | {STILL_KEPT}
            | delete on-n2 | wait 15 > pair-0..1""",
        "while a node still holds VFs of victims": f"""
            {HELD} | {PAIR} | {STILL_KEPT} | {STILL_KEPT} | {STILL_KEPT} | nodes n1 | wait 15 > pair-0..1""",
        "for a single pod while a node still holds VFs of a victim": f"""
            {HELD} | lose n2 | come single:n1 priority=10 | {SINGLE_KEPT} | {SINGLE_KEPT} | {SINGLE_KEPT} | nodes n1 |
            wait 15 > single""",
        # Another attempt does not prolong it.
        "but not for ever if VFs do not come back": f"""
            {HELD} | {PAIR} | {STILL_KEPT} | nodes n5 vfs=0 | {STILL_KEPT} | wait {VF_PATIENCE_S - 14} | victims on-n4 |
            kept pair-0:n2 pair-1:n4""",
        # Another scheduler preempts it there: its VFs may take as long.
        "as long again if a further pod leaves meanwhile": f"""
            fill n3 | nodes n1 held=1 | come low@n1 vfs=0 | ALONE | {SINGLE_KEPT} | leave low | nodes n5 vfs=0 |
            {SINGLE_KEPT} | wait {VF_PATIENCE_S} | kept single:n1 | delete low | nodes n6 vfs=0 | {SINGLE_KEPT} | wait
            {VF_PATIENCE_S - 1} | kept single:n1 | wait 1 | victims on-n3""",
        # The room of the others was not written, or there was none. The decision finds none for all, and ends it.
        "for some members, until the decision": """
            fill n1 priority=10 | nodes n2 | come older priority=10 | group pair-0:n2 pair-1 priority=10 | steps 1 |
            kept pair-0:n2 | wait 0 | kept | wait 15 > older""",
        # It may be made again.
        "for half a minute if a member is missing": """
            nodes n1 n2 | group train-0:n1 train-1:n2 train-2 priority=10 | MISSING | come other vfs=1 | wait 29 | kept
            train-0:n1 train-1:n2 | wait 15 > other | kept""",
        "with other VFs for each pod of a node": """
            nodes n1 vfs=4 | come older vfs=1 | come single:n1 | group pair-0:n1 pair-1:n1 vfs=1 | wait 0 > pair-0..1
            single""",
        "though a less important pod names the node too": f"""
            nodes n1 n2 | come older priority=10 | come low:n1 priority=5 | {PAIR} | wait 0 > pair-0..1""",
        "where the last leader writes it late": f"nodes n1..3 | {PAIR} | steps 1 | LATE | kept_vfs 2",
        "against pods of lower priority than the PodGroup": f"""
            nodes n1 n2 | {OLDER} | {PAIR} priority=1 kind=PodGroup | gang pair 2 priority=10 | wait 0 > pair-0..1""",
        "not against pods of higher priority than the PodGroup": f"""
            nodes n1 n2 | {OLDER} priority=9 | {PAIR} priority=99 preemptionPolicy=Never kind=PodGroup | gang pair 2
            priority=8 | wait 0 > older""",
        "not for members that contradict each other": """
            nodes n1 n2 | group pair-0:n1 min=2 | group pair-1:n2 min=1 | quiet 0 | kept""",
        # Counted twice in a dry run it would leave VFs claimed for ever, as the machine's check shows.
        "of a member that moves to another group only once": """
            nodes n1 vfs=4 | put running vfs=4 | MOVES | wait 0 | victims running | group other-0 min=2 priority=10
            created=0 | change first-0 group=other | wait 1 | victims running | kept first-0:n1 other-0:n1""",
        # Others may write the status of a pod.
        "not for a pod that was tried before": """
            nodes n1 vfs=1 | come single | wait 0 | change single nominated=n1 | wait 0 | kept""",
        "as before if the status of a later member names a node": f"""
            {DECIDED} | kept pair-0:n1 pair-1:n2 | come pair-2:n3 group=pair | wait 0 | kept pair-0:n1 pair-1:n2""",
    },
    WAITER={"a group": "group pair-0..1 priority=10", "single pods": "come pair-0..1 priority=10"},
    ALONE={
        "a single pod": "come single:n1 priority=10",
        "a group": "group single:n1 name=alone min=1 priority=10",
    },
    MOVES={"from a group": "group first-0..1 min=1 priority=10", "from none": "come first-0 priority=10"},
    MISSING={"deleted before": "delete train-2 | steps 1", "deleted after it was seen": "steps 1 | delete train-2"},
    LATE={
        "another node": "change pair-0 nominated=n3 | steps 1 | kept pair-0:n3 pair-1:n2",
        "none": "change pair-0 nominated= | steps 1 | kept pair-1:n2",
        "none at all": "change pair-0..1 nominated= | steps 1 | kept",
        "a node that is gone": "change pair-0 nominated=gone | steps 1 | kept pair-1:n2",
    },
)
def test_a_new_leader_keeps_room(make_scene: MakeScene, story: str) -> None:
    play(make_scene(Takeover), story)


def test_vfs_are_kept_on_the_rails_of_a_group(scene: GroupScene) -> None:
    """Interface k on the k-th network, though both would fit on the first."""
    for node in ("n1", "n2"):
        scene.show_node(node, *(scene.make_pf(rail, vfs=2 - rail, network=f"rail{rail}") for rail in range(2)))
    scene.see(scene.make_pod("older", [{"network": "rail1"}], spec={"priority": 10}))
    play(scene, f"{PAIR} rails=index | wait 0 > pair-0..1")


def test_the_room_of_a_group_with_first_call_stays_its_own(make_scene: MakeScene) -> None:
    """A standby that has seen the group wait for long enough gives it first call at once."""
    story = "nodes n1 | come older | group pair-0:n1 pair-1 | wait 60 | kept pair-0:n1"
    play(make_scene(GroupScene, hold_s=30.0), story)


def test_a_large_group_is_taken_over_in_portions_before_any_decision(scene: GroupScene) -> None:
    """Whoever goes meanwhile keeps nothing; an older pod gets the room of the one that has none."""
    count = 300
    members = " ".join(f"train-{number}:n{number}" for number in range(count))
    play(scene, f"nodes n0..{count - 1} | come older priority=10 | group {members} min={count - 1} priority=10")
    # No step has to collect what the arrangement has left.
    gc.collect()
    longest_s = 0.0
    for number in range(5):
        began_s = time.process_time()
        assert scene.machine.step(scene.now) == []
        longest_s = max(longest_s, time.process_time() - began_s)
        assert scene.machine.is_trying == (number < 4)
        if not number:
            scene.delete("train-0")
    assert longest_s < 0.05
    assert len(scene.machine.reservations) == count - 1
    play(scene, f"decide > older train-1..{count - 1}")
    assert scene.decided["older"].assigned.node == "n0"

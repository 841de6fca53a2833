"""Room that is kept for a group: by a new leader until it has decided, and for a member that moves meanwhile."""

import gc
import time

from scheduler.cycle.preemption.preemption import VF_PATIENCE_S
from scheduler.pending.groups.pending_groups import GroupOptions
from scheduler.state.machine import Machine
from tests.scheduler.group_life import Life, binds
from tests.scheduler.state.groups.group_story import GroupStory
from tests.scheduler.story import play, stories

PAIR = "of pair 2 | spec priority=10 | {} m0:n1 m1:n2"
OLDER = """
    spec priority=10 | spec preemptionPolicy=Never | alone older | later 1
    | spec preemptionPolicy=PreemptLowerPriority"""
# n1 holds VFs of a victim that the new leader never saw, n2 is free, and others are full.
HELD = "fill n3 n4 | nodes n2 | hold n1"
STILL_KEPT = "later 15 | at_once | evicted | kept m0:n1 m1:n2"
ALONE_KEPT = STILL_KEPT.removesuffix(" m1:n2")
# The group has been decided about by this leader.
DECIDED = "fill n1 n2 | nodes n3:0 | of pair 2 | spec priority=10 | come m0 m1 | at_once | kept m0:n1 m1:n2"


@stories(
    {
        # The victims are gone when it reads the cluster.
        "from an older pod": f"""
            fill n1 n2 | {OLDER} | at_once | of pair 2 | WAITER m0 m1 | at_once | evicted on-n1 on-n2 | nominate
            | delete on-n1 on-n2 | lead | later 1 | at_once m0 m1""",
        "until the last victim is gone": f"""
            fill n1..4 | {OLDER} | at_once | leave on-n1 on-n2 | {PAIR.format("come")} | later 1 | at_once | evicted
            | delete on-n1 | {STILL_KEPT} | delete on-n2 | later 15 | at_once m0 m1""",
        "while a node still holds VFs of victims": f"""
            {HELD} | {PAIR.format("come")} | {STILL_KEPT} | {STILL_KEPT} | {STILL_KEPT} | nodes n1 | later 15
            | at_once m0 m1""",
        "for a single pod while a node still holds VFs of a victim": f"""
            {HELD} | lose n2 | spec priority=10 | alone m0:n1 | {ALONE_KEPT} | {ALONE_KEPT} | {ALONE_KEPT} | nodes n1
            | later 15 | at_once m0""",
        # Another attempt does not prolong it.
        "but not for ever if VFs do not come back": f"""
            {HELD} | {PAIR.format("come")} | {STILL_KEPT} | nodes n5:0 | {STILL_KEPT} | later {VF_PATIENCE_S - 14}
            | at_once | evicted on-n4 | kept m0:n2 m1:n4""",
        # Another scheduler preempts it there: its VFs may take as long.
        "as long again if a further pod leaves meanwhile": f"""
            fill n3 | hold n1 | request 0 | alone low@n1 | request 2 | of pair 1 | spec priority=10 | WAITER m0:n1
            | {ALONE_KEPT} | leave low | nodes n5:0 | {ALONE_KEPT} | later {VF_PATIENCE_S} | at_once | kept m0:n1
            | delete low | nodes n6:0 | {ALONE_KEPT} | later {VF_PATIENCE_S - 1} | at_once | kept m0:n1 | later 1
            | at_once | evicted on-n3""",
        # The room of the others was not written, or there was none. The decision finds none for all, and ends it.
        "for some members, until the decision": """
            spec priority=10 | fill n1 | nodes n2 | alone older | later 1 | of pair 2 | come m0:n2 m1 | steps 1
            | kept m0:n2 | at_once | kept | later 15 | at_once older""",
        # It may be made again.
        "for half a minute if a member is missing": """
            nodes n1 n2 | of train 3 | spec priority=10 | come m0:n1 m1:n2 m2 | MISSING | spec priority=0 | request 1
            | alone other | later 29 | at_once | kept m0:n1 m1:n2 | later 15 | at_once other | kept""",
        "with other VFs for each pod of a node": """
            nodes n1:4 | request 1 | alone older | later 1 | request 2 | alone single:n1 | request 1 | of pair 2
            | come m0:n1 m1:n1 | at_once single m0 m1""",
        "though a less important pod names the node too": f"""
            nodes n1 n2 | spec priority=10 | alone older | later 1 | spec priority=5 | alone low:n1
            | {PAIR.format("come")} | at_once m0 m1""",
        "where the last leader writes it late": f"nodes n1..3 | {PAIR.format('come')} | steps 1 | LATE | kept_vfs 2",
        "against pods of lower priority than the PodGroup": f"""
            nodes n1 n2 | {OLDER} | spec priority=1 | name spec=pair | come m0:n1 m1:n2 | pod_group pair 2 10
            | at_once m0 m1""",
        "not against pods of higher priority than the PodGroup": f"""
            nodes n1 n2 | {OLDER.replace("10", "9")} | spec priority=99 | name spec=pair | spec preemptionPolicy=Never
            | come m0:n1 m1:n2 | pod_group pair 2 8 | at_once older""",
        "not for members that contradict each other": """
            nodes n1 n2 | of pair 2 | come m0:n1 | of pair 1 | come m1:n2 | idle | kept""",
        # Counted twice in a dry run it would leave VFs claimed for ever, as the machine's check shows.
        "of a member that moves to another group only once": """
            nodes n1:4 | request 4 | alone running | at_once running | later 1 | request 2 | spec priority=10 | MOVES
            | at_once | evicted running | of other 2 | created 0 | come x | join m0 | later 1 | at_once
            | evicted running | kept m0:n1 x:n1""",
        # Others may write the status of a pod.
        "as before if the status of a later member names a node": f"""
            {DECIDED} | come m2:n3 | at_once | kept m0:n1 m1:n2""",
    },
    WAITER={"a group": "come", "single pods": "alone"},
    MOVES={"from a group": "of first 1 | come m0 m1", "from none": "alone m0"},
    MISSING={"deleted before": "delete m2 | steps 1", "deleted after it was seen": "steps 1 | delete m2"},
    LATE={
        "another node": "nominate m0:n3 | steps 1 | kept m0:n3 m1:n2",
        "none": "nominate m0: | steps 1 | kept m1:n2",
        "none at all": "nominate m0: m1: | steps 1 | kept",
        "a node that is gone": "nominate m0:gone | steps 1 | kept m1:n2",
    },
)
def test_a_new_leader_keeps_room(life: Life, story: str) -> None:
    play(GroupStory(life), story)


def test_vfs_are_kept_on_the_rails_of_a_group(life: Life) -> None:
    """Interface k on the k-th network, though both would fit on the first."""
    for node in ("n1", "n2"):
        life.show_node(node, life.make_pf(0, vfs=2, network="rail0"), life.make_pf(1, vfs=1, network="rail1"))
    life.see(life.make_pod("older", [{"network": "rail1"}], spec={"priority": 10}))
    asks = 'name annotation={"name":"pair","min":2,"rails":"index"}'
    play(GroupStory(life), f"later 1 | {asks} | spec priority=10 | come m0:n1 m1:n2 | at_once m0 m1")


def test_the_room_of_a_group_with_first_call_stays_its_own(life: Life) -> None:
    """A standby that has seen the group wait for long enough gives it first call at once."""
    story = GroupStory(life.successor(Machine("mooring", group_options=GroupOptions(hold_s=30.0))))
    play(story, "nodes n1 | alone older | later 1 | of pair 2 | come m0:n1 m1 | later 60 | at_once | kept m0:n1")
    story.life.machine.check()


def test_a_large_group_is_taken_over_in_portions_before_any_decision(life: Life) -> None:
    """Whoever goes meanwhile keeps nothing; an older pod gets the room of the one that has none."""
    count = 300
    life.nodes(*(f"n{number}" for number in range(count)))
    life.see(life.make_pod("older", [{}, {}], spec={"priority": 10}))
    story = GroupStory(life)
    play(story, f"later 1 | of train {count - 1} | spec priority=10")
    story.come(*(f"m{n}:n{n}" for n in range(count)))
    # No step has to collect what the arrangement has left.
    gc.collect()
    longest_s = 0.0
    for number in range(5):
        began_s = time.process_time()
        assert life.machine.step(life.now) == []
        longest_s = max(longest_s, time.process_time() - began_s)
        assert life.machine.is_trying == (number < 4)
        if not number:
            story.delete("m0")
    assert longest_s < 0.05
    assert len(life.machine.reservations) == count - 1
    found = life.work()
    assert len(binds(found)) == count
    assert {one.pod_info.pod.metadata.name: one.assigned.node for one in binds(found)}["older"] == "n0"

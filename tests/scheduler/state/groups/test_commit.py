"""A decision about a group takes steps, with events between them: what still holds in the end is carried out."""

import json
from typing import Any

import pytest

from scheduler.cycle.groups.group_snapshot import GroupSnapshot
from scheduler.cycle.groups.preemption import preempt
from scheduler.state.vfs.claimed_vfs import PATIENCE_S
from tests.scheduler.conftest import MakeScene
from tests.scheduler.group_life import Life, apart, binds, changed
from tests.scheduler.group_scene import GroupScene
from tests.scheduler.story import play, stories

# The first of two steps tries 20 members on n0 to n19; n20 is free.
TRIED = "nodes n0..20 | group train-0..19 | steps 1"
SKEW = {"maxSkew": 1, "topologyKey": "rack", "whenUnsatisfiable": "DoNotSchedule"}
SKEWS = json.dumps([SKEW | {"labelSelector": {"matchLabels": {"app": "m"}}}], separators=(",", ":"))
TWO_STEPS = "portion 1 | steps 2"


class Commits(GroupScene):
    """A scene with what members may do while they are decided about."""

    def reject(self, *pods: str) -> None:
        """Show the condition that the scheduler itself writes."""
        conditions = [{"type": "PodScheduled", "status": "False", "message": "m"}]
        self.show(*(changed(self.pods[name], status={"conditions": conditions}) for name in pods))

    def undisputed(self) -> None:
        """Expect that nothing happens because of the last events."""
        assert (self.effects, self.machine.vf_disputes.dispute_counts) == ([], {})


@stories(
    {
        # The others stay where they were, though the free node is as good.
        "only the member whose node was lost goes elsewhere": f"nodes n0..3 | group train-0..2 | {TWO_STEPS} | LOSS",
        "nobody is placed where one has no place any more": f"""
            nodes n0..2 | group train-0..2 | {TWO_STEPS} | GONE | wait 0 | told train-0..2: group train: 2 of 3 members
            fit: ...""",
        # A smaller rack comes when all members have their places.
        "what still holds is carried out though something better exists": f"""
            nodes a0..3 rack=a | group train-0..2 within=rack | {TWO_STEPS} | nodes b0..2 rack=b | wait 0 > train-0..2 |
            on a0..2""",
        "a member beyond the minimum whose node was taken is told, and placed later": f"""
            nodes n0..2 | group train-0..2 min=2 | {TWO_STEPS} | nodes n1 vfs=1 | wait 0 > train-0 train-2 | on n0 n2 |
            told train-1: group train: enough members are placed, but this one is not: 0/3 nodes are available: 3 not
            enough free RDMA VFs. | nodes n3 | wait 20 > train-1 | on n3""",
        "a large group is decided in portions, and nothing else meanwhile": """
            nodes n0..39 | group train-0..39 | come other | steps 2 | step > train-0..39""",
        "a member that comes does not end the decision, and after one in vain there is another": f"""
            nodes n0 n1 | nodes n2 vfs=1 | group train-0..2 | {TWO_STEPS} | come train-3 group=train vfs=1 |
            wait 0 > train-0 train-1 train-3""",
        # Nobody is assumed. The group is decided about again, if it is still complete.
        "a member that is deleted ends the decision": f"""
            {TRIED} | delete train-0 | wait 0 | come train-20 group=train | wait 0 > train-1..20""",
        "a member that changes ends the decision": f"""
            {TRIED} | change train-0 vfs=1 | wait 0 > train-0..19 | granted train-0 1 | granted train-1 2""",
        # Two of three that are needed then fit.
        "a placed member that leaves ends the decision": f"""
            nodes n0..2 | group train-0@n0 train-1..3 min=3 | {TWO_STEPS} | terminate train-0 | wait 0 | told
            train-1..3: group train: 2 of 3 members fit: ...""",
        "a PodGroup that is changed ends the decision": """
            nodes a0 rack=a | nodes b0 b1 rack=b | gang train 2 | group train-0..1 kind=PodGroup | portion 1 | steps 1 |
            gang train 2 within=rack | wait 0 > train-0..1 | on b0 b1""",
        "a member that is bound elsewhere ends the decision": f"""
            {TRIED} | change train-0 nodeName=n20 | wait 0 > train-1..19""",
        # The others may be where they are because of that one. With none in rack b, rack a may have one.
        "members that spread are all placed again where one has to move": f"""
            nodes a0 a1 rack=a | nodes b0 b1 rack=b | group train-0..2 min=2 labels=app:m
            topologySpreadConstraints={SKEWS} | {TWO_STEPS} | nodes b0 b1 vfs=1 rack=b | wait 0 | nodes b0 rack=b |
            wait 20 > train-0..2""",
        # Another scheduler or the last leader has bound it. The pod has not started by the end, and keeps its VFs.
        "a member that is only tried disputes no VF of a pod that is bound": f"""
            {TRIED} | come bound@n0 owner=j | undisputed | wait 0 > train-0..19 | on n1..20 | quiet {PATIENCE_S}""",
        "our own status writes do not end it": f"{TRIED} | reject train-0..19 | step > train-0..19",
    },
    LOSS={
        "n0 taken": "nodes n0 vfs=1 | wait 0 > train-0..2 | on n1..3",
        "n0 removed": "lose n0 | wait 0 > train-0..2 | on n1..3",
        "n1 taken": "nodes n1 vfs=1 | wait 0 > train-0..2 | on n0 n2 n3",
        "n1 removed": "lose n1 | wait 0 > train-0..2 | on n0 n2 n3",
    },
    GONE={"taken": "nodes n1 vfs=1", "removed": "lose n1"},
)
def test_a_decision_that_takes_several_steps(make_scene: MakeScene, story: str) -> None:
    play(make_scene(Commits), story)


@stories(
    {
        # Of three that are needed two remain, and one of these waits: it is not placed.
        "while another is bound": """
            answer bound train-0 | terminate train-2 | answer changed train-1 | wait 20 | come train-3 group=train |
            wait 1 > train-1 train-3""",
        # An API server may refuse a Binding before it sees that the pod is being deleted.
        "and its own Binding fails too": "terminate train-2 | answer KIND | wait 20",
    },
    KIND={kind: kind for kind in ("forbidden", "refused", "changed")},
)
def test_a_member_that_is_deleted_while_its_binding_is_written_does_not_count(scene: GroupScene, story: str) -> None:
    play(scene, f"nodes n1..4 | group train-0..2 | decide > train-0..2 | {story}")


@pytest.mark.parametrize("step_s", [0.003, 0.02])
def test_members_that_keep_apart_start_in_the_fourth_round_beside_binds(
    life: Life, monkeypatch: pytest.MonkeyPatch, step_s: float
) -> None:
    """500 pods a second come that the 64 members must not be beside: with each Bind all members are judged again.

    In the fourth round others wait, a quarter of a second at the most: a round that takes longer gives way to them.
    """
    # How many other pods are bound in each round.
    others, of_group = list[int](), 0

    def begin(*args: Any, **options: Any) -> GroupSnapshot:
        others.append(0)
        return GroupSnapshot(*args, **options)

    monkeypatch.setattr("scheduler.cycle.groups.group_cycle.GroupSnapshot", begin)
    metadata = {"labels": {"app": "train"}}
    life.nodes(*(f"n{number}" for number in range(80)))
    life.nodes("others", labels={"for": "others"}, allocatable={"pods": "9999"})
    spec = apart("kubernetes.io/hostname", app="train")
    life.members(64, '{"name":"train","min":64}', spec=spec, metadata=metadata)
    life.machine.group_scheduling.portion = 1
    came, began = 0, life.now
    while not of_group and sum(others[3:]) == 0:
        while came < 500 * (life.now - began):
            came += 1
            life.see(life.make_pod(f"s{came}", metadata=metadata, spec={"nodeSelector": {"for": "others"}}))
        bound = binds(life.machine.step(life.now) or [])
        life.bound(*bound)
        of_group += len([one for one in bound if one.assigned.node != "others"])
        if others and not of_group:
            others[-1] += len(bound)
        life.now += 0.0005 if bound else step_s
    assert of_group in (0, 64)
    first, second, third, fourth = others
    assert min(first, second, third) > 0
    assert (fourth == 0) == (step_s == 0.003)


def test_a_search_for_victims_that_is_cut_short_leaves_a_group_its_room(
    scene: GroupScene, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its victims leave already, and the search is repeated soon for the member that was made again."""
    play(scene, "fill n1 n2 | group pair-0..1 priority=10 | wait 0 | victims on-n1 on-n2")
    monkeypatch.setattr(preempt, "_MAX_ROUNDS", 0)
    play(scene, "terminate on-n1 on-n2 | delete pair-1 | come pair-2 group=pair | wait 1 | victims")
    play(scene, "kept pair-0:n1 :n2")


def test_what_was_tried_in_vain_leaves_no_trace(life: Life) -> None:
    life.nodes("n1", "n2")
    life.gone(*life.place(life.make_pod("first", [{}])))
    before = {name: dict(life.machine.cache.free_since(name)) for name in ("n1", "n2")}
    life.see(*(life.member() for _ in range(3)))
    assert binds(life.work(5.0)) == []
    assert {name: dict(life.machine.cache.free_since(name)) for name in ("n1", "n2")} == before

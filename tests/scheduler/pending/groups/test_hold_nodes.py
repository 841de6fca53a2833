"""On which nodes room is kept for a group with first call on what becomes free (``--group-hold``)."""

import random

import pytest

from scheduler.cycle.groups import group_snapshot
from scheduler.cycle.groups.preemption import preempt
from scheduler.cycle.preemption import select_victims
from tests.scheduler.conftest import MakeScene
from tests.scheduler.group_life import binds
from tests.scheduler.group_scene import GroupScene
from tests.scheduler.story import play, stories

HOLD = "group pair-0..1 cpu=1 memory=1Gi | wait 60 1"
# Pods of one VF, two on each node, which end by themselves; those of services do not.
ENDING = "vfs=1 cpu=1 restartPolicy=Never"


@pytest.fixture
def scene(make_scene: MakeScene) -> GroupScene:
    return make_scene(GroupScene, hold_s=30.0)


@stories(
    {
        # Each pod that ends leaves one VF, and each member needs two of one node: others get none of what is kept.
        "where it adds up": f"nodes n-0..3 | put small-0..7 vfs=1 | {HOLD} | stream 200 > pair-0..1",
        # A group of one rack waits where a member fits now, until fewer pods are in the way in another one.
        "in the domain where the most fit": """
            nodes a-0..2 rack=a | nodes b-0..2 rack=b | nodes c-0..2 rack=c | nodes d-0..2 rack=d | put small-0..23
            vfs=1 | group racked-0..2 within=rack cpu=1 | empty c-2 | wait 60 | kept c-0..2 | nodes b-3 b-4 rack=b |
            wait 1 | kept b-2 b-3 b-4""",
        # They may stay for ever: then those members that fit are kept room, and no more.
        "not on those of a higher priority": """
            nodes n1 | put small-0..1 vfs=1 priority=7 | nodes n2 | group pair-0..1 | wait 60 | kept n2 | says Room is
            kept for the members that fit.$""",
        "where pods do not end if there is no other place": f"""
            nodes n1 n2 | put a b | nodes n3 | put small-0..1 {ENDING} | {HOLD} | kept n2 n3 | delete a | wait 1 | kept
            n1 n3""",
        # Otherwise the free node would be kept for ever, beside one that never becomes free.
        "in a domain where all in the way end rather than beside a free node": f"""
            nodes a1 a2 rack=a | put a b | nodes b1 b2 b3 rack=b | put small-0..5 {ENDING} | nodes a3 rack=a | group
            pair-0..1 within=rack | wait 60 1 | kept b2 b3""",
        # What is kept stands and falls as one, and the group is decided about again.
        "elsewhere if it goes": f"""
            nodes n1 n2 n3 | put small-0..5 vfs=1 | {HOLD} | kept n2 n3 | lose n3 | wait 1 | kept n1 n2""",
    }
)
def test_where_room_is_kept(scene: GroupScene, story: str) -> None:
    play(scene, story)


@stories(
    {
        "those with room, and then the emptiest": f"""
            nodes n1 n2 n3 n4 | put small-0..7 {ENDING} | delete small-4 small-6 | {HOLD} | kept n3 n4 | delete small-0
            small-2 | wait 1 | kept n3 n4""",
        "not those with a pod of a higher priority": f"""
            nodes o-0..9 | put high-0..9 priority=7 | nodes n3 n4 | put small-0..3 vfs=1 | {HOLD} | kept n3 n4 | stream
            8 > pair-0..1""",
        "not those with a pod of a Deployment": f"""
            nodes o-0..1 | put service-0..1 | nodes n3 n4 | put small-0..3 {ENDING} | {HOLD} | kept n3 n4 | stream 8
            restartPolicy=Never > pair-0..1""",
        "nor if these are more than are looked at closely": f"""
            nodes o-0..9 | put service-0..9 | nodes n3 n4 | put small-0..3 {ENDING} | {HOLD} | kept n3 n4 | stream 8
            restartPolicy=Never > pair-0..1""",
        "those with pods that are being deleted, whatever their restart policy": f"""
            nodes n1 n2 | put a b | nodes n3 n4 | put small-0..3 {ENDING} | group pair-0..1 | terminate a b | wait 60 |
            kept n1 n2""",
    }
)
@pytest.mark.parametrize("fewest", [1, 4])
def test_the_nodes_that_are_looked_at(
    scene: GroupScene, monkeypatch: pytest.MonkeyPatch, fewest: int, story: str
) -> None:
    """So many are looked at closely."""
    monkeypatch.setattr(select_victims, "_FEWEST", fewest)
    play(scene, story)


def test_nobody_is_sent_away_for_what_is_kept_and_it_only_grows(scene: GroupScene) -> None:
    """A node where fewer pods are in the way takes the place of another one, never the other way round."""
    play(scene, f"nodes n-0..7 | put small-0..15 vfs=1 | {HOLD}")
    in_the_way = [4]
    for _ in range(30):
        in_the_way.append(sum(len(scene.machine.cache.assigned_pods_on(room.node)) for room in scene.rooms))
        scene.stream("1")
        scene.victims()
        if any(bind.pod_info.membership for bind in binds(scene.found)):
            break
    assert in_the_way == sorted(in_the_way, reverse=True)
    assert in_the_way[-1] == 1


def test_domains_full_of_pods_of_a_higher_priority_do_not_use_up_the_search(
    scene: GroupScene, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The budget is for nodes that may be waited for, however many others there are."""
    monkeypatch.setattr(preempt, "_A_ROOM_SEARCH", 64)
    # The last one of equal ones comes first.
    play(scene, "nodes n1 n2 rack=first | put small-0..3 vfs=1")
    for rack in range(8):
        play(scene, f"nodes high{rack}-0..11 rack=high{rack} | put on{rack}-0..11 priority=7")
    play(scene, "group pair-0..1 within=rack | wait 60 1 | kept n1 n2")


def test_nodes_are_judged_in_portions(scene: GroupScene, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(group_snapshot, "A_TURN", 1)
    play(
        scene,
        "nodes high-0..5 | put on-0..5 priority=7 | nodes n1 n2 | put a b | group pair-0..1 | wait 29 | later 2 | tick",
    )
    turns = len(list(iter(lambda: scene.machine.step(scene.now), None)))
    assert turns >= 8
    play(scene, "kept n1 n2")


def test_a_search_for_room_that_is_not_finished_leaves_what_is_kept(
    scene: GroupScene, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Otherwise others would take what has become free so far."""
    play(scene, f"nodes n1 n2 n3 | put small-0..5 vfs=1 | {HOLD} | kept n2 n3")
    monkeypatch.setattr(preempt, "_A_ROOM_SEARCH", 0)
    first = next(name for name, pod in scene.pods.items() if pod.spec.node_name == "n2")
    play(scene, f"delete {first} | come small-next vfs=1 | wait 1 | kept n2 n3")


@pytest.mark.parametrize("seed", range(20))
def test_every_group_that_fits_the_cluster_starts_in_the_end(scene: GroupScene, seed: int) -> None:
    """Members need any part of a node, pods end in any order, and there is always another one for what they leave."""
    chance = random.Random(seed)
    nodes, vfs = chance.randint(3, 8), chance.randint(2, 4)
    play(scene, f"nodes n-1..{nodes} vfs={vfs} | put small-1..{vfs * nodes} vfs=1")
    size = chance.randint(2, nodes)
    group = f'{{"name":"any","min":{size}}}'
    scene.see(*(scene.member(f"m{n}", group, request=[{}] * chance.randint(1, vfs)) for n in range(size)))
    play(scene, "wait 60")
    for number in range(40 * vfs * nodes):
        running = [name for name, pod in scene.pods.items() if pod.spec.node_name]
        play(scene, f"come next-{number} vfs=1 | delete {chance.choice(running)}")
        scene.wait("1")
        members = [bind for bind in binds(scene.found) if bind.pod_info.membership]
        if members:
            assert len(members) == size
            return
    pytest.fail(f"the group of {size} has not started, {len(scene.pods)} pods run or wait")

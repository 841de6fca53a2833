"""A decision about a group goes on in turns, and others are decided about between them."""

import json

import pytest

from tests.scheduler.conftest import MakeScene
from tests.scheduler.group_life import Life, apart, binds, told
from tests.scheduler.group_scene import GroupScene
from tests.scheduler.story import play, stories
from tests.support.calls import count_calls

HOST = "example.com/host"
LEVELS = [f"level-{level}" for level in range(8)]


class Turns(GroupScene):
    """Nodes that are each a domain of their own on eight levels."""

    def hosts(self, count: int) -> None:
        for number in range(count):
            self.nodes(f"n{number}", **dict.fromkeys((HOST, *LEVELS), f"n{number}"))

    def slow_group(self) -> None:
        """Let members come that are tried on each node alone on each level, since cpu says that it could hold all."""
        group = json.dumps({"name": "slow", "min": 2, "prefer": LEVELS})
        # The second keeps away from the first, which does not say so: how many a node holds is then not counted.
        for number, spec in enumerate([{}, apart(HOST, app="apart")]):
            metadata = {"labels": {"app": "apart"}}
            self.see(self.member(f"slow-{number}", group, request=[{}], spec=spec, metadata=metadata))

    def unequal_group(self, count: int, least: int) -> None:
        """Let members come that each request another cpu."""
        for number in range(count):
            self.group(f"odd-{number}", min=str(least), vfs="0", cpu=f"{number + 1}m")

    def interrupt(self, pod: str, most: str = "40") -> None:
        """Let a pod come and be bound after at most so many steps, before anything else."""
        self.come(pod, vfs="1")
        names = next(filter(None, (self.step() for _ in range(int(most)))), "")
        assert names == pod
        self.answer("bound", pod)
        self.machine.check()


@pytest.fixture
def turns(make_scene: MakeScene) -> Turns:
    return make_scene(Turns)


def test_a_pod_does_not_wait_for_a_slow_decision_about_a_group(turns: Turns) -> None:
    """The decision takes hundreds of turns; it is put aside after some, goes on later, and has its outcome."""
    turns.hosts(60)
    turns.slow_group()
    play(turns, "steps 2 | interrupt other 29 | decide > slow-0..1")


def test_pods_that_keep_coming_delay_a_decision_by_few_slices(turns: Turns) -> None:
    """It goes on after 0.4 s, for longer than its first slice of 180 members, though another pod is always ready."""
    play(turns, "nodes n0..49 vfs=30 | group train-0..999 vfs=1 | come other vfs=0")
    steps, names = 0, ""
    while "train-0" not in names:
        if names:
            play(turns, f"answer bound | come other-{steps} vfs=0")
        turns.now, steps, names = turns.now + 0.01, steps + 1, turns.step()
        assert steps < 600


def test_without_a_decision_that_is_set_aside_no_pod_asks_for_the_first_group(turns: Turns) -> None:
    """It would cost each pod of a cluster without groups."""
    turns.hosts(1)
    assert count_calls(type(turns.machine.queue).earliest, lambda: turns.interrupt("other", "1")) == 0


LARGE = "nodes n0..2 vfs={} | group large-0..{} vfs=1"


@stories(
    {
        # Room for all was there when it began; the last VF is somebody else's when it goes on.
        "its members keep nothing from others": f"""
            {LARGE.format(73, 218)} | steps 5 | interrupt other | wait 0 | told large-0..218: group large: 218 of 219
            members fit: 0/3 nodes are available for the 219th member: 3 not enough free RDMA VFs. | delete other | wait
            20 > large-0..218""",
        "it ends with a member that goes": f"""
            {LARGE.format(100, 250)} min=250 | interrupt other | delete large-0 | wait 0 > large-1..250""",
        "nothing is left to do if too few members remain": f"""
            {LARGE.format(73, 218)} | steps 5 | interrupt other | delete large-0 | wait 5 | due > never""",
        # A node comes that holds the rest, when all others have been tried without it.
        "what helps the group meanwhile is not missed": f"""
            {LARGE.format(66, 200)} | interrupt other | nodes n3 vfs=4 | wait 20 > large-0..200""",
        # A pod of higher priority preempts meanwhile, and is nominated where members were tried.
        "it takes no room that is kept for another pod": f"""
            {LARGE.format(73, 218)} cpu=0 | nodes n0 vfs=73 rack=r | come low@n0 vfs=0 cpu=8 priority=-1 | steps 5 |
            come urgent vfs=1 cpu=8 priority=100 nodeSelector=rack:r | wait 0 | victims low | kept urgent:n0 | delete
            low | wait 20 > urgent""",
    }
)
def test_a_decision_is_set_aside(turns: Turns, story: str) -> None:
    play(turns, story)


@pytest.mark.parametrize("wants", [1, 3], ids=["it holds all members", "it could hold none"])
def test_a_node_that_changes_all_the_time_does_not_keep_a_decision_from_its_end(turns: Turns, wants: int) -> None:
    turns.nodes("restless", vfs=100)
    turns.nodes("steady", vfs=2)
    group = json.dumps({"name": "large", "min": 40 if wants == 1 else 1})
    request: list[dict[str, int]] = [{}] if wants == 1 else [{}] * 64
    members = [turns.member(f"m{n}", group, request=request, metadata={"labels": {"n": f"{n}"}}) for n in range(40)]
    turns.see(*members)
    ends = list[str]()
    for number in range(100):
        turns.step()
        ends += told(turns.found)
        turns.nodes("restless", vfs=100 if wants == 1 else 50 + number % 2)
        turns.nodes("restless", vfs=99 if wants == 1 else 49 + number % 2)
        if ends:
            break
    assert len(ends) == 40


def test_a_group_whose_members_request_too_many_different_things_is_refused_in_words(turns: Turns) -> None:
    """Each is compared with every node; without those that are too many it is placed."""
    turns.nodes("n1", vfs=100)
    turns.unequal_group(65, 64)
    why = "group odd: 0 of 64 members fit: its members make 65 different requests; the limit is 64"
    play(turns, f"wait 0 | told odd-0..64: {why} | delete odd-0 | wait 0 > odd-1..64")


def test_members_of_different_shapes_are_compared_with_the_nodes_over_several_turns(turns: Turns) -> None:
    turns.hosts(10)
    turns.unequal_group(50, 50)
    play(turns, f"steps {50 // 16 + 1} | wait 0 > odd-0..49")


def test_a_decision_may_be_set_aside_before_anything_was_tried(turns: Turns) -> None:
    """There are more nodes to judge than one slice allows."""
    turns.hosts(500)
    turns.unequal_group(64, 64)
    play(turns, "interrupt other 20 | wait 0 > odd-0..63")


def _zones(turns: Turns, count: int) -> None:
    """Let 20 members wait that keep away from pods ``noisy`` in their zone; zone ``a`` is the first that is filled."""
    for zone in "abcdefgh"[:count]:
        play(turns, f"nodes {zone}0..20 zone={zone}")
    play(turns, "group train-0..19 away=app:noisy")


def test_a_decision_that_others_overtake_again_and_again_ends_without_breaking_a_rule(turns: Turns) -> None:
    """A pod that the members must keep away from comes to their zone on each turn."""
    _zones(turns, 8)
    zones, loud = iter("abcdefg"), set[str]()
    for _ in range(200):
        if turns.step():
            break
        if (zone := next(zones, "")) and turns.machine.is_trying:
            play(turns, f"come loud-{zone}@{zone}20 vfs=0 labels=app:noisy")
            loud.add(zone)
    assert len(loud) > 3
    assert len(turns.decided) == 20
    assert not loud & {bind.assigned.node[0] for bind in turns.decided.values()}


def test_pods_that_no_rule_is_about_do_not_let_a_decision_begin_again(turns: Turns) -> None:
    """It ends in the turn in which it would have ended without them."""
    _zones(turns, 2)
    play(turns, "steps 1 | come quiet@a20 vfs=0 labels=app:quiet | step > train-0..19")


def test_labels_that_each_node_has_a_value_of_are_made_columns_over_several_turns(turns: Turns) -> None:
    """Nothing is tried before all are; the last of them waits for the second turn."""
    turns.hosts(800)
    turns.slow_group()
    nodes = turns.machine.cache.nodes
    play(turns, "steps 1")
    ready = [nodes.has_label_column(level) for level in LEVELS]
    assert (ready[0], ready[-1]) == (True, False)
    turns.step()
    assert all(nodes.has_label_column(level) for level in LEVELS)


# A first slice has some 180 members of these, a later one 720.
MEMBERS = 1000


@pytest.mark.parametrize("groups", [1, 3])
def test_groups_at_the_same_time_take_few_turns_more_than_one_after_another(life: Life, groups: int) -> None:
    """What an earlier one takes is the most that a later one places again."""
    life.nodes(*(f"n{number}" for number in range(100)), vfs=30)
    for group in range(groups):
        asks = f'{{"name":"g{group}","min":{MEMBERS}}}'
        life.see(*(life.member(f"g{group}-{number}", asks, request=[{}]) for number in range(MEMBERS)))
    steps, bound = 0, 0
    while (made := life.machine.step(life.now)) is not None:
        steps, bound = steps + 1, bound + len(binds(made))
    life.machine.check()
    assert bound == groups * MEMBERS
    assert steps <= 75 * groups

"""A decision about a group goes on in turns, and others are decided about between them."""

import json
from typing import Any

import pytest

from scheduler.cycle.decisions import Bind
from scheduler.cycle.instructions import Instruction
from scheduler.kube.objects import Pod
from tests.scheduler.group_life import Life, binds, bound_names, told
from tests.support.calls import count_calls

HOST = "example.com/host"
LEVELS = 8
# A member keeps away from the others, which do not say so themselves: then it is not counted how many a node holds.
APART: dict[str, Any] = {
    "affinity": {
        "podAntiAffinity": {
            "requiredDuringSchedulingIgnoredDuringExecution": [
                {"labelSelector": {"matchLabels": {"app": "apart"}}, "topologyKey": HOST}
            ]
        }
    }
}


class Turns(Life):
    """Nodes that are each a domain of their own on eight levels."""

    def hosts(self, count: int, **fields: Any) -> None:
        for number in range(count):
            labels = {HOST: f"n{number}"} | {f"level-{level}": f"n{number}" for level in range(LEVELS)}
            self.nodes(f"n{number}", labels=labels, **fields)

    def slow_group(self, count: int = 2) -> list[Pod]:
        """Return members that are tried on each node alone on each level, since cpu says that it could hold all."""
        group = json.dumps({"name": "slow", "min": count, "prefer": [f"level-{level}" for level in range(LEVELS)]})
        labels = {"labels": {"app": "apart"}}
        members = enumerate([{}, *[APART] * (count - 1)])
        return [self.member(f"slow-{n}", group, request=[{}], spec=spec, metadata=labels) for n, spec in members]

    def until(self, uid: str, most: int = 10_000) -> tuple[int, list[Bind]]:
        """Go on until a pod is bound; return after how many steps, and all that was bound by then."""
        made = list[Bind]()
        for steps in range(1, most + 1):
            made += binds(self.step())
            if any(one.pod_info.uid == uid for one in made):
                self.machine.check()
                return steps, made
        raise AssertionError(f"{uid} is not bound after {most} steps")

    def set_aside(self) -> Bind:
        """Let a pod come and be bound while a decision about a group goes on."""
        pod = self.make_pod("innocent", [{}])
        self.see(pod)
        _, (bind,) = self.until(pod.metadata.uid, 40)
        return bind

    def step(self) -> list[Instruction]:
        return self.machine.step(self.now) or []


@pytest.fixture
def turns(life: Life) -> Turns:
    return Turns(life.machine, life.make_node, life.make_pf, life.make_pod)


def _sized(turns: Turns, count: int, least: int) -> list[Pod]:
    """Let members come that each request another cpu."""
    cpus = [[{"name": "c", "resources": {"requests": {"cpu": f"{cpu}m"}}}] for cpu in range(1, count + 1)]
    group = f'{{"name":"odd","min":{least}}}'
    members = [turns.member(group=group, request=None, spec={"containers": one}) for one in cpus]
    turns.see(*members)
    return members


def test_a_pod_does_not_wait_for_a_slow_decision_about_a_group(turns: Turns) -> None:
    """The decision takes hundreds of turns; it is put aside after some, goes on later, and has its outcome."""
    turns.hosts(60)
    turns.see(*turns.slow_group())
    for _ in range(2):
        turns.step()
    innocent = turns.make_pod("innocent", [{}])
    turns.see(innocent)
    steps, made = turns.until(innocent.metadata.uid)
    assert [one.pod_info.pod.metadata.name for one in made] == ["innocent"]
    assert steps < 30
    assert bound_names(turns.work()) == ["slow-0", "slow-1"]


def test_without_a_decision_that_is_set_aside_no_pod_asks_for_the_first_group(turns: Turns) -> None:
    """It would cost each pod of a cluster without groups."""
    turns.hosts(1)
    turns.see(turns.make_pod("innocent", [{}]))
    made = list[Bind]()
    assert count_calls(type(turns.machine.queue).earliest, lambda: made.extend(binds(turns.step()))) == 0
    assert len(made) == 1


def test_members_of_a_decision_that_is_set_aside_keep_nothing_from_others(turns: Turns) -> None:
    """Room for all was there when it began; the last VF is somebody else's when it goes on."""
    turns.nodes("n1", "n2", "n3", vfs=73)
    turns.members(219, '{"name":"large","min":219}', request=[{}])
    for _ in range(5):
        assert turns.step() == []
    bind = turns.set_aside()
    instructions = turns.work()
    assert binds(instructions) == []
    assert set(told(instructions).values()) == {
        "group large: 218 of 219 members fit: 0/3 nodes are available for the 219th member: 3 not enough free RDMA VFs."
    }
    (pod,) = turns.bound(bind)
    turns.gone(pod)
    assert len(binds(turns.work(20.0))) == 219


def test_room_that_is_kept_for_another_pod_while_a_decision_is_set_aside_is_not_taken(turns: Turns) -> None:
    """A pod of higher priority preempts meanwhile, and is nominated where members were tried."""
    for number in range(3):
        turns.nodes(f"n{number}", vfs=73, labels={"host": f"n{number}"})
    node = turns.machine.cache.node("n0")
    assert node is not None
    resources = {"requests": {"cpu": f"{node.allocatable['cpu']}m"}}
    limits = {"containers": [{"name": "c", "resources": resources}], "nodeSelector": {"host": "n0"}}
    low = turns.make_pod("low", spec={**limits, "priority": -1, "nodeName": "n0"}, node="n0")
    turns.see(low)
    turns.members(219, '{"name":"large","min":219}', request=[{}])
    for _ in range(5):
        assert turns.step() == []
    urgent = turns.make_pod("urgent", [{}], spec={**limits, "priority": 100})
    turns.see(urgent)
    instructions = turns.work()
    assert turns.machine.reservations.node_of(urgent.metadata.uid) == "n0"
    assert binds(instructions) == []
    turns.gone(low)
    assert [one.pod_info.uid for one in binds(turns.work(20.0))] == [urgent.metadata.uid]


def test_a_decision_that_is_set_aside_ends_with_a_member_that_goes(turns: Turns) -> None:
    turns.nodes("n1", "n2", "n3", vfs=100)
    members = turns.members(251, '{"name":"large","min":250}', request=[{}])
    turns.set_aside()
    turns.gone(members[0])
    assert len(binds(turns.work())) == 250


def test_what_helps_a_group_while_its_decision_is_set_aside_is_not_missed(turns: Turns) -> None:
    """A node comes that holds the rest, when all others have been tried without it."""
    turns.nodes("n1", "n2", vfs=100)
    turns.members(201, '{"name":"large","min":201}', request=[{}])
    turns.set_aside()
    turns.nodes("n3")
    assert len(binds(turns.work()) + binds(turns.work(20.0))) == 201


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
        ends += told(turns.step())
        turns.nodes("restless", vfs=100 if wants == 1 else 50 + number % 2)
        turns.nodes("restless", vfs=99 if wants == 1 else 49 + number % 2)
        if ends:
            break
    assert len(ends) == 40


def test_a_group_whose_members_request_too_many_different_things_is_refused_in_words(turns: Turns) -> None:
    """Each is compared with every node; without those that are too many it is placed."""
    turns.nodes("n1", vfs=100)
    members = _sized(turns, 65, 64)
    instructions = turns.work()
    assert binds(instructions) == []
    assert set(told(instructions).values()) == {
        "group odd: 0 of 64 members fit: its members make 65 different requests; the limit is 64"
    }
    turns.gone(members[0])
    assert len(binds(turns.work())) == 64


def test_members_of_different_shapes_are_compared_with_the_nodes_over_several_turns(turns: Turns) -> None:
    turns.nodes(*(f"n{number}" for number in range(10)))
    _sized(turns, 50, 50)
    steps, made = 0, list[Bind]()
    while not made:
        made = binds(turns.step())
        steps += 1
    assert steps > 50 // 16 + 1
    assert len(made) == 50


def test_a_decision_may_be_set_aside_before_anything_was_tried(turns: Turns) -> None:
    """There are more nodes to judge than one slice allows."""
    turns.hosts(500)
    _sized(turns, 64, 64)
    innocent = turns.make_pod("innocent")
    turns.see(innocent)
    _, made = turns.until(innocent.metadata.uid, 20)
    assert len(made) == 1
    assert len(binds(turns.work())) == 64


def _zones(turns: Turns, count: int) -> None:
    """Let 20 members wait that keep away from pods ``noisy`` in their zone; zone ``a`` is the first that is filled."""
    for zone in "abcdefgh"[:count]:
        turns.nodes(*(f"{zone}{number}" for number in range(21)), labels={"zone": zone})
    term = {"topologyKey": "zone", "labelSelector": {"matchLabels": {"app": "noisy"}}}
    apart = {"podAntiAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": [term]}}
    turns.members(20, '{"name":"train","min":20}', spec={"affinity": apart})


def _come_to(turns: Turns, zone: str, app: str) -> None:
    """Let another scheduler bind a pod on the last node of a zone."""
    turns.see(turns.make_pod(node=f"{zone}20", metadata={"labels": {"app": app}}))


def test_a_decision_that_others_overtake_again_and_again_ends_without_breaking_a_rule(turns: Turns) -> None:
    """A pod that the members must keep away from comes to their zone on each turn."""
    _zones(turns, 8)
    zones, made = iter("abcdefg"), list[Bind]()
    loud = set[str]()
    for _ in range(200):
        made = binds(turns.step())
        if made:
            break
        if (zone := next(zones, "")) and turns.machine.is_trying:
            _come_to(turns, zone, "noisy")
            loud.add(zone)
    assert len(loud) > 3
    assert len(made) == 20
    assert not loud & {one.assigned.node[0] for one in made}


def test_pods_that_no_rule_is_about_do_not_let_a_decision_begin_again(turns: Turns) -> None:
    """It ends in the turn in which it would have ended without them."""
    _zones(turns, 2)
    assert turns.step() == []
    _come_to(turns, "a", "quiet")
    assert len(binds(turns.step())) == 20


def test_labels_that_each_node_has_a_value_of_are_made_columns_over_several_turns(turns: Turns) -> None:
    """Nothing is tried before all are; the last of them waits for the second turn."""
    turns.hosts(600)
    turns.see(*turns.slow_group())
    nodes, levels = turns.machine.cache.nodes, [f"level-{level}" for level in range(LEVELS)]
    assert turns.step() == []
    ready = [nodes.has_label_column(level) for level in levels]
    assert (ready[0], ready[-1]) == (True, False)
    turns.step()
    assert all(nodes.has_label_column(level) for level in levels)


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

"""With ``--group-hold`` a group that has waited long enough has first call on what becomes free."""

import random
from collections import deque
from collections.abc import Callable, Iterator
from typing import Any

import pytest

from mooring.inventory import Pf
from scheduler.cycle.preemption.groups import preempt
from scheduler.kube.objects import Node, Pod
from scheduler.pending.groups.options import GroupOptions
from scheduler.state.machine import Machine
from tests.scheduler.group_life import PAIR, Life, binds, changed, orders, pair, told, victims

HOLD_S = 30.0


def _life(
    make_node: Callable[..., Node], make_pf: Callable[..., Pf], make_pod: Callable[..., Pod], hold_s: float
) -> Life:
    return Life(Machine("mooring", group_options=GroupOptions(hold_s=hold_s)), make_node, make_pf, make_pod)


@pytest.fixture
def life(make_node: Callable[..., Node], make_pf: Callable[..., Pf], make_pod: Callable[..., Pod]) -> Iterator[Life]:
    life = _life(make_node, make_pf, make_pod, HOLD_S)
    yield life
    life.machine.check()


def _single(life: Life, name: str, **fields: Any) -> Pod:
    return life.make_pod(name, [{}, {}], **fields)


def _full(life: Life, *nodes: str) -> list[Pod]:
    """Fill each node with one pod."""
    life.nodes(*nodes)
    life.see(*(_single(life, f"on-{node}") for node in nodes))
    return life.bound(*binds(life.work()))


def _names(found: list[Any]) -> list[str]:
    return sorted(one.pod_info.pod.metadata.name for one in binds(found))


def _kept_on(life: Life) -> list[str]:
    """Return the nodes of all nominated pods, one for each pod."""
    return sorted(life.machine.nominator.node_of(uid) for uid in life.machine.nominator)


def _stream(life: Life, running: list[Pod]) -> list[str]:
    """Let pods end one after another, each followed by another one of the same size; return what is bound."""
    bound: list[str] = []
    for number, pod in enumerate(running):
        life.see(_single(life, f"next-{number}"))
        life.work(10.0)
        life.gone(pod)
        found = life.work(10.0)
        bound += _names(found)
        life.bound(*binds(found))
    return bound


def test_without_it_a_stream_of_single_pods_keeps_a_group_out(
    make_node: Callable[..., Node], make_pf: Callable[..., Pf], make_pod: Callable[..., Pod]
) -> None:
    """Each pod that ends leaves room for one pod, and there is one."""
    life = _life(make_node, make_pf, make_pod, 0.0)
    running = _full(life, "n1", "n2")
    life.see(*(life.member(f"m{number}", PAIR) for number in range(2)))
    life.work(2 * HOLD_S)
    assert _stream(life, running) == ["next-0", "next-1"]


def test_a_group_that_has_waited_grows_with_what_becomes_free(life: Life) -> None:
    """The room of the member that fits is kept; then the group starts as a whole, and the others after it."""
    running = _full(life, "n1", "n2")
    life.see(*(life.member(f"m{number}", PAIR) for number in range(2)))
    life.work(2 * HOLD_S)
    assert _stream(life, running) == ["m0", "m1"]


def test_a_group_that_holds_comes_first_though_it_was_tried_just_now(life: Life) -> None:
    """No backoff leaves what becomes free to a pod of the same priority."""
    running = _full(life, "n1", "n2")
    life.see(*(life.member(f"m{number}", PAIR) for number in range(2)))
    life.work(HOLD_S + 1.0)
    life.work(1.0)
    life.gone(running[0])
    assert _names(life.work()) == []
    life.see(_single(life, "single"))
    life.gone(running[1])
    assert _names(life.work()) == ["m0", "m1"]


def test_the_hold_begins_when_its_time_is_over_though_nothing_happens(life: Life) -> None:
    """Room that is free already is kept from then on, and until then it is not; so is what others have yet to leave."""
    _full(life, "n1")
    life.nodes("n2")
    life.see(*(life.member(f"m{number}", PAIR) for number in range(2)))
    life.work()
    assert life.machine.next_due() is not None
    (message,) = set(told(life.work(HOLD_S + 1.0)).values())
    assert message.endswith("2 not enough free RDMA VFs. Room is kept for the group as it becomes free.")
    assert _kept_on(life) == ["n1", "n2"]
    life.see(_single(life, "single"))
    assert _names(life.work(1.0)) == []


def test_what_members_keep_does_not_count_against_each_other(life: Life) -> None:
    """Two of three are kept room on one node; the third one's node makes the group start."""
    (there,) = _full(life, "n2")
    life.nodes("n1", vfs=4)
    members = [life.member(f"m{number}") for number in range(3)]
    life.see(*members)
    life.work(HOLD_S + 1.0)
    life.work(1.0)
    assert _kept_on(life) == ["n1", "n1", "n2"]
    life.gone(there)
    assert _names(life.work(1.0)) == ["m0", "m1", "m2"]


def test_pods_of_higher_priority_do_not_heed_it(life: Life) -> None:
    """They take what is kept."""
    _full(life, "n1")
    life.nodes("n2")
    life.see(*(life.member(f"m{number}", PAIR) for number in range(2)))
    life.work(HOLD_S + 1.0)
    life.work(1.0)
    life.see(_single(life, "urgent", spec={"priority": 7}))
    assert _names(life.work(1.0)) == ["urgent"]


def test_only_the_oldest_of_the_highest_priority_holds(life: Life) -> None:
    """An older group of a lower priority waits, and holds after it."""
    life.nodes("n1")
    life.see(_single(life, "on-n1", spec={"priority": 5}))
    life.bound(*binds(life.work()))
    life.nodes("n2")
    life.see(*(life.member(f"low{number}", '{"name":"low","min":2}') for number in range(2)))
    life.work(1.0)
    life.see(*(life.member(f"old{number}", '{"name":"old","min":2}', spec={"priority": 5}) for number in range(2)))
    life.work(1.0)
    high = [life.member(f"new{number}", '{"name":"new","min":2}', spec={"priority": 5}) for number in range(2)]
    life.see(*high)
    life.work(2 * HOLD_S)
    life.work(1.0)
    holder = life.machine.pending_groups.holder
    assert holder is not None
    assert holder.name == "old"
    assert _kept_on(life) == ["n1", "n2"]


def test_what_is_kept_is_free_again_when_the_group_goes(life: Life) -> None:
    """The pod that waited for it gets it."""
    _full(life, "n1")
    life.nodes("n2")
    members = [life.member(f"m{number}", PAIR) for number in range(2)]
    life.see(*members)
    life.work(HOLD_S + 1.0)
    life.work(1.0)
    life.see(_single(life, "single"))
    assert _names(life.work(1.0)) == []
    life.gone(members[0])
    found = life.work(2.0)
    assert _names([*found, *life.work(2.0)]) == ["single"]
    assert life.machine.pending_groups.holder is None
    assert len(life.machine.nominator) == 0


def test_a_group_whose_victims_are_leaving_keeps_its_nominations_when_another_one_holds(life: Life) -> None:
    """A younger pod of the same priority does not get the nodes: the victim would have gone in vain."""
    life.nodes("n1")
    life.see(_single(life, "on-n1", spec={"priority": 10}))
    (equal,) = life.bound(*binds(life.work()))
    (lower,) = _full(life, "n2")
    pair(life)
    life.work(HOLD_S + 1.0)
    life.work(1.0)
    assert life.machine.pending_groups.holder is not None
    spec = {"priority": 20, "preemptionPolicy": "Never", "nodeSelector": {"no": "node"}}
    life.see(*(life.member(f"large{number}", '{"name":"large","min":9}', spec=spec) for number in range(9)))
    life.work(HOLD_S - 5.0)
    life.gone(equal)
    assert victims(life.work(1.0)) == ["on-n2"]
    life.see(changed(lower, metadata={"deletionTimestamp": "2026-01-01T00:00:00Z"}))
    life.see(_single(life, "single", spec={"priority": 10}))
    assert binds([*life.work(10.0), *life.work(1.0)]) == []
    assert life.machine.pending_groups.holder.name == "large"
    assert _kept_on(life) == ["n1", "n2"]


def test_a_group_that_holds_is_not_tried_again_without_an_event(life: Life) -> None:
    """What it keeps makes no event that would bring it back."""
    _full(life, "n1")
    life.nodes("n2", "n3")
    life.see(*(life.member(f"m{number}", '{"name":"four","min":4}') for number in range(4)))
    life.work(HOLD_S + 1.0)
    life.work(1.0)
    assert len(life.machine.nominator) == 2
    before = life.machine.group_scheduling.decisions["unschedulable"]
    for _ in range(20):
        life.work(1.0)
    assert life.machine.group_scheduling.decisions["unschedulable"] == before
    assert told(life.work(1.0)) == {}


@pytest.mark.parametrize(("of_group", "own", "is_kept"), [(10, 0, True), (0, 10, False)])
def test_room_is_kept_by_the_priority_of_the_pod_group(life: Life, of_group: int, own: int, is_kept: bool) -> None:
    """A pod between the PodGroup's priority and its members' own gets the room, or does not, by the PodGroup's."""
    first, _ = _full(life, "n1", "n2")
    life.pod_group(schedulingPolicy={"gang": {"minCount": 2}}, priority=of_group)
    spec = {"priority": own, "schedulingGroup": {"podGroupName": "train"}, "preemptionPolicy": "Never"}
    life.see(*(life.member(f"m{number}", "", spec=spec) for number in range(2)))
    life.work(1.0)
    life.work(HOLD_S)
    life.gone(first)
    assert binds(life.work(2.0)) == []
    life.see(_single(life, "between", spec={"priority": 5, "preemptionPolicy": "Never"}))
    assert _names(life.work(1.0)) == ([] if is_kept else ["between"])


def _small(life: Life, number: int, **fields: Any) -> Pod:
    """Return a pod that takes half of what a member needs."""
    return life.make_pod(f"small-{number}", [{}], **fields)


def _small_ones(life: Life, *nodes: str, **fields: Any) -> deque[Pod]:
    """Fill each node with two small pods."""
    life.nodes(*nodes)
    life.see(*(_small(life, number, **fields) for number in range(2 * len(nodes))))
    return deque(life.bound(*binds(life.work())))


def _small_stream(life: Life, running: deque[Pod], pods: int) -> list[str]:
    """Let small pods end one by one, as they came, each followed by another one, until members are bound."""
    for number in range(100, 100 + pods):
        life.see(_small(life, number))
        life.work(1.0)
        life.gone(running.popleft())
        found = life.work(1.0)
        if any(name.startswith("m") for name in _names(found)):
            return _names(found)
        running.extend(life.bound(*binds(found)))
        if not running:
            break
    return []


@pytest.mark.parametrize(("hold_s", "starts"), [(0.0, []), (HOLD_S, ["m0", "m1"])])
def test_a_group_whose_members_need_more_than_ends_at_once_starts_all_the_same(
    make_node: Callable[..., Node],
    make_pf: Callable[..., Pf],
    make_pod: Callable[..., Pod],
    hold_s: float,
    starts: list[str],
) -> None:
    """Each pod that ends leaves one VF, and each member needs two of one node: others get none of what is kept."""
    life = _life(make_node, make_pf, make_pod, hold_s)
    running = _small_ones(life, "n1", "n2", "n3", "n4")
    life.see(*(life.member(f"m{number}", PAIR) for number in range(2)))
    life.work(2 * HOLD_S)
    assert _small_stream(life, running, 200) == starts
    life.machine.check()


def test_nobody_is_sent_away_for_what_is_kept_and_it_only_grows(life: Life) -> None:
    """A node where fewer pods are in the way takes the place of another one, never the other way round."""
    running = _small_ones(life, *(f"n{number}" for number in range(8)))
    life.see(*(life.member(f"m{number}", PAIR) for number in range(2)))
    life.work(2 * HOLD_S)
    in_the_way = [4]
    for number in range(50, 80):
        life.see(_small(life, number))
        life.gone(running.popleft())
        found = life.work(1.0)
        assert orders(found) == []
        if "m0" in _names(found):
            break
        running.extend(life.bound(*binds(found)))
        in_the_way.append(sum(len(life.machine.cache.assigned_pods_on(node)) for node in _kept_on(life)))
    assert in_the_way == sorted(in_the_way, reverse=True)
    assert in_the_way[-1] == 1


def test_room_is_kept_in_the_domain_where_the_most_fit(life: Life) -> None:
    """A group of one rack waits where a member fits now, until fewer pods are in the way in another one."""
    for rack in "abcd":
        life.nodes(*(f"{rack}{number}" for number in range(3)), labels={"rack": rack})
    life.see(*(_small(life, number) for number in range(24)))
    running = life.bound(*binds(life.work()))
    life.see(*(life.member(f"m{number}", '{"name":"racked","min":3,"within":"rack"}') for number in range(3)))
    life.gone(*(pod for pod in running if pod.spec.node_name == "c2"))
    life.work(2 * HOLD_S)
    assert _kept_on(life) == ["c0", "c1", "c2"]
    life.nodes("b3", "b4", labels={"rack": "b"})
    life.work(1.0)
    assert _kept_on(life)[1:] == ["b3", "b4"]


def test_the_nodes_that_are_looked_at_are_those_with_room_and_then_the_emptiest(
    life: Life, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As many as there are members here."""
    monkeypatch.setattr(preempt, "_NODES", 0)
    monkeypatch.setattr(preempt, "_NODES_A_MEMBER", 1)
    running = _small_ones(life, "n1", "n2", "n3", "n4")
    life.see(*(life.member(f"m{number}", PAIR) for number in range(2)))
    life.gone(*(pod for pod in list(running)[4::2]))
    life.work(2 * HOLD_S)
    assert _kept_on(life) == ["n3", "n4"]
    life.gone(running[0], running[2])
    life.work(1.0)
    assert _kept_on(life) == ["n3", "n4"]


def test_pods_of_a_higher_priority_are_not_waited_for(life: Life) -> None:
    """They may stay for ever: then those members that fit are kept room, and no more."""
    _small_ones(life, "n1", spec={"priority": 7})
    life.nodes("n2")
    life.see(*(life.member(f"m{number}", PAIR) for number in range(2)))
    (message,) = set(told(life.work(2 * HOLD_S)).values())
    assert message.endswith("Room is kept for the members that fit.")
    assert _kept_on(life) == ["n2"]


def test_room_on_a_node_that_goes_is_looked_for_elsewhere(life: Life) -> None:
    """What is kept stands and falls as one, and the group is decided about again."""
    _small_ones(life, "n1", "n2", "n3")
    life.see(*(life.member(f"m{number}", PAIR) for number in range(2)))
    life.work(2 * HOLD_S)
    kept = _kept_on(life)
    life.remove_node(kept[0])
    life.work(1.0)
    assert _kept_on(life) == sorted({"n1", "n2", "n3"} - {kept[0]})


def test_a_search_for_room_that_is_not_finished_leaves_what_is_kept(
    life: Life, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Otherwise others would take what has become free so far."""
    running = _small_ones(life, "n1", "n2", "n3")
    life.see(*(life.member(f"m{number}", PAIR) for number in range(2)))
    life.work(2 * HOLD_S)
    kept = _kept_on(life)
    monkeypatch.setattr(preempt, "_ROOM", 0)
    monkeypatch.setattr(preempt, "_ROOM_A_MEMBER", 0)
    life.gone(next(pod for pod in running if pod.spec.node_name == kept[0]))
    life.see(_small(life, 50))
    assert _names(life.work(1.0)) == []
    assert _kept_on(life) == kept


@pytest.mark.parametrize("seed", range(20))
def test_every_group_that_fits_the_cluster_starts_in_the_end(life: Life, seed: int) -> None:
    """Members need any part of a node, pods end in any order, and there is always another one for what they leave."""
    chance = random.Random(seed)
    names = [f"n{number}" for number in range(chance.randint(3, 8))]
    vfs = chance.randint(2, 4)
    life.nodes(*names, vfs=vfs)
    life.see(*(_small(life, number) for number in range(vfs * len(names))))
    running = life.bound(*binds(life.work()))
    size = chance.randint(2, len(names))
    group = f'{{"name":"any","min":{size}}}'
    life.see(*(life.member(f"m{n}", group, request=[{}] * chance.randint(1, vfs)) for n in range(size)))
    life.work(2 * HOLD_S)
    for number in range(100, 100 + 40 * len(running)):
        life.see(_small(life, number))
        life.gone(running.pop(chance.randrange(len(running))))
        found = life.work(1.0)
        if any(name.startswith("m") for name in _names(found)):
            assert len([name for name in _names(found) if name.startswith("m")]) == size
            return
        running.extend(life.bound(*binds(found)))
    pytest.fail(f"the group of {size} has not started, {len(running)} pods run")

"""On which nodes room is kept for a group with first call on what becomes free (``--group-hold``)."""

import random

import pytest

from scheduler.cycle.groups import group_snapshot
from scheduler.cycle.groups.preemption import preempt
from scheduler.cycle.preemption import select_victims
from tests.scheduler.conftest import Json
from tests.scheduler.group_life import PAIR, Life, binds, bound_names, changed, orders, told
from tests.scheduler.pending.groups.conftest import MakeLife
from tests.scheduler.pending.groups.hold_life import (
    HOLD_S,
    full,
    hold,
    kept_on,
    life,
    small,
    small_ones,
    small_stream,
)

RACKED = '{"name":"pair","min":2,"within":"rack"}'
_ENDS: Json = {"spec": {"restartPolicy": "Never"}}

__all__ = ["life"]


@pytest.mark.parametrize(("hold_s", "starts"), [(0.0, []), (HOLD_S, ["m0", "m1"])])
def test_a_group_whose_members_need_more_than_ends_at_once_starts_all_the_same(
    make_life: MakeLife, hold_s: float, starts: list[str]
) -> None:
    """Each pod that ends leaves one VF, and each member needs two of one node: others get none of what is kept."""
    life = make_life(hold_s=hold_s)
    running = small_ones(life, "n1", "n2", "n3", "n4")
    hold(life)
    assert small_stream(life, running, 200) == starts


def test_nobody_is_sent_away_for_what_is_kept_and_it_only_grows(life: Life) -> None:
    """A node where fewer pods are in the way takes the place of another one, never the other way round."""
    running = small_ones(life, *(f"n{number}" for number in range(8)))
    hold(life)
    in_the_way = [4]
    for number in range(50, 80):
        life.see(small(life, number))
        life.gone(running.popleft())
        found = life.work(1.0)
        assert orders(found) == []
        if "m0" in bound_names(found):
            break
        running.extend(life.bound(*binds(found)))
        in_the_way.append(sum(len(life.machine.cache.assigned_pods_on(node)) for node in kept_on(life)))
    assert in_the_way == sorted(in_the_way, reverse=True)
    assert in_the_way[-1] == 1


def test_room_is_kept_in_the_domain_where_the_most_fit(life: Life) -> None:
    """A group of one rack waits where a member fits now, until fewer pods are in the way in another one."""
    for rack in "abcd":
        life.nodes(*(f"{rack}{number}" for number in range(3)), labels={"rack": rack})
    running = life.place(*(small(life, number) for number in range(24)))
    life.members(3, '{"name":"racked","min":3,"within":"rack"}')
    life.gone(*(pod for pod in running if pod.spec.node_name == "c2"))
    life.work(2 * HOLD_S)
    assert kept_on(life) == ["c0", "c1", "c2"]
    life.nodes("b3", "b4", labels={"rack": "b"})
    life.work(1.0)
    assert kept_on(life)[1:] == ["b3", "b4"]


def test_the_nodes_that_are_looked_at_are_those_with_room_and_then_the_emptiest(
    life: Life, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(select_victims, "_FEWEST", 1)
    running = small_ones(life, "n1", "n2", "n3", "n4", **_ENDS)
    life.gone(*(pod for pod in list(running)[4::2]))
    hold(life)
    assert kept_on(life) == ["n3", "n4"]
    life.gone(running[0], running[2])
    life.work(1.0)
    assert kept_on(life) == ["n3", "n4"]


def test_pods_of_a_higher_priority_are_not_waited_for(life: Life) -> None:
    """They may stay for ever: then those members that fit are kept room, and no more."""
    small_ones(life, "n1", spec={"priority": 7})
    life.nodes("n2")
    life.members(2, PAIR)
    (message,) = set(told(life.work(2 * HOLD_S)).values())
    assert message.endswith("Room is kept for the members that fit.")
    assert kept_on(life) == ["n2"]


def test_domains_full_of_pods_of_a_higher_priority_do_not_use_up_the_search(
    life: Life, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The budget is for nodes that may be waited for, however many others there are."""
    monkeypatch.setattr(preempt, "_A_ROOM_SEARCH", 64)
    # The last one of equal ones comes first.
    small_ones(life, "n1", "n2", labels={"rack": "first"})
    for rack in range(8):
        names = [f"high{rack}-{number}" for number in range(12)]
        full(life, *names, labels={"rack": f"high{rack}"}, spec={"priority": 7})
    hold(life, RACKED)
    assert kept_on(life) == ["n1", "n2"]


@pytest.mark.parametrize(
    ("count", "fields", "ends"),
    [(10, {"spec": {"priority": 7}}, {}), (2, {}, _ENDS), (10, {}, _ENDS)],
    ids=["higher priority", "two of Deployments", "Deployments"],
)
def test_pods_that_do_not_end_are_not_waited_for_where_others_do(
    life: Life, monkeypatch: pytest.MonkeyPatch, count: int, fields: Json, ends: Json
) -> None:
    """One such pod is in the way on some nodes, or on more than are looked at closely, and two on each other node."""
    monkeypatch.setattr(select_victims, "_FEWEST", 4)
    full(life, *(f"other{number}" for number in range(count)), **fields)
    running = small_ones(life, "n3", "n4", **ends)
    hold(life)
    assert kept_on(life) == ["n3", "n4"]
    assert small_stream(life, running, 8, **ends) == ["m0", "m1"]


def test_pods_that_are_being_deleted_end_whatever_their_restart_policy(
    life: Life, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(select_victims, "_FEWEST", 1)
    services = full(life, "n1", "n2")
    small_ones(life, "n3", "n4", **_ENDS)
    life.members(2, PAIR)
    life.see(*(changed(pod, metadata={"deletionTimestamp": "2026-01-01T00:00:00Z"}) for pod in services))
    life.work(2 * HOLD_S)
    assert kept_on(life) == ["n1", "n2"]


def test_pods_that_do_not_end_are_waited_for_where_there_is_no_other_place(life: Life) -> None:
    services = full(life, "n1", "n2")
    small_ones(life, "n3", **_ENDS)
    hold(life)
    kept = kept_on(life)
    assert kept in (["n1", "n3"], ["n2", "n3"])
    life.gone(*(pod for pod in services if pod.spec.node_name not in kept))
    assert bound_names(life.work(1.0)) == []
    assert kept_on(life) == sorted({"n1", "n2", "n3"} - set(kept) | {"n3"})


def test_a_domain_with_room_is_left_for_one_where_all_in_the_way_end(life: Life) -> None:
    """Otherwise the free node would be kept for ever, beside one that never becomes free."""
    full(life, "a1", "a2", labels={"rack": "a"})
    small_ones(life, "b1", "b2", "b3", labels={"rack": "b"}, **_ENDS)
    life.nodes("a3", labels={"rack": "a"})
    hold(life, RACKED)
    assert {node[0] for node in kept_on(life)} == {"b"}


def test_nodes_are_judged_in_portions(life: Life, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(group_snapshot, "A_TURN", 1)
    full(life, *(f"high{number}" for number in range(6)), spec={"priority": 7})
    full(life, "n1", "n2")
    life.members(2, PAIR)
    life.work(HOLD_S - 1.0)
    life.now += 2.0
    life.machine.tick(life.now)
    turns = 0
    while life.machine.step(life.now) is not None:
        turns += 1
    assert turns >= 8
    assert kept_on(life) == ["n1", "n2"]


def test_room_on_a_node_that_goes_is_looked_for_elsewhere(life: Life) -> None:
    """What is kept stands and falls as one, and the group is decided about again."""
    small_ones(life, "n1", "n2", "n3")
    hold(life)
    kept = kept_on(life)
    life.remove_node(kept[0])
    life.work(1.0)
    assert kept_on(life) == sorted({"n1", "n2", "n3"} - {kept[0]})


def test_a_search_for_room_that_is_not_finished_leaves_what_is_kept(
    life: Life, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Otherwise others would take what has become free so far."""
    running = small_ones(life, "n1", "n2", "n3")
    hold(life)
    kept = kept_on(life)
    monkeypatch.setattr(preempt, "_A_ROOM_SEARCH", 0)
    life.gone(next(pod for pod in running if pod.spec.node_name == kept[0]))
    life.see(small(life, 50))
    assert bound_names(life.work(1.0)) == []
    assert kept_on(life) == kept


@pytest.mark.parametrize("seed", range(20))
def test_every_group_that_fits_the_cluster_starts_in_the_end(life: Life, seed: int) -> None:
    """Members need any part of a node, pods end in any order, and there is always another one for what they leave."""
    chance = random.Random(seed)
    names = [f"n{number}" for number in range(chance.randint(3, 8))]
    vfs = chance.randint(2, 4)
    life.nodes(*names, vfs=vfs)
    running = life.place(*(small(life, number) for number in range(vfs * len(names))))
    size = chance.randint(2, len(names))
    group = f'{{"name":"any","min":{size}}}'
    life.see(*(life.member(f"m{n}", group, request=[{}] * chance.randint(1, vfs)) for n in range(size)))
    life.work(2 * HOLD_S)
    for number in range(100, 100 + 40 * len(running)):
        life.see(small(life, number))
        life.gone(running.pop(chance.randrange(len(running))))
        found = life.work(1.0)
        if any(name.startswith("m") for name in bound_names(found)):
            assert len([name for name in bound_names(found) if name.startswith("m")]) == size
            return
        running.extend(life.bound(*binds(found)))
    pytest.fail(f"the group of {size} has not started, {len(running)} pods run")

"""Preemption by groups: others go only if all of what is needed fits then, and nobody goes for a part of a group."""

import itertools
from collections.abc import Iterator
from random import Random
from typing import Any

import msgspec
import pytest

from mooring.annotations.inventory import HELD_BY, Out
from mooring.indexes import Indexes
from mooring.kube.events import Changed, Identity, Removed
from scheduler.cycle.instructions import DeleteVictimsResult, Report
from scheduler.cycle.preemption.preemption import VF_PATIENCE_S
from scheduler.kube.selecting_objects import PodDisruptionBudget
from scheduler.kube.workload_objects import PodGroup
from scheduler.state.machine import Machine
from tests.scheduler.group_life import (
    PAIR,
    Life,
    MakeNode,
    MakePf,
    MakePod,
    binds,
    changed,
    fill,
    kept_on,
    orders,
    pair,
    told,
    victims,
)

GONE = {"deletionTimestamp": "2026-01-01T00:00:00Z"}


@pytest.fixture
def life(make_node: MakeNode, make_pf: MakePf, make_pod: MakePod) -> Iterator[Life]:
    life = Life(Machine("mooring"), make_node, make_pf, make_pod)
    yield life
    life.machine.check()


def test_a_group_sends_others_away_if_all_of_it_fits_then(life: Life) -> None:
    """In one order; the members are nominated, and start together once all victims are gone."""
    running = fill(life, "n1", "n2")
    pair(life)
    found = life.work()
    assert victims(found) == ["on-n1", "on-n2"]
    assert kept_on(life) == ["n1", "n2"]
    life.gone(running[0])
    assert binds(life.work(15.0)) == []
    life.gone(running[1])
    assert len(binds(life.work(15.0))) == 2
    assert len(life.machine.reservations) == 0


def test_nobody_goes_for_a_part_of_a_group(life: Life) -> None:
    """One member would fit without the pod, two never do."""
    fill(life, "n1")
    pair(life)
    found = life.work()
    assert victims(found) == []
    why = "preemption: no pods of lower priority were found whose eviction makes room for enough members."
    assert told(found)["m0"].endswith(why)


def test_nobody_goes_for_a_group_that_would_not_start_then(life: Life) -> None:
    """While a rack is full, the small slice goes to the other one; later it would take the large slice's room."""
    for rack, vfs in (("large", 6), ("small", 2)):
        life.nodes(rack, vfs=vfs, labels={"rack": rack})
    life.place(life.make_pod("low", [{}] * 6))
    group = '{"name":"train","min":4,"slices":{"size":2,"within":"rack"}}'
    for rank, vfs in enumerate((1, 1, 3, 3)):
        life.see(life.member(f"m-{rank}", group, request=[{}] * vfs, spec={"priority": 10}))
    assert victims(life.work()) == []


def test_room_that_is_free_is_taken_before_anybody_goes(life: Life) -> None:
    fill(life, "n1", "n2")
    life.nodes("n3")
    pair(life)
    assert len(victims(life.work())) == 1


def test_pods_of_the_same_priority_stay(life: Life) -> None:
    fill(life, "n1", "n2", spec={"priority": 10})
    pair(life)
    assert victims(life.work()) == []


def test_a_group_that_must_not_preempt_does_not(life: Life) -> None:
    fill(life, "n1", "n2")
    pair(life, preemptionPolicy="Never")
    found = life.work()
    assert victims(found) == []
    assert "preemptionPolicy=Never" in told(found)["m0"]


def test_victims_that_take_long_are_waited_for(life: Life) -> None:
    """No further pods go meanwhile, though others could."""
    running = fill(life, "n1", "n2", "n3", "n4")
    pair(life)
    found = life.work()
    gone = [one for one in running if one.metadata.name in victims(found)]
    assert len(gone) == 2
    life.see(*(changed(one, metadata=GONE) for one in gone))
    life.gone(gone[0])
    for _ in range(5):
        later = life.work(20.0)
        assert (victims(later), binds(later)) == ([], [])
    life.gone(gone[1])
    assert len(binds(life.work(20.0))) == 2


def test_a_new_leader_that_finds_half_of_the_victims_deleted_deletes_the_others(life: Life) -> None:
    """The one before was killed between two deletions; what is going already costs nothing."""
    running = fill(life, "n1", "n2", "n3", "n4")
    life.see(changed(running[2], metadata=GONE))
    pair(life)
    found = life.work()
    assert len(victims(found)) == 1
    assert "n3" in kept_on(life)


def test_a_more_important_pod_takes_the_room_and_the_group_is_decided_about_again(life: Life) -> None:
    """All its nominations fall; nobody goes for it that does not help all of it."""
    running = fill(life, "n1", "n2")
    pair(life)
    life.work()
    life.see(life.make_pod("urgent", [{}, {}], spec={"priority": 99}))
    life.gone(running[0])
    found = life.work(1.0)
    assert [one.pod_info.pod.metadata.name for one in binds(found)] == ["urgent"]
    life.bound(*binds(found))
    found = life.work(30.0)
    assert (victims(found), binds(found)) == ([], [])
    life.gone(running[1])
    assert binds(life.work(30.0)) == []
    assert len(life.machine.reservations) == 0


def test_a_less_important_pod_does_not_take_the_room(life: Life) -> None:
    """What one victim leaves is kept until the last one is gone, and the whole group fits."""
    running = fill(life, "n1", "n2")
    pair(life)
    life.work()
    life.see(life.make_pod("single", [{}, {}], spec={"priority": 9}))
    life.gone(running[0])
    assert binds(life.work(15.0)) == []
    life.gone(running[1])
    assert sorted(one.pod_info.pod.metadata.name for one in binds(life.work(15.0))) == ["m0", "m1"]


def test_the_nominations_fall_as_one_if_a_victim_cannot_be_deleted(life: Life) -> None:
    fill(life, "n1", "n2")
    pair(life)
    (order,) = orders(life.work())
    reports = life.machine.finished(order, DeleteVictimsResult((), "forbidden"), life.now)
    assert len(life.machine.reservations) == 0
    assert told(reports) == {}
    assert life.machine.next_due() == 0.0
    assert told(life.machine.tick(life.now)) == dict.fromkeys(
        ("m0", "m1"), "the API server rejected the preemption: forbidden"
    )
    # Nothing happened that could help: it comes again by itself.
    assert victims(life.work()) == []
    assert len(victims(life.work(15.0))) == 2


def test_the_nominations_fall_as_one_if_a_member_goes_and_is_not_made_again(life: Life) -> None:
    fill(life, "n1", "n2")
    members = pair(life)
    life.work()
    life.gone(members[0])
    life.work(29.0)
    assert len(life.machine.reservations) == 2
    life.work(30.0)
    assert len(life.machine.reservations) == 0


def test_no_room_is_kept_for_a_group_that_is_not_decided_about_any_more(life: Life) -> None:
    """Its PodGroup is gone."""
    life.pod_group("pair", schedulingPolicy={"gang": {"minCount": 2}}, priority=10)
    fill(life, "n1", "n2")
    pair(life, group="", schedulingGroup={"podGroupName": "pair"})
    assert len(victims(life.work())) == 2
    assert len(life.machine.reservations) == 2
    life.machine.handle(PodGroup, Removed(Identity("pair", "default")), life.now)
    life.work(30.0)
    assert len(life.machine.reservations) == 0


def test_vfs_that_are_not_free_yet_are_waited_for_and_not_for_ever(life: Life) -> None:
    """The victims are gone, one node still holds a VF: nobody else goes until the time is over, then others do."""
    running = fill(life, "n1", "n2", "n3", "n4")
    pair(life)
    going = victims(life.work())
    assert len(going) == 2
    gone = [one for one in running if one.metadata.name in going]
    held = Out(Indexes.of([0]), f"{HELD_BY}{gone[0].metadata.uid}")
    node = gone[0].spec.node_name or ""
    shown = life.make_node(node, (life.make_pf(vfs=2, out=(held,)),))
    life.machine.nodes(Changed(Identity(node), shown), life.now)
    life.gone(*gone)
    found = life.work(15.0)
    assert (victims(found), binds(found)) == ([], [])
    assert len(life.machine.reservations) == 2
    later = life.work(VF_PATIENCE_S + 1.0) + life.work(15.0)
    assert len(victims(later)) == 1
    assert node not in kept_on(life)


def test_budgets_are_spared_over_all_nodes(life: Life) -> None:
    """One of two pods may be disrupted, so two nodes of the same app are worse than one of it and another pod."""
    fill(life, "n1", "n2", metadata={"labels": {"app": "kept"}})
    fill(life, "n3", spec={"priority": 1})
    budget: dict[str, Any] = {
        "metadata": {"name": "kept", "namespace": "default"},
        "spec": {"selector": {"matchLabels": {"app": "kept"}}},
        "status": {"disruptionsAllowed": 1},
    }
    item = msgspec.convert(budget, PodDisruptionBudget)
    life.machine.handle(PodDisruptionBudget, Changed(Identity("kept", "default"), item), life.now)
    pair(life)
    found = victims(life.work())
    assert len(found) == 2
    assert "on-n3" in found


@pytest.mark.parametrize("group", ["", PAIR])
def test_a_podgroup_that_puts_its_pods_lower_makes_them_victims(life: Life, group: str) -> None:
    """No pod has a lower priority itself; without its PodGroup's they would stay."""
    life.pod_group("low", schedulingPolicy={"gang": {"minCount": 2}}, disruptionMode="PodGroup", priority=1)
    life.nodes("n1", "n2")
    low = [
        life.member(f"low{number}", "", spec={"priority": 50, "schedulingGroup": {"podGroupName": "low"}})
        for number in range(2)
    ]
    life.see(*low)
    life.bound(*binds(life.work()))
    life.see(*(life.member(f"m{number}", group, spec={"priority": 10}) for number in range(2 if group else 1)))
    assert victims(life.work()) == ["low0", "low1"]
    life.machine.handle(PodGroup, Removed(Identity("low", "default")), life.now)
    assert not life.machine.group_cache.pod_groups.has_below(10**9)


def test_a_group_sends_away_a_whole_group(life: Life) -> None:
    whole = {"schedulingPolicy": {"gang": {"minCount": 2}}, "disruptionMode": "PodGroup"}
    life.pod_group("low", **whole)
    life.nodes("n1", "n2")
    life.see(*(life.member(f"low{k}", "", spec={"schedulingGroup": {"podGroupName": "low"}}) for k in range(2)))
    life.bound(*binds(life.work()))
    pair(life)
    assert victims(life.work()) == ["low0", "low1"]


def test_who_must_go_for_the_sake_of_one_node_only_stays_if_a_group_makes_room_there(life: Life) -> None:
    """First a single pod is the cheapest on n2; then a whole group goes for n1, which frees enough on n2 too."""
    life.pod_group("low", schedulingPolicy={"gang": {"minCount": 2}}, disruptionMode="PodGroup", priority=1)
    member = {"schedulingGroup": {"podGroupName": "low"}, "priority": 1}
    life.nodes("n1", vfs=1, spec={"unschedulable": True})
    life.nodes("n2", vfs=2)
    life.see(life.make_pod("single", [{}]))
    life.bound(*binds(life.work()))
    life.nodes("n1", vfs=1)
    life.see(*(life.member(f"low{k}", "", request=[{}], spec=member) for k in range(2)))
    life.bound(*binds(life.work()))
    life.see(*(life.member(f"m{k}", PAIR, request=[{}], spec={"priority": 10}) for k in range(2)))
    assert victims(life.work()) == ["low0", "low1"]


def test_one_domain_at_a_time_and_the_one_where_the_least_is_lost(life: Life) -> None:
    """Rack a has one node only, b has more important pods than c."""
    for rack, names, priority in (("a", ["a1"], 0), ("b", ["b1", "b2"], 5), ("c", ["c1", "c2"], 1)):
        life.nodes(*names, labels={"rack": rack})
        life.see(*(life.make_pod(f"on-{name}", [{}, {}], spec={"priority": priority}) for name in names))
        life.bound(*binds(life.work()))
    pair(life, group='{"name":"pair","min":2,"within":"rack"}')
    assert victims(life.work()) == ["on-c1", "on-c2"]


def test_members_with_rules_about_other_nodes_preempt_nobody_and_are_told(life: Life) -> None:
    """Whether they fit depends on more than a node."""
    fill(life, "n1", "n2")
    spread = {"maxSkew": 1, "topologyKey": "zone", "whenUnsatisfiable": "DoNotSchedule", "labelSelector": {}}
    pair(life, topologySpreadConstraints=[spread])
    found = life.work()
    assert victims(found) == []


def test_a_group_does_not_send_its_own_members_away(life: Life) -> None:
    """They count: without them the one that waits would not be enough."""
    life.nodes("n1", "n2")
    life.see(*(life.member(f"old{number}", PAIR, spec={"priority": 0}) for number in range(2)))
    old = life.bound(*binds(life.work()))
    life.gone(old[1])
    life.see(life.make_pod("above", [{}, {}], spec={"priority": 20}))
    life.bound(*binds(life.work(1.0)))
    life.see(life.member("new", PAIR, spec={"priority": 10}))
    assert victims(life.work(20.0)) == []


def test_room_of_a_nominated_pod_above_the_group_is_not_counted_on(life: Life) -> None:
    """The PodGroup's priority counts, not that of its pods."""
    life.pod_group("pair", schedulingPolicy={"gang": {"minCount": 2}}, priority=10)
    fill(life, "n1", "n2")
    life.see(life.make_pod("above", [{}, {}], spec={"priority": 50}))
    assert len(victims(life.work())) == 1
    pair(life, group="", priority=100, schedulingGroup={"podGroupName": "pair"})
    assert victims(life.work()) == []


def test_members_beyond_the_least_send_others_away_at_once(life: Life) -> None:
    """As soon as enough are placed; no event has to come first."""
    fill(life, "n3")
    life.nodes("n1", "n2")
    life.see(*(life.member(f"m{number}", PAIR, spec={"priority": 10}) for number in range(3)))
    found = life.work()
    assert len(binds(found)) == 2
    assert victims(found) == ["on-n3"]


def test_each_victim_is_told_its_own_node(life: Life) -> None:
    fill(life, "n1", "n2")
    pair(life)
    (order,) = orders(life.work())
    reports = life.machine.finished(order, DeleteVictimsResult(order.victims), life.now)
    nodes = {one.pod.metadata.name: one.message.rpartition(" ")[2] for one in reports if isinstance(one, Report)}
    assert nodes == {"on-n1": "n1", "on-n2": "n2"}


def test_a_new_leader_waits_for_vfs_of_pods_that_the_old_one_sent_away(life: Life) -> None:
    """It sees them leave, and sends nobody else away while one node still holds a VF of theirs."""
    running = fill(life, "n1", "n2", "n3", "n4")
    life.see(*(changed(one, metadata=GONE) for one in running[:2]))
    pair(life)
    assert victims(life.work()) == []
    held = Out(Indexes.of([0]), f"{HELD_BY}{running[0].metadata.uid}")
    life.machine.nodes(Changed(Identity("n1"), life.make_node("n1", (life.make_pf(vfs=2, out=(held,)),))), life.now)
    life.gone(*running[:2])
    found = life.work(15.0)
    assert (victims(found), binds(found)) == ([], [])
    life.nodes("n1")
    assert len(binds(life.work(15.0))) == 2


def test_a_wait_for_vfs_that_is_over_makes_nothing_due(life: Life) -> None:
    """The VFs are back, and the group was not decided about since."""
    running = fill(life, "n1", "n2")
    pair(life)
    life.work()
    held = Out(Indexes.of([0]), f"{HELD_BY}{running[0].metadata.uid}")
    life.machine.nodes(Changed(Identity("n1"), life.make_node("n1", (life.make_pf(vfs=2, out=(held,)),))), life.now)
    life.gone(*running)
    life.work(15.0)
    assert life.machine.reservations.next_due() is not None
    life.nodes("n1")
    life.machine.tick(life.now + VF_PATIENCE_S + 1.0)
    assert life.machine.reservations.next_due() is None
    assert len(life.machine.reservations) == 2


@pytest.mark.parametrize("seed", range(40))
def test_pods_go_exactly_if_brute_force_fits_the_group_then(
    make_node: MakeNode, make_pf: MakePf, make_pod: MakePod, seed: int
) -> None:
    """Equal members on small clusters with pods of several sizes and priorities."""
    random = Random(seed)
    life = Life(Machine("mooring", portion=1), make_node, make_pf, make_pod)
    room = {f"n{k}": random.randint(1, 5) for k in range(3)}
    for name, vfs in room.items():
        life.nodes(name, vfs=vfs)
    pods = dict[str, tuple[int, int]]()
    for k in range(random.randint(2, 7)):
        pods[f"p{k}"] = random.randint(1, 3), random.choice((0, 3, 20))
        size, priority = pods[f"p{k}"]
        life.see(life.make_pod(f"p{k}", [{}] * size, spec={"priority": priority}))
        life.bound(*binds(life.work()))
    on = {one.pod.partition("/")[2]: one.node for one in life.machine.cache.assigned_pods()}
    size, count = random.randint(1, 3), random.randint(2, 4)
    group = f'{{"name":"g","min":{count}}}'
    life.see(*(life.member(f"m{k}", group, request=[{}] * size, spec={"priority": 10}) for k in range(count)))

    def fits(without: tuple[str, ...]) -> bool:
        left = {n: v - sum(pods[p][0] for p, at in on.items() if at == n and p not in without) for n, v in room.items()}
        return sum(max(vfs, 0) // size for vfs in left.values()) >= count

    lower = tuple(name for name in on if pods[name][1] < 10)
    found = life.work()
    assert bool(binds(found)) == fits(())
    gone = tuple(victims(found))
    assert bool(gone) == (fits(lower) and not fits(()))
    if gone:
        assert fits(gone)
        assert not any(fits(some) for some in itertools.combinations(gone, len(gone) - 1)), "one need not go"

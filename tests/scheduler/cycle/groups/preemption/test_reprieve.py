"""Who stays when a group preempts: in which order, and, against brute force on small clusters, how many."""

import itertools
import json
from random import Random

import msgspec
import pytest

from mooring.kube.events import Changed, Identity
from scheduler.cycle.groups.group_snapshot import Turns
from scheduler.cycle.groups.preemption import preempt
from scheduler.cycle.groups.preemption.victim_plan import PlanSearch, VictimPlan
from scheduler.kube.selecting_objects import PodDisruptionBudget
from scheduler.state.machine import Machine
from tests.scheduler.conftest import MakeNode, MakePf, MakePod
from tests.scheduler.group_life import PAIR, Life, binds, changed, fill, pair, told, victims

Free = dict[str, int]


def _fit(free: Free, members: list[int], least: int) -> bool:
    """Return whether so many members with these numbers of VFs fit, by trying every node for every member."""
    for where in itertools.product([*free, ""], repeat=len(members)):
        if where.count("") > len(members) - least:
            continue
        wanted = {node: sum(vfs for vfs, at in zip(members, where, strict=True) if at == node) for node in free}
        if all(wanted[node] <= free[node] for node in free):
            return True
    return False


def _superfluous(life: Life, random: Random, *, is_equal: bool) -> list[str]:
    """Let a group of a small cluster send others away; return who of them could have stayed, each by itself."""
    free: Free = {f"n{number}": random.randint(2, 5) for number in range(random.randint(2, 4))}
    for node, vfs in free.items():
        life.nodes(node, vfs=vfs, labels={"name": node})
    held = dict[str, tuple[str, int]]()
    for number in range(random.randint(3, 8)):
        node, vfs = random.choice(list(free)), random.randint(1, 3)
        if vfs <= free[node]:
            free[node] -= vfs
            held[f"low{number}"] = node, vfs
            spec = {"nodeSelector": {"name": node}, "priority": random.randint(0, 3)}
            life.see(life.make_pod(f"low{number}", [{}] * vfs, spec=spec))
            life.bound(*binds(life.work()))
    size = random.randint(1, 3)
    members = [size if is_equal else random.randint(1, 3) for _ in range(random.randint(2, 4))]
    least = random.randint(max(len(members) - 1, 1), len(members))
    group = json.dumps({"name": "train", "min": least})
    life.see(*(life.member(f"m{k}", group, request=[{}] * vfs, spec={"priority": 10}) for k, vfs in enumerate(members)))
    made = life.work()
    if binds(made):
        # Enough of them fit as it was, and the others send away for themselves.
        return []
    gone, found = victims(made), []
    for stays in gone:
        without = dict(free)
        for name in gone:
            node, vfs = held[name]
            without[node] += vfs if name != stays else 0
        found += [stays] if _fit(without, members, least) else []
    return found


@pytest.mark.parametrize("seed", range(120))
def test_no_victim_of_equal_members_could_stay(life: Life, seed: int) -> None:
    assert _superfluous(life, Random(seed), is_equal=True) == []


def test_hardly_any_victim_of_unequal_members_could_stay(
    make_node: MakeNode, make_pf: MakePf, make_pod: MakePod
) -> None:
    """Members are put on nodes in three orders only: of 300 groups one has a victim too many."""
    lives = (Life(Machine("mooring"), make_node, make_pf, make_pod) for _ in range(300))
    assert sum(bool(_superfluous(life, Random(seed), is_equal=False)) for seed, life in enumerate(lives)) <= 2


def _racks(life: Life, *priorities: int) -> None:
    """Fill two nodes of a rack for each priority, and let a pair come that wants one rack."""
    for number, priority in enumerate(priorities):
        nodes = [f"n{number}{letter}" for letter in "ab"]
        fill(life, *nodes, spec={"priority": priority})
        life.nodes(*nodes, labels={"rack": f"r{number}"})
    pair(life, group='{"name":"pair","min":2,"within":"rack"}')


def test_the_domain_with_the_smallest_loss_is_taken(life: Life) -> None:
    """Each domain is better than the one before it."""
    _racks(life, 5, 4, 3, 2)
    assert victims(life.work()) == ["on-n3a", "on-n3b"]


def test_a_search_that_is_spent_takes_the_best_domain_until_then(life: Life, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(preempt, "_A_SEARCH", 3)
    _racks(life, 5, 4, 3, 2)
    assert victims(life.work()) == ["on-n0a", "on-n0b"]


def test_a_search_ends_within_a_domain(life: Life, monkeypatch: pytest.MonkeyPatch) -> None:
    """Members that differ are tried without the pods of each of 8 priorities."""
    tries, best_plan = list[int](), PlanSearch.best_plan

    def count(search: PlanSearch) -> Turns[VictimPlan | None]:
        plan = yield from best_plan(search)
        tries.append(search.try_count)
        return plan

    for number in range(8):
        fill(life, f"n{number}", spec={"priority": number})
    monkeypatch.setattr(preempt, "_A_SEARCH", 20)
    monkeypatch.setattr(PlanSearch, "best_plan", count)
    for number in range(10):
        fields = {"spec": {"priority": 10}, "metadata": {"labels": {"rank": str(number)}}}
        life.see(life.member(f"m{number}", '{"name":"g","min":10}', request=[{}] * (1 + number % 2), **fields))
    assert "ran out of steps" in told(life.work())["m0"]
    assert max(tries) < 20 + 10


def test_the_most_important_victim_stays(life: Life) -> None:
    for node, priority in (("n1", 5), ("n2", 3), ("n3", 1)):
        fill(life, node, spec={"priority": priority})
    pair(life)
    assert victims(life.work()) == ["on-n2", "on-n3"]


def test_a_victim_that_has_run_longer_stays(life: Life) -> None:
    for second, node in zip((2, 1, 0), ("n1", "n2", "n3"), strict=True):
        (pod,) = fill(life, node)
        life.see(changed(pod, status={"startTime": f"2026-01-01T00:00:0{second}Z", "phase": "Running"}))
    pair(life)
    assert victims(life.work()) == ["on-n1", "on-n2"]


@pytest.mark.parametrize("allowed", [0, 1])
def test_victims_whose_removal_violates_a_budget_stay_before_more_important_ones(life: Life, allowed: int) -> None:
    """As many of them go as the budget allows, the least important."""
    for node, priority in (("n1", 2), ("n2", 1)):
        fill(life, node, spec={"priority": priority}, metadata={"labels": {"app": "kept"}})
    fill(life, "n3", "n4", spec={"priority": 5})
    budget = {
        "metadata": {"name": "kept", "namespace": "default"},
        "spec": {"selector": {"matchLabels": {"app": "kept"}}},
        "status": {"disruptionsAllowed": allowed},
    }
    item = msgspec.convert(budget, PodDisruptionBudget)
    life.machine.handle(PodDisruptionBudget, Changed(Identity("kept", "default"), item), life.now)
    pair(life)
    gone = victims(life.work())
    assert gone == (["on-n3", "on-n4"] if not allowed else ["on-n2", gone[1]])
    assert "on-n1" not in gone


def test_a_whole_group_stays_before_single_pods_of_its_priority(life: Life) -> None:
    """It is put back as a whole, though one of its nodes alone would do."""
    life.pod_group("low", schedulingPolicy={"gang": {"minCount": 2}}, disruptionMode="PodGroup")
    life.nodes("n1", "n2")
    life.see(*(life.member(f"low{k}", "", spec={"schedulingGroup": {"podGroupName": "low"}}) for k in range(2)))
    life.bound(*binds(life.work()))
    fill(life, "n3", "n4")
    pair(life)
    assert victims(life.work()) == ["on-n3", "on-n4"]


@pytest.mark.parametrize("selected", ["train", "other"])
def test_a_victim_that_stays_keeps_no_member_off_another_node(life: Life, selected: str) -> None:
    """Its anti-affinity concerns the whole zone; it goes too, unless it selects no member."""
    life.nodes("n1", vfs=4, labels={"zone": "a"})
    term = {"topologyKey": "zone", "labelSelector": {"matchLabels": {"app": selected}}}
    affinity = {"podAntiAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": [term]}}
    life.see(life.make_pod("guard", [{}] * 4, spec={"affinity": affinity, "priority": 5}))
    life.bound(*binds(life.work()))
    life.nodes("n2", "n3", labels={"zone": "a"})
    life.see(*(life.make_pod(f"low{number}", [{}] * 2) for number in range(2)))
    life.bound(*binds(life.work()))
    labels = {"labels": {"app": "train"}}
    life.see(*(life.member(f"m{k}", PAIR, spec={"priority": 10}, metadata=labels) for k in range(2)))
    gone = victims(life.work())
    assert ("guard" in gone) == (selected == "train")
    if selected == "other":
        assert gone == ["low0", "low1"]


def test_members_of_a_slice_move_within_its_domain_for_a_victim_to_stay(life: Life) -> None:
    """Two nodes of a clique have four VFs, of which two pods have one each: three members fit there without one pod."""
    for clique in "ab":
        life.nodes(f"{clique}0", f"{clique}1", vfs=2 if clique == "a" else 3, labels={"clique": clique})
    for clique, vfs, priority in (("a", 1, 0), ("b", 2, 20)):
        spec = {"nodeSelector": {"clique": clique}, "priority": priority}
        life.see(*(life.make_pod(f"{clique}-{number}", [{}] * vfs, spec=spec) for number in range(2)))
        life.bound(*binds(life.work()))
    group = '{"name":"train","min":3,"slices":{"size":3,"within":"clique"}}'
    life.see(*(life.member(f"train-{k}", group, request=[{}], spec={"priority": 10}) for k in range(3)))
    assert len(victims(life.work())) == 1

"""How often somebody leaves for a group who could stay: against brute force on small clusters."""

import itertools
import json
from random import Random

import pytest

from scheduler.cycle.groups.group_budget import Turns
from scheduler.cycle.groups.preemption.preempt import Reprieve
from scheduler.cycle.preemption.potential_victims import Victim
from scheduler.state.machine import Machine
from tests.scheduler.conftest import MakeNode, MakePf, MakePod
from tests.scheduler.group_life import Life, binds, fill, pair, victims

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
    """Members are put on nodes in three orders only: of 300 groups seven have a victim too many."""
    lives = (Life(Machine("mooring"), make_node, make_pf, make_pod) for _ in range(300))
    assert sum(bool(_superfluous(life, Random(seed), is_equal=False)) for seed, life in enumerate(lives)) <= 9


def test_members_move_only_in_the_best_domain_and_count_as_dry_runs(
    life: Life, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Each domain is better than the one before it."""
    move_counts, run = list[int](), Reprieve.run

    def count_moves(reprieve: Reprieve) -> Turns[list[Victim]]:
        earlier_count = reprieve._row_victims.dry_run_count
        chosen = yield from run(reprieve)
        move_counts.append(reprieve._row_victims.dry_run_count - earlier_count)
        return chosen

    monkeypatch.setattr(Reprieve, "run", count_moves)
    for number, priority in enumerate((5, 4, 3, 2)):
        nodes = [f"n{number}{letter}" for letter in "ab"]
        fill(life, *nodes, spec={"priority": priority})
        life.nodes(*nodes, labels={"rack": f"r{number}"})
    pair(life, group='{"name":"pair","min":2,"within":"rack"}')
    assert victims(life.work()) == ["on-n3a", "on-n3b"]
    assert move_counts == [2]

"""A decision is the same in however many turns it is made; judging nodes by a new request is divided among turns."""

from random import Random
from typing import Any

import pytest

from mooring import names
from mooring.annotations.assignment import read_assignment
from scheduler.cycle.groups import group_snapshot
from scheduler.cycle.instructions import Instruction
from scheduler.cycle.placement_budget import PlacementBudget
from tests.scheduler.cycle.groups.scene import Scene
from tests.scheduler.group_life import binds, told

_NODES, _A_TURN = 40, 15


def _show(life: Scene, random: Random) -> None:
    for number in range(random.randint(3, 6)):
        networks = random.sample([f"rail{k}" for k in range(8)], random.randint(1, 6))
        pfs = " ".join(f"{network}:{random.randint(0, 3)}" for network in networks)
        life.wire(f"n{number} {pfs}", labels={"leaf": random.choice("ab")})
    count = random.randint(2, 5)
    group: dict[str, Any] = {"rails": random.choice(("same", "index"))} if random.random() < 0.7 else {}
    group |= random.choice(({}, {"within": "leaf"}, {"prefer": ["leaf"]}))
    requests = [[{"min_tx_rate": random.choice((0, 30_000, 50_000))}] * random.randint(1, 2) for _ in range(2)]
    life.ask(*random.choices(requests, k=count), min=random.randint(1, count), **group)


def _outcome(life: Scene, seed: int) -> tuple[dict[str, Any], dict[str, str], int]:
    _show(life, Random(seed))
    steps, found = 0, list[Instruction]()
    while (made := life.machine.step(life.now)) is not None:
        steps += 1
        found += made
    where = {
        one.pod_info.pod.metadata.name: (one.assigned.node, read_assignment(one.annotations[names.ASSIGNMENT]).vfs)
        for one in binds(found)
    }
    return where, told(found), steps


@pytest.mark.parametrize("seed", range(150))
def test_of_one_decision_in_many_turns(life: Scene, monkeypatch: pytest.MonkeyPatch, seed: int) -> None:
    where, why, steps = _outcome(life, seed)
    # Whatever is counted ends the turn.
    monkeypatch.setattr(group_snapshot, "A_TURN", 1)
    again, why_again, more_steps = _outcome(life.successor(), seed)
    assert (again, why_again) == (where, why)
    assert more_steps >= steps


def _show_pfs(life: Scene, **texts: str) -> None:
    """Show nodes with two PFs each; fields of PF ``k`` of node ``n`` have these texts."""
    for n in range(_NODES):
        fields = [{field: text.format(n=n, k=k) for field, text in texts.items()} for k in range(2)]
        life.put_node(f"n{n}", *(life.make_pf(k, **fields[k]) for k in range(2)))


@pytest.fixture
def few_values(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(group_snapshot, "VALUES_A_TURN", _A_TURN)
    monkeypatch.setattr(group_snapshot, "_A_VALUE", group_snapshot.A_TURN // _A_TURN)


def _judged_by_step(monkeypatch: pytest.MonkeyPatch, life: Scene, **group: Any) -> list[int]:
    """Let a group of eight start; return how many values each step judged."""
    judged, bound = [0], 0

    class Counted(PlacementBudget):
        def judge(self) -> None:
            super().judge()
            judged[-1] += 1

    monkeypatch.setattr(group_snapshot, "PlacementBudget", Counted)
    life.ask(*[[{"min_tx_rate": 1000}, {}]] * 8, **group)
    while (made := life.machine.step(0.0)) is not None:
        life.machine.check()
        bound += len(binds(made))
        judged.append(0)
    assert bound == 8
    return judged


@pytest.mark.usefixtures("few_values")
@pytest.mark.parametrize("rails", [{}, {"rails": "same"}, {"rails": "index"}])
def test_a_turn_judges_no_more_values_than_it_may(monkeypatch: pytest.MonkeyPatch, life: Scene, rails: Any) -> None:
    """A call judges no more than a turn may, and after as many no other one is made."""
    _show_pfs(life, name="enp{n}s{k}", network="rail{k}")
    judged = _judged_by_step(monkeypatch, life, **rails)
    assert sum(judged) >= _NODES
    assert max(judged) < 2 * _A_TURN


def test_nodes_whose_pfs_differ_in_their_addresses_only_are_judged_together(
    monkeypatch: pytest.MonkeyPatch, life: Scene
) -> None:
    _show_pfs(life, pci="{n:04x}:0{k}:00.0", vf0="{n:04x}:0{k}:00.2")
    assert sum(_judged_by_step(monkeypatch, life, rails="same")) < _NODES


@pytest.mark.usefixtures("few_values")
def test_nodes_that_all_change_are_judged_over_several_turns(life: Scene) -> None:
    """A turn that ends in the midst of it leaves nothing that counts as judged."""
    for name in ("first", "second", "third"):
        if name != "second":
            _show_pfs(life, name=name + "{n}p{k}")
        life.group = ""
        life.ask(*[[{}, {}]] * 4, name=name)
        bound = binds(life.work())
        assert len(bound) == 4
        life.bound(*bound)

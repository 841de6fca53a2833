"""Where each node differs from all others, judging them by a new request is divided among turns."""

import json

import pytest

from mooring import names
from mooring.kube.events import Changed, Identity
from scheduler.cycle.groups import group_snapshot
from scheduler.cycle.placement_budget import PlacementBudget
from scheduler.state.machine import Machine
from tests.scheduler.conftest import MakeNode, MakePf, MakePod
from tests.scheduler.cycle.groups.test_oracle import placed
from tests.scheduler.group_life import Life, binds

_NODES, _A_TURN = 40, 15


def _see_job(machine: Machine, make_pod: MakePod, **fields: str) -> None:
    group = json.dumps({"name": "train", "min": 8, **fields})
    for number in range(8):
        pod = make_pod(f"p{number}", [{"min_tx_rate": 1000}, {}], annotations={names.GROUP: group})
        machine.pods(Changed(Identity(f"p{number}", "default", pod.metadata.uid), pod), 0.0)


def _judged_by_step(monkeypatch: pytest.MonkeyPatch, machine: Machine) -> tuple[list[int], int]:
    """Return how many values each step judged, and how many members are bound."""
    judged, bound = [0], 0

    class Counted(PlacementBudget):
        def judge(self) -> None:
            super().judge()
            judged[-1] += 1

    monkeypatch.setattr("scheduler.cycle.groups.group_snapshot.PlacementBudget", Counted)
    while (made := machine.step(0.0)) is not None:
        machine.check()
        bound += len(placed(made))
        judged.append(0)
    return judged, bound


@pytest.mark.parametrize("rails", [{}, {"rails": "same"}, {"rails": "index"}])
def test_a_turn_judges_no_more_values_than_it_may(
    monkeypatch: pytest.MonkeyPatch, make_node: MakeNode, make_pf: MakePf, make_pod: MakePod, rails: dict[str, str]
) -> None:
    """A call judges no more than a turn may, and after as many no other one is made."""
    monkeypatch.setattr("scheduler.cycle.groups.group_snapshot.VALUES_A_TURN", _A_TURN)
    monkeypatch.setattr("scheduler.cycle.groups.group_snapshot._A_VALUE", group_snapshot.A_TURN // _A_TURN)
    machine = Machine("mooring")
    for number in range(_NODES):
        pfs = tuple(make_pf(k, 2, name=f"enp{number}s{k}", network=f"rail{k}") for k in range(2))
        machine.nodes(Changed(Identity(f"n{number}"), make_node(f"n{number}", pfs)), 0.0)
    _see_job(machine, make_pod, **rails)
    judged, bound = _judged_by_step(monkeypatch, machine)
    assert bound == 8
    assert sum(judged) >= _NODES
    assert max(judged) < 2 * _A_TURN


def test_nodes_whose_pfs_differ_in_their_addresses_only_are_judged_together(
    monkeypatch: pytest.MonkeyPatch, make_node: MakeNode, make_pf: MakePf, make_pod: MakePod
) -> None:
    machine = Machine("mooring")
    for number in range(_NODES):
        pfs = tuple(make_pf(k, pci=f"{number:04x}:0{k}:00.0", vf0=f"{number:04x}:0{k}:00.2", numa=k) for k in range(2))
        machine.nodes(Changed(Identity(f"n{number}"), make_node(f"n{number}", pfs)), 0.0)
    _see_job(machine, make_pod, rails="same")
    judged, bound = _judged_by_step(monkeypatch, machine)
    assert bound == 8
    assert sum(judged) < _NODES


def test_nodes_that_all_change_are_judged_over_several_turns(
    monkeypatch: pytest.MonkeyPatch, make_node: MakeNode, make_pf: MakePf, make_pod: MakePod
) -> None:
    """A turn that ends in the midst of it leaves nothing that counts as judged."""
    monkeypatch.setattr("scheduler.cycle.groups.group_snapshot.VALUES_A_TURN", _A_TURN)
    monkeypatch.setattr("scheduler.cycle.groups.group_snapshot._A_VALUE", group_snapshot.A_TURN // _A_TURN)
    life = Life(Machine("mooring"), make_node, make_pf, make_pod)
    for name in ("first", "second", "third"):
        if name != "second":
            for number in range(_NODES):
                pfs = tuple(life.make_pf(k, 4, name=f"{name}{number}p{k}") for k in range(2))
                node = life.make_node(f"n{number}", pfs)
                life.machine.nodes(Changed(Identity(f"n{number}"), node), life.now)
        group = json.dumps({"name": name, "min": 4})
        life.see(*(life.member(f"{name}-{k}", group, request=[{}, {}]) for k in range(4)))
        bound = binds(life.work())
        assert len(bound) == 4
        life.bound(*bound)

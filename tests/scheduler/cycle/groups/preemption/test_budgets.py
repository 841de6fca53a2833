"""Disruption budgets when a group preempts: none is violated if that is avoidable."""

from typing import Any

import msgspec
import pytest

from mooring.kube.events import Changed, Identity
from scheduler.cycle.groups.preemption import victim_plan
from scheduler.kube.selecting_objects import PodDisruptionBudget
from tests.scheduler.group_life import PAIR, Life, binds, fill, pair, victims

KEPT: dict[str, Any] = {"metadata": {"labels": {"app": "kept"}}}


def _budget(life: Life, app: str = "kept", allowed: int = 0) -> None:
    budget = {
        "metadata": {"name": app, "namespace": "default"},
        "spec": {"selector": {"matchLabels": {"app": app}}},
        "status": {"disruptionsAllowed": allowed},
    }
    item = msgspec.convert(budget, PodDisruptionBudget)
    life.machine.handle(PodDisruptionBudget, Changed(Identity(app, "default"), item), life.now)


def _on(life: Life, node: str, vfs: int, room: int, **fields: Any) -> None:
    """Show a node with a pod."""
    life.nodes(node, vfs=room)
    life.see(life.make_pod(f"on-{node}", [{}] * vfs, **fields))
    life.bound(*binds(life.work()))


def test_victims_are_looked_for_on_all_nodes_before_a_budget_is_violated(
    life: Life, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The nodes that lack least have only pods with a budget."""
    monkeypatch.setattr(victim_plan, "_FEWEST", 4)
    fill(life, *(f"n{number}" for number in range(4)), **KEPT)
    for number in range(2):
        life.nodes(f"far{number}")
        life.see(*(life.make_pod(f"far{number}-{letter}", [{}]) for letter in "ab"))
        life.bound(*binds(life.work()))
    _budget(life)
    pair(life)
    assert victims(life.work()) == ["far0-a", "far0-b", "far1-a", "far1-b"]


def test_members_leave_free_room_to_larger_ones_before_a_budget_is_violated(life: Life) -> None:
    _on(life, "mid", 2, 2)
    _on(life, "half", 2, 4)
    _on(life, "kept", 4, 4, **KEPT)
    _budget(life)
    sizes = {"small": 2, "large": 4}
    life.see(*(life.member(name, PAIR, request=[{}] * vfs, spec={"priority": 10}) for name, vfs in sizes.items()))
    assert victims(life.work()) == ["on-half", "on-mid"]


def test_a_spare_member_with_a_budget_goes_with_its_group(life: Life) -> None:
    """It could go alone, which would not be enough."""
    life.nodes("n0", "n1", "n2")
    labels = ({"labels": {"app": f"low{number}"}} for number in range(3))
    life.see(*(life.member(f"low{k}", '{"name":"low","min":2}', metadata=one) for k, one in enumerate(labels)))
    life.bound(*binds(life.work(60.0)))
    for number in range(3):
        _budget(life, f"low{number}", allowed=int(number < 2))
    pair(life)
    assert victims(life.work()) == ["low0", "low1", "low2"]

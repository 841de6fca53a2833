"""One hard request must not hold up everybody: what a decision may search over all nodes, and in one turn."""

import random
import re
from collections.abc import Callable

import pytest

from mooring.annotations.inventory import Pf
from mooring.kube.events import Changed, Identity
from scheduler.cycle.decisions import Bind
from scheduler.cycle.instructions import Report
from scheduler.cycle.placement_budget import A_DECISION, PlacementBudget
from scheduler.kube.objects import Node, Pod
from scheduler.placement.place import BUDGET, SEARCH_TURN
from scheduler.placement.steps import Steps
from scheduler.state.machine import Machine
from scheduler.state.pod_scheduling import APART_S

NODES = 250
_UNSEARCHED = re.compile(r"(\d+) node\(s\) not searched yet")


def _fill(
    machine: Machine, make_node: Callable[..., Node], make_pf: Callable[..., Pf], nodes: int = NODES
) -> list[dict[str, int]]:
    """Add nodes, each with three PFs of other rates, that 23 interfaces would fill to the last Mb/s; return these."""
    chance = random.Random(1)
    rates = [chance.randrange(20_000, 45_000) for _ in range(23)]
    for number in range(nodes):
        first, second = (sum(rates) // 3 + chance.randrange(-3_000, 3_000) for _ in range(2))
        offers = (first, second, sum(rates) - first - second)
        pfs = tuple(
            make_pf(index, vfs=32, mbps=800_000, offer_mbps=offer, vf0=f"0000:{index + 4:02x}:01.0")
            for index, offer in enumerate(offers)
        )
        machine.nodes(Changed(Identity(f"n{number}"), make_node(f"n{number}", pfs=pfs)), 0.0)
    return [{"min_tx_rate": rate} for rate in rates]


def test_a_hard_request_is_searched_in_turns_and_within_a_budget_for_all_nodes(
    monkeypatch: pytest.MonkeyPatch,
    machine: Machine,
    make_node: Callable[..., Node],
    make_pf: Callable[..., Pf],
    make_pod: Callable[..., Pod],
) -> None:
    interfaces = _fill(machine, make_node, make_pf)
    hard, easy = make_pod("hard", interfaces), make_pod("easy", [{}])
    for pod in (hard, easy):
        machine.pods(Changed(Identity(pod.metadata.name, "default", pod.metadata.uid), pod), 0.0)
    turns, bound = list[int](), list[str]()

    def spend(self: PlacementBudget, steps: int = 1) -> None:
        turns[-1] += steps
        Steps.spend(self, steps)

    monkeypatch.setattr(PlacementBudget, "spend", spend, raising=False)
    while not bound:
        turns.append(0)
        instructions = machine.step(0.0) or []
        bound += [one.pod_info.pod.metadata.name for one in instructions if isinstance(one, Bind)]
    assert bound == ["easy"]
    assert max(turns) <= 2 * (SEARCH_TURN + BUDGET)
    assert A_DECISION <= sum(turns) <= A_DECISION + len(turns) * BUDGET


def test_nodes_that_all_differ_are_evaluated_in_turns(
    monkeypatch: pytest.MonkeyPatch,
    make_node: Callable[..., Node],
    make_pf: Callable[..., Pf],
    make_pod: Callable[..., Pod],
) -> None:
    """The first pod of a shape would take 50 ms on 5,000 nodes."""
    monkeypatch.setattr("scheduler.cycle.preemption.select_victims.VALUES_TURN", 100)
    machine = Machine("mooring")
    _fill(machine, make_node, make_pf)
    for pod in (make_pod("a", [{}]), make_pod("b", [{}])):
        machine.pods(Changed(Identity(pod.metadata.name, "default", pod.metadata.uid), pod), 0.0)
    values, bound = list[int](), list[str]()

    def judge(self: PlacementBudget) -> None:
        limited_judge(self)
        values[-1] += 1

    limited_judge = PlacementBudget.judge
    monkeypatch.setattr(PlacementBudget, "judge", judge)
    while len(bound) < 2:
        values.append(0)
        bound += [one.pod_info.pod.metadata.name for one in machine.step(0.0) or [] if isinstance(one, Bind)]
    assert bound == ["a", "b"]
    assert max(values) == 100
    assert sum(values) == NODES
    machine.check()


def test_a_later_decision_goes_on_with_the_nodes_that_were_left_unsearched(
    machine: Machine,
    make_node: Callable[..., Node],
    make_pf: Callable[..., Pf],
    make_pod: Callable[..., Pod],
) -> None:
    """Without any event: a pod that had no steps left must not be refused there for good."""
    pod = make_pod("hard", _fill(machine, make_node, make_pf))
    machine.pods(Changed(Identity("hard", "default", pod.metadata.uid), pod), 0.0)
    left = list[int]()
    now: float | None = 0.0
    while now is not None:
        machine.tick(now)
        while (instructions := machine.step(now)) is not None:
            told = [one.message for one in instructions if isinstance(one, Report)]
            left += [int(found[1]) if (found := _UNSEARCHED.search(text)) else 0 for text in told]
        assert len(left) <= 1 or now >= (len(left) - 1) * APART_S
        now = machine.next_due()
    assert len(left) > 1
    assert left == sorted(left, reverse=True)
    assert left[-1] == 0

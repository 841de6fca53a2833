"""One hard request must not hold up everybody: what a decision may search over all nodes, and in one turn."""

import random
import re

import pytest

from scheduler.cycle.instructions import Report
from scheduler.cycle.placement_budget import A_DECISION, PlacementBudget
from scheduler.placement.place import BUDGET, SEARCH_TURN
from scheduler.placement.steps import Steps
from scheduler.state.pod_scheduling import APART_S
from tests.scheduler.group_life import Life, bound_names

NODES = 250
_UNSEARCHED = re.compile(r"(\d+) node\(s\) not searched yet")


@pytest.fixture
def interfaces(life: Life) -> list[dict[str, int]]:
    """Add nodes, each with three PFs of other rates, that 23 interfaces would fill to the last Mb/s; return these."""
    chance = random.Random(1)
    rates = [chance.randrange(20_000, 45_000) for _ in range(23)]
    for number in range(NODES):
        first, second = (sum(rates) // 3 + chance.randrange(-3_000, 3_000) for _ in range(2))
        offers = (first, second, sum(rates) - first - second)
        pfs = [
            life.make_pf(index, vfs=32, mbps=800_000, offer_mbps=offer, vf0=f"0000:{index + 4:02x}:01.0")
            for index, offer in enumerate(offers)
        ]
        life.show_node(f"n{number}", *pfs)
    return [{"min_tx_rate": rate} for rate in rates]


def test_a_hard_request_is_searched_in_turns_and_within_a_budget_for_all_nodes(
    monkeypatch: pytest.MonkeyPatch, interfaces: list[dict[str, int]], life: Life
) -> None:
    life.see(life.make_pod("hard", interfaces), life.make_pod("easy", [{}]))
    turns, bound = list[int](), list[str]()

    def spend(self: PlacementBudget, steps: int = 1) -> None:
        turns[-1] += steps
        Steps.spend(self, steps)

    monkeypatch.setattr(PlacementBudget, "spend", spend, raising=False)
    while not bound:
        turns.append(0)
        bound += bound_names(life.machine.step(0.0) or [])
    assert bound == ["easy"]
    assert max(turns) <= 2 * (SEARCH_TURN + BUDGET)
    assert A_DECISION <= sum(turns) <= A_DECISION + len(turns) * BUDGET


@pytest.fixture
def short_turns(monkeypatch: pytest.MonkeyPatch) -> None:
    """Let a turn evaluate 100 nodes."""
    monkeypatch.setattr("scheduler.cycle.preemption.select_victims.VALUES_TURN", 100)


@pytest.mark.usefixtures("short_turns", "interfaces")
def test_nodes_that_all_differ_are_evaluated_in_turns(monkeypatch: pytest.MonkeyPatch, life: Life) -> None:
    """The first pod of a shape would take 50 ms on 5,000 nodes."""
    life.see(life.make_pod("a", [{}]), life.make_pod("b", [{}]))
    values, bound = list[int](), list[str]()

    def judge(self: PlacementBudget) -> None:
        limited_judge(self)
        values[-1] += 1

    limited_judge = PlacementBudget.judge
    monkeypatch.setattr(PlacementBudget, "judge", judge)
    while len(bound) < 2:
        values.append(0)
        bound += bound_names(life.machine.step(0.0) or [])
    assert bound == ["a", "b"]
    assert max(values) == 100
    assert sum(values) == NODES


def test_a_later_decision_goes_on_with_the_nodes_that_were_left_unsearched(
    interfaces: list[dict[str, int]], life: Life
) -> None:
    """Without any event: a pod that had no steps left must not be refused there for good."""
    life.see(life.make_pod("hard", interfaces))
    left = list[int]()
    now: float | None = 0.0
    while now is not None:
        life.machine.tick(now)
        counts = (_UNSEARCHED.search(one.message) for one in life.decide_ready(now) if isinstance(one, Report))
        left += [int(count[1]) if count else 0 for count in counts]
        assert len(left) <= 1 or now >= (len(left) - 1) * APART_S
        now = life.machine.next_due()
    assert len(left) > 1
    assert left == sorted(left, reverse=True)
    assert left[-1] == 0

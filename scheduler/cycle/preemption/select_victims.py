"""Find the victims on each of many nodes, in portions. Pure.

On a node, all pods of lower priority are removed. If the pod then fits, they are put back one by one as long as it
still fits. Pods whose removal would violate a disruption budget come first, then the most important. The pods that are
not put back are the victims. Source: kube-scheduler's plugins/defaultpreemption.

A `VictimSearch` checks some nodes at a time, because thousands take too long for one turn. Its result for a node is
valid until that node changes, and the chosen node is checked once more at the end.
"""

import sys
from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass

from scheduler.cache.assigned_pod import AssignedPod
from scheduler.cache.node_columns import NodeColumns
from scheduler.cycle.node_dry_run import DryRuns, NodeDryRun
from scheduler.cycle.placement_budget import VALUES_TURN, PlacementBudget
from scheduler.cycle.preemption.disruption_budgets import Objections
from scheduler.cycle.preemption.potential_victims import (
    Loss,
    Victim,
    importance,
    loss_of,
    node_pods_of,
    split,
    start_of,
    with_spare_members,
)
from scheduler.placement.place import SEARCH_TURN
from scheduler.plugins.interface import Texts

# Number of pods of lower priority to check in one turn: 5 to 20 ms.
PORTION = 1_500
# Number of nodes with victims to compare: this share of the candidates, but at least a minimum, and more while each of
# them violates a budget. Source: DefaultPreemptionArgs.
_SHARE = 10
_FEWEST = 100
# In kube-scheduler's words.
NO_VICTIMS = "No preemption victims found for incoming pod"


@dataclass(frozen=True, slots=True)
class Candidate:
    """A node that the pod fits on without these victims, the most important first."""

    row: int
    victims: tuple[Victim, ...]
    loss: Loss


# The result for a node: its victims, or why removing pods does not help.
NodeResult = Candidate | Texts
# Returns the result for a row, and how many pods it checked.
SelectVictims = Callable[[int], tuple[NodeResult, int]]


def select_victims_on_node(
    dry_runs: DryRuns, row: int, lower: Sequence[Victim], nominated_pods: Sequence[AssignedPod], budgets: Objections
) -> NodeResult:
    """Return which victims must leave a node for the pod to fit, or why it does not fit without the ``lower`` ones."""
    if not lower:
        return (NO_VICTIMS,)
    with dry_runs.on(row, nominated_pods, by_sums=True) as dry_run:
        dry_run.take_off(*node_pods_of(lower))
        if refusal := dry_run.refusal():
            return refusal
        violators, rest = split(budgets, sorted(lower, key=importance))
        violating_victims = reprieve(dry_run, violators)
        victims = with_spare_members([*violating_victims, *reprieve(dry_run, rest)], lower)
        victims.sort(key=importance)
    if not victims:
        return (NO_VICTIMS,)
    # A pod that was found to violate a budget counts whatever is removed with it.
    counts: dict[int, int] = {}
    broken_budgets = sum(max(budgets.violations(victim.pods, counts), 1) for victim in violating_victims)
    return Candidate(row, tuple(victims), loss_of(victims, broken_budgets))


def reprieve(dry_run: NodeDryRun, victims: Sequence[Victim], *, are_too_many: bool = False) -> list[Victim]:
    """Put victims back in order as long as the dry run's pod fits; return those that must leave.

    A pod that fits together with a set of pods also fits with each of them, so several are tried at once, unless it is
    known that these ``are_too_many``.
    """
    if not victims or (not are_too_many and dry_run.admits(node_pods_of(victims))):
        return []
    if len(victims) == 1:
        return list(victims)
    half = len(victims) // 2
    first = reprieve(dry_run, victims[:half])
    # If the first half is back, the pod does not fit with the second half: that would be all of them again.
    return [*first, *reprieve(dry_run, victims[half:], are_too_many=not first)]


class VictimSearch:
    """The results for one pod, by row; each is valid until the row changes.

    One turn checks at most ``portion`` pods. ``placement`` limits what the decision may spend on placements.
    """

    def __init__(self, portion: int = sys.maxsize, placement: PlacementBudget | None = None) -> None:
        self._portion = portion
        if placement is None:
            has_turns = portion != sys.maxsize
            placement = PlacementBudget(SEARCH_TURN, values=VALUES_TURN) if has_turns else PlacementBudget()
        self.placement = placement
        self._results: dict[int, NodeResult] = {}
        self._candidates: list[Candidate] = []
        # The number of the row change up to which the results are valid.
        self._changes_end = 0

    @property
    def is_begun(self) -> bool:
        """Return whether anything was searched or spent; an unused search serves any pod."""
        return bool(self._changes_end or self.placement.spent)

    def turn(self, nodes: NodeColumns, rows: Sequence[int], select_victims: SelectVictims) -> bool:
        """Check rows in order until enough results can be compared; return whether there are enough."""
        for row in nodes.changes.since(self._changes_end) if self._results else ():
            self._results.pop(row, None)
        self._changes_end, self._candidates, has_harmless = nodes.changes.end, [], False
        pods_to_check, min_candidates = self._portion, min(max(len(rows) * _SHARE // 100, _FEWEST), len(rows))
        for row in rows:
            result = self._results.get(row)
            if result is None:
                if pods_to_check <= 0 or self.placement.is_turn_over:
                    return False
                if self.placement.is_spent:
                    continue
                result, pod_count = select_victims(row)
                self._results[row] = result
                pods_to_check -= 1 + pod_count
            if isinstance(result, Candidate):
                self._candidates.append(result)
                has_harmless = has_harmless or not result.loss.broken_budgets
                if has_harmless and len(self._candidates) >= min_candidates:
                    break
        return True

    def best(self) -> Candidate | None:
        """Return the node with the smallest loss; None if preemption helps nowhere."""
        min_loss = min((candidate.loss for candidate in self._candidates), default=None)
        equal_candidates = (candidate for candidate in self._candidates if candidate.loss == min_loss)
        return max(equal_candidates, key=lambda candidate: start_of(candidate.victims), default=None)

    def is_valid(self, best: Candidate, select_victims: SelectVictims) -> bool:
        """Check again: budgets and nominations may have changed between turns."""
        self._results[best.row], _ = select_victims(best.row)
        return self._results[best.row] == best

    def refusals(self, rows: Iterable[int]) -> Mapping[str, int]:
        results = (self._results.get(row, ()) for row in rows)
        return Counter(text for texts in results if not isinstance(texts, Candidate) for text in texts)

"""Find the victims on each of many nodes, in portions. Pure.

On a node, all pods of lower priority are removed. If the pod then fits, they are put back one by one as long as it
still fits. Pods whose removal would violate a disruption budget come first, then the most important. The pods that are
not put back are the victims. Source: kube-scheduler's plugins/defaultpreemption.

Thousands of nodes take longer than other work may be delayed, so a `VictimSearch` checks some of them at a time. Its
result for a node is valid until that node changes, and the chosen node is checked once more at the end.
"""

import sys
from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass

from scheduler.cache.assigned_pod import AssignedPod
from scheduler.cache.node_columns import NodeColumns
from scheduler.cycle.node_dry_run import DryRuns, NodeDryRun
from scheduler.cycle.placement_budget import PlacementBudget
from scheduler.cycle.preemption.disruption_budgets import Objections
from scheduler.cycle.preemption.potential_victims import (
    Loss,
    Victim,
    here,
    importance,
    loss_of,
    pods_of,
    since,
    split,
    with_spare_members,
)
from scheduler.placement.place import SEARCHED_AT_ONCE
from scheduler.plugins.interface import Texts

# Number of pods of lower priority to check in one turn: 5 to 20 ms. They are counted, not timed, so that equal clusters
# give equal decisions.
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
    chosen: tuple[Victim, ...]
    broken_budgets: int
    loss: Loss

    @property
    def victims(self) -> tuple[AssignedPod, ...]:
        """Return all pods that must leave, including those of groups on other nodes."""
        return pods_of(self.chosen)

    @property
    def since(self) -> str:
        return since(self.chosen)


# The result for a node: its victims, or why removing pods does not help.
Found = Candidate | Texts
# Returns the result, and how many pods it checked.
SelectVictims = Callable[[int], tuple[Found, int]]


def select_victims_on_node(
    dry_runs: DryRuns, row: int, lower: Sequence[Victim], nominated: Iterable[AssignedPod], budgets: Objections
) -> Found:
    """Return which of the ``lower`` victims must leave a node for the pod to fit, or why it does not fit
    without them.
    """
    if not lower:
        return (NO_VICTIMS,)
    with dry_runs.on(row, nominated, by_sums=True) as dry_run:
        dry_run.take_off(*here(lower))
        if refusal := dry_run.refusal():
            return refusal
        violators, rest = split(budgets, sorted(lower, key=importance))
        violating_victims = not_reprieved(dry_run, violators)
        victims = with_spare_members([*violating_victims, *not_reprieved(dry_run, rest)], lower)
        victims.sort(key=importance)
    if not victims:
        return (NO_VICTIMS,)
    broken_budgets = _count_violations(violating_victims, budgets)
    return Candidate(row, tuple(victims), broken_budgets, loss_of(victims, broken_budgets))


def _count_violations(victims: Sequence[Victim], budgets: Objections) -> int:
    """Return how many removals violate a budget; a pod that was found to violate one counts whatever is removed with
    it.
    """
    counts: dict[int, int] = {}
    return sum(max(budgets.violations(victim.pods, counts), 1) for victim in victims)


def not_reprieved(dry_run: NodeDryRun, victims: Sequence[Victim]) -> list[Victim]:
    """Put victims back in order as long as the dry run's pod fits; return those that must leave.

    A pod that fits together with a set of pods also fits with each of them, so several are tried at once.
    """
    if not victims or dry_run.admits(here(victims)):
        return []
    return _split_victims(dry_run, victims)


def _split_victims(dry_run: NodeDryRun, victims: Sequence[Victim]) -> list[Victim]:
    """Split victims with all of which the pod does not fit, as `not_reprieved` does."""
    if len(victims) == 1:
        return list(victims)
    half = len(victims) // 2
    first = not_reprieved(dry_run, victims[:half])
    # If the first half is back, the pod does not fit with the second half: that would be all of them again.
    search = not_reprieved if first else _split_victims
    return [*first, *search(dry_run, victims[half:])]


class VictimSearch:
    """The results for one pod, by row; each is valid until the row changes.

    ``placement`` limits what the decision may spend on placements.
    """

    def __init__(self, portion: int = sys.maxsize, placement: PlacementBudget | None = None) -> None:
        """Check at most this many pods in one turn; without a limit, one turn is enough."""
        self._portion = portion
        self.placement = placement or PlacementBudget(sys.maxsize if portion == sys.maxsize else SEARCHED_AT_ONCE)
        self._results: dict[int, Found] = {}
        self._candidates: list[Candidate] = []
        # The number of the row change up to which the results are valid.
        self._changes_end = 0

    @property
    def is_begun(self) -> bool:
        """Return whether anything was searched or spent; an unused search serves any pod."""
        return bool(self._changes_end or self.placement.spent)

    def turn(self, nodes: NodeColumns, rows: Sequence[int], select_victims_on_node: SelectVictims) -> bool:
        """Check rows in order until enough results can be compared; return whether there are enough."""
        for row in nodes.changes.since(self._changes_end) if self._results else ():
            self._results.pop(row, None)
        self._changes_end, self._candidates, any_harmless = nodes.changes.end, [], False
        remaining, enough = self._portion, min(max(len(rows) * _SHARE // 100, _FEWEST), len(rows))
        for row in rows:
            result = self._results.get(row)
            if result is None:
                if remaining <= 0 or self.placement.turn_is_spent:
                    return False
                if self.placement.is_spent:
                    continue
                result, pods = self._select_victims(row, select_victims_on_node)
                remaining -= 1 + pods
            if isinstance(result, Candidate):
                self._candidates.append(result)
                any_harmless = any_harmless or not result.broken_budgets
                if any_harmless and len(self._candidates) >= enough:
                    break
        return True

    def best(self) -> Candidate | None:
        """Return the node with the smallest loss; None if preemption helps nowhere."""
        if not self._candidates:
            return None
        min_loss = min(candidate.loss for candidate in self._candidates)
        return max(
            (candidate for candidate in self._candidates if candidate.loss == min_loss),
            key=lambda candidate: candidate.since,
        )

    def is_valid(self, best: Candidate, select_victims_on_node: SelectVictims) -> bool:
        """Return whether a new check gives the same result: budgets and nominations may have changed between turns."""
        return self._select_victims(best.row, select_victims_on_node)[0] == best

    def refusals(self, rows: Iterable[int]) -> Mapping[str, int]:
        """Count the reasons why removing pods from these rows does not help."""
        results = (self._results.get(row, ()) for row in rows)
        return Counter(text for texts in results if not isinstance(texts, Candidate) for text in texts)

    def _select_victims(self, row: int, select_victims_on_node: SelectVictims) -> tuple[Found, int]:
        self._results[row], pods = select_victims_on_node(row)
        return self._results[row], pods

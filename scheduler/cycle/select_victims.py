"""Find the victims on each of many nodes, in portions. Pure.

On a node all pods of lower priority are removed. If the pod fits then, they are put back one by one as long as it still
fits. Pods whose removal would violate a disruption budget are first, then the most important. Pods that are not put
back are the victims. Source: kube-scheduler's plugins/defaultpreemption.

Thousands of nodes take longer than other work may be delayed. So a `VictimSearch` checks some of them at a time. Its
result for a node holds until that node changes, and the node that is chosen in the end is checked once more.
"""

import sys
from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial

from scheduler.cache.cache import AssignedPod
from scheduler.cache.node_columns import NodeColumns
from scheduler.cycle.disruption_budgets import Budgets
from scheduler.cycle.node_dry_run import DryRuns, NodeDryRun
from scheduler.cycle.placement_budget import PlacementBudget
from scheduler.placement.place import SEARCHED_AT_ONCE
from scheduler.plugins.interface import Texts

# Number of pods of lower priority to check in one turn: 5 to 20 ms. They are counted, not timed, so that equal clusters
# give equal decisions.
PORTION = 1_500
# Number of nodes with victims to compare: this share of the candidates, but at least so many, and more as long as each
# of them violates a budget. Source: DefaultPreemptionArgs.
_SHARE = 10
_FEWEST = 100
# Priorities are signed 32-bit numbers: this offset makes all of them positive, so that each victim counts.
_ABOVE_ZERO = 1 << 31
# Later than any RFC 3339 time: for a pod that has not started yet.
_NOT_STARTED = "~"
# In kube-scheduler's words.
NO_VICTIMS = "No preemption victims found for incoming pod"
_ONLY_TOGETHER = "node(s) had pods of a group that may only be disrupted as a whole"


@dataclass(frozen=True, slots=True)
class Candidate:
    """A node that the pod fits on without these pods, the most important first."""

    row: int
    victims: tuple[AssignedPod, ...]
    broken_budgets: int

    @property
    def loss(self) -> tuple[int, int, int, int]:
        """Return the loss, the least first: violated budgets, highest priority, sum of priorities, victims."""
        priorities = [assigned.priority + _ABOVE_ZERO for assigned in self.victims]
        return self.broken_budgets, max(priorities), sum(priorities), len(priorities)

    @property
    def since(self) -> str:
        """Return since when the longest running of the victims of the highest priority has run."""
        highest = max(assigned.priority for assigned in self.victims)
        return min(_started(assigned) for assigned in self.victims if assigned.priority == highest)


# The result for a node: its victims, or why removing pods does not help.
Found = Candidate | Texts
# Returns the result, and how many pods it checked.
Examine = Callable[[int], tuple[Found, int]]


def select_victims_on_node(
    dry_runs: DryRuns,
    row: int,
    lower: Sequence[AssignedPod],
    nominated: Iterable[AssignedPod],
    budgets: Budgets,
    spared: Sequence[AssignedPod] = (),
) -> Found:
    """Return which of the ``lower`` pods must leave a node for the pod to fit, or why it does not fit without them.

    ``spared`` are pods of lower priority that must not leave alone.
    """
    if not lower and not spared:
        return (NO_VICTIMS,)
    with dry_runs.on(row, nominated, by_sums=True) as dry_run:
        dry_run.take_off(*lower)
        if refusal := dry_run.refusal():
            return _without(dry_run, spared) if spared else refusal
        breaking, others = budgets.split(sorted(lower, key=importance))
        doomed = not_reprieved(dry_run, breaking)
        victims = sorted([*doomed, *not_reprieved(dry_run, others)], key=importance)
    return Candidate(row, tuple(victims), len(doomed)) if victims else (NO_VICTIMS,)


def _without(dry_run: NodeDryRun, spared: Sequence[AssignedPod]) -> Texts:
    """Return why a pod does not fit on a node: not even without the pods that are spared, or because of them."""
    dry_run.take_off(*spared)
    return dry_run.refusal() or (_ONLY_TOGETHER,)


def not_reprieved(dry_run: NodeDryRun, assigned_pods: Sequence[AssignedPod]) -> list[AssignedPod]:
    """Put pods back in order as long as the dry run's pod fits; return those that must stay off.

    A pod that fits beside a set of pods fits beside each of them, so several are tried at once.
    """
    if not assigned_pods or dry_run.admits(assigned_pods):
        return []
    if len(assigned_pods) == 1:
        return list(assigned_pods)
    half = len(assigned_pods) // 2
    return [*not_reprieved(dry_run, assigned_pods[:half]), *not_reprieved(dry_run, assigned_pods[half:])]


def importance(assigned: AssignedPod) -> tuple[int, str]:
    """Return a sort key that puts the most important pod first: by priority, then by the earliest start."""
    return -assigned.priority, _started(assigned)


def _started(assigned: AssignedPod) -> str:
    return assigned.started or _NOT_STARTED


class VictimSearch:
    """The results for one pod, by row; each holds until the row changes.

    ``placement`` is what the decision may spend on placements.
    """

    def __init__(self, portion: int = sys.maxsize) -> None:
        """Check at most this many pods in one turn; without a limit one turn is enough."""
        self._portion = portion
        self.placement = PlacementBudget(sys.maxsize if portion == sys.maxsize else SEARCHED_AT_ONCE)
        self._found: dict[int, Found] = {}
        self._candidates: list[Candidate] = []
        # Rows checked in this turn, and the change of rows up to which the other results hold.
        self._fresh: set[int] = set()
        self._seen = 0

    def turn(self, nodes: NodeColumns, rows: Sequence[int], select_victims_on_node: Examine) -> bool:
        """Check rows in order until enough results can be compared; return whether there are enough."""
        for row in nodes.changes.since(self._seen) if self._found else ():
            self._found.pop(row, None)
        self._seen, self._candidates, any_harmless = nodes.changes.end, [], False
        self._fresh.clear()
        left, enough = self._portion, min(max(len(rows) * _SHARE // 100, _FEWEST), len(rows))
        for row in rows:
            found = self._found.get(row)
            if found is None:
                if left <= 0 or self.placement.turn_is_spent:
                    return False
                if self.placement.is_spent:
                    continue
                found, pods = self.placement.charge(partial(self._look_at, row, select_victims_on_node))
                left -= 1 + pods
            if isinstance(found, Candidate):
                self._candidates.append(found)
                any_harmless = any_harmless or not found.broken_budgets
                if any_harmless and len(self._candidates) >= enough:
                    break
        return True

    def best(self) -> Candidate | None:
        """Return the node on which the least is lost; None if preemption helps nowhere."""
        if not self._candidates:
            return None
        least = min(one.loss for one in self._candidates)
        return max((one for one in self._candidates if one.loss == least), key=lambda one: one.since)

    def holds(self, best: Candidate, select_victims_on_node: Examine) -> bool:
        """Return whether a new check gives the same result: budgets and nominations may have changed between turns."""
        return best.row in self._fresh or self._look_at(best.row, select_victims_on_node)[0] == best

    def refusals(self, rows: Iterable[int]) -> Mapping[str, int]:
        """Count the reasons why removing pods from these rows does not help."""
        found = (self._found.get(row, ()) for row in rows)
        return Counter(text for texts in found if not isinstance(texts, Candidate) for text in texts)

    def _look_at(self, row: int, select_victims_on_node: Examine) -> tuple[Found, int]:
        self._fresh.add(row)
        self._found[row], pods = select_victims_on_node(row)
        return self._found[row], pods

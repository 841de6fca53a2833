"""Who would have to go from each of many nodes, found in portions. Pure.

On a node all pods of lower priority are taken off; if the pod fits then, they are put back one by one, the most
important first and before all others those whose going would break a disruption budget, as long as it still fits. Who
stays off is a victim. Source: kube-scheduler's plugins/defaultpreemption.

Thousands of nodes take longer than everything else may be held up. So a `VictimSearch` looks at some of them at a time;
what it has found out about a node holds until that node changes, and what is chosen in the end is looked at once more.
"""

import sys
from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass

from scheduler.cache.cache import AssignedPod
from scheduler.cache.node_columns import NodeColumns
from scheduler.cycle.disruption_budgets import Budgets
from scheduler.cycle.node_dry_run import DryRuns, NodeDryRun
from scheduler.plugins.interface import Texts

# So many pods of lower priority are looked at in one turn: 5 to 20 ms. They are counted, not timed, so that
# equal clusters give equal decisions.
PORTION = 1_500
# So many nodes with victims are compared: this share of those that can be helped, but so many at the least, and more
# as long as each of them breaks a budget. Source: DefaultPreemptionArgs.
_SHARE = 10
_FEWEST = 100
# Priorities are 32 bits with a sign: by this much all of them are above zero, so that each victim counts.
_ABOVE_ZERO = 1 << 31
# Later than any RFC 3339 time: a pod that has not started yet.
_NOT_STARTED = "~"
# In kube-scheduler's words.
NO_VICTIMS = "No preemption victims found for incoming pod"


@dataclass(frozen=True, slots=True)
class Candidate:
    """A node that the pod fits on without these pods, the most important first."""

    row: int
    victims: tuple[AssignedPod, ...]
    broken_budgets: int

    @property
    def loss(self) -> tuple[int, int, int, int]:
        """Return what is lost, the least first: broken budgets, highest priority, sum of priorities, victims."""
        priorities = [assigned.priority + _ABOVE_ZERO for assigned in self.victims]
        return self.broken_budgets, max(priorities), sum(priorities), len(priorities)

    @property
    def since(self) -> str:
        """Return since when the longest running of the victims of the highest priority has run."""
        highest = max(assigned.priority for assigned in self.victims)
        return min(_started(assigned) for assigned in self.victims if assigned.priority == highest)


# What is found out about a node: its victims, or why it does not help that pods go.
Found = Candidate | Texts
# Finds it out; says too how many pods were looked at for that.
Examine = Callable[[int], tuple[Found, int]]


def select_victims_on_node(
    dry_runs: DryRuns, row: int, lower: Sequence[AssignedPod], nominated: Iterable[AssignedPod], budgets: Budgets
) -> Found:
    """Find out whether the pod fits on a node without its ``lower`` pods, and which of those have to go."""
    if not lower:
        return (NO_VICTIMS,)
    with dry_runs.on(row, nominated, by_sums=True) as dry_run:
        dry_run.take_off(*lower)
        if refusal := dry_run.refusal():
            return refusal
        breaking, others = budgets.split(sorted(lower, key=importance))
        doomed = not_reprieved(dry_run, breaking)
        victims = sorted([*doomed, *not_reprieved(dry_run, others)], key=importance)
    return Candidate(row, tuple(victims), len(doomed)) if victims else (NO_VICTIMS,)


def not_reprieved(dry_run: NodeDryRun, assigned_pods: Sequence[AssignedPod]) -> list[AssignedPod]:
    """Put pods back as long as the dry run's pod fits, the first ones first; return those that had to stay off.

    A pod that fits beside all of some pods fits beside each of them: so many are tried at once.
    """
    if not assigned_pods or dry_run.admits(assigned_pods):
        return []
    if len(assigned_pods) == 1:
        return list(assigned_pods)
    half = len(assigned_pods) // 2
    return [*not_reprieved(dry_run, assigned_pods[:half]), *not_reprieved(dry_run, assigned_pods[half:])]


def importance(assigned: AssignedPod) -> tuple[int, str]:
    """Return a key that has the most important pod first: by priority, then who has run the longest."""
    return -assigned.priority, _started(assigned)


def _started(assigned: AssignedPod) -> str:
    return assigned.started or _NOT_STARTED


class VictimSearch:
    """What has been found out for one pod, by row; it holds until the row changes."""

    def __init__(self, portion: int = sys.maxsize) -> None:
        """Look at so many pods in one turn; without a limit one turn is enough."""
        self._portion = portion
        self._found: dict[int, Found] = {}
        self._candidates: list[Candidate] = []
        # Rows that this turn has looked at, and the change of rows up to which the others hold.
        self._fresh: set[int] = set()
        self._seen = 0

    def turn(self, nodes: NodeColumns, rows: Sequence[int], select_victims_on_node: Examine) -> bool:
        """Look at rows, the first ones first, until enough are known to be compared; return whether that is so."""
        for row in nodes.changes.since(self._seen) if self._found else ():
            self._found.pop(row, None)
        self._seen, self._candidates, any_harmless = nodes.changes.end, [], False
        self._fresh.clear()
        left, enough = self._portion, min(max(len(rows) * _SHARE // 100, _FEWEST), len(rows))
        for row in rows:
            found = self._found.get(row)
            if found is None:
                if left <= 0:
                    return False
                found, pods = self._look_at(row, select_victims_on_node)
                left -= 1 + pods
            if isinstance(found, Candidate):
                self._candidates.append(found)
                any_harmless = any_harmless or not found.broken_budgets
                if any_harmless and len(self._candidates) >= enough:
                    break
        return True

    def best(self) -> Candidate | None:
        """Return the node on which the least is lost; None if nobody's going helps anywhere."""
        if not self._candidates:
            return None
        least = min(one.loss for one in self._candidates)
        return max((one for one in self._candidates if one.loss == least), key=lambda one: one.since)

    def holds(self, best: Candidate, select_victims_on_node: Examine) -> bool:
        """Return whether the same is found out now: others' budgets and nominations may have changed between turns."""
        return best.row in self._fresh or self._look_at(best.row, select_victims_on_node)[0] == best

    def refusals(self, rows: Iterable[int]) -> Mapping[str, int]:
        """Count the reasons why it does not help that pods go from these rows."""
        found = (self._found.get(row, ()) for row in rows)
        return Counter(text for texts in found if not isinstance(texts, Candidate) for text in texts)

    def _look_at(self, row: int, select_victims_on_node: Examine) -> tuple[Found, int]:
        self._fresh.add(row)
        self._found[row], pods = select_victims_on_node(row)
        return self._found[row], pods

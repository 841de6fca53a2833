"""Find the row where one more member causes the smallest loss. Pure.

Method: rows are evaluated in order: first those reserved for the group, then those that lack the least. As many are
compared as for a single pod (`scheduler.cycle.preemption.select_victims`), and more while every one of them meets an
objection.

Cost: a dry run for each row that is evaluated, and one for each row that changes. With disruption budgets also one for
each row that is taken.
"""

import heapq
from collections.abc import Collection

import numpy as np

from scheduler.cache.node_columns import LINES, NodeColumns, Rows
from scheduler.cycle.groups.group_budget import GroupBudget
from scheduler.cycle.groups.group_placement import Turns
from scheduler.cycle.groups.members import needs
from scheduler.cycle.preemption.disruption_budgets import Objections
from scheduler.cycle.preemption.potential_victims import Loss
from scheduler.cycle.preemption.select_victims import Candidate, Found, SelectVictims
from scheduler.kube.pod_info import PodInfo

# The number of rows to compare: this percentage, but at least the second number.
_SHARE, _FEWEST = 10, 100
# The loss, and the start time of the victims, the latest first.
Cost = tuple[Loss, tuple[int, ...]]


def cost_of(loss: Loss, since: str) -> Cost:
    """Return what kube-scheduler compares, as a sort key: the best first."""
    return loss, tuple(-ord(letter) for letter in since)


def in_order(rows: Rows, member: PodInfo, first: Collection[str], nodes: NodeColumns) -> Rows:
    """Return rows in the order of evaluation; ``first`` are the nodes that come before all others."""
    view, amounts = nodes.view(rows), np.array(needs(member), np.int64)[:, None]
    missing = (np.maximum(amounts - view.free, 0) / np.maximum(amounts, 1)).max(axis=0)
    is_later = np.isin(rows, [nodes.row_of[name] for name in first if name in nodes.row_of], invert=True)
    pods = view.allocatable[LINES["pods"]] - view.free[LINES["pods"]]
    ordered_rows: Rows = rows[np.lexsort((pods, missing, is_later))]
    return ordered_rows


class RowCandidates:
    """The rows for one more member of a kind, the smallest loss first; a result is valid until its row changes."""

    def __init__(self, rows: Rows, nodes: NodeColumns) -> None:
        self._rows, self._nodes, self._changes_end = set[int](rows.tolist()), nodes, nodes.changes.end
        self._enough = max(len(rows) * _SHARE // 100, _FEWEST)
        # An ordered set.
        self._untried = dict[int, None].fromkeys(rows.tolist())
        self._heap = list[tuple[Cost, int, int, Candidate]]()
        self._candidates = dict[int, Candidate]()
        self._count = 0

    def take(self, find: SelectVictims, objections: Objections, budget: GroupBudget) -> Turns[Candidate | None]:
        """Take the row with the smallest loss; it becomes available again when it changes."""
        for row in self._nodes.changes.since(self._changes_end):
            if row in self._rows:
                self._candidates.pop(row, None)
                self._untried[row] = None
        self._changes_end = self._nodes.changes.end
        while True:
            best = self._best()
            while self._untried and (best is None or len(self._candidates) < self._enough or best.broken_budgets):
                if budget.turn_is_over:
                    yield
                row = next(iter(self._untried))
                del self._untried[row]
                self._push(row, find(row)[0])
                best = self._best()
            if best is None:
                return None
            depends_on_others = objections.has_any or any(victim.group is not None for victim in best.chosen)
            if depends_on_others and (now := find(best.row)[0]) != best:
                # Victims elsewhere have since used a budget, or members that a group can spare.
                self._push(best.row, now)
            else:
                del self._candidates[best.row]
                return best

    def leave_out(self, row: int) -> None:
        """Exclude a row from now on."""
        self._rows.discard(row)

    def _best(self) -> Candidate | None:
        while self._heap and self._candidates.get(self._heap[0][1]) is not self._heap[0][3]:
            heapq.heappop(self._heap)
        return self._heap[0][3] if self._heap else None

    def _push(self, row: int, found: Found) -> None:
        self._candidates.pop(row, None)
        if isinstance(found, Candidate):
            self._count += 1
            self._candidates[row] = found
            heapq.heappush(self._heap, (cost_of(found.loss, found.since), row, self._count, found))

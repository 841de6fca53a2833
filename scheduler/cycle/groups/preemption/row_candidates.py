"""On which row the least is lost for one more member. Pure.

What it costs: a dry run for each row, and one for each row that changes. With disruption budgets also one for each row
that is taken out.
"""

import heapq

from scheduler.cache.node_columns import NodeColumns, Rows
from scheduler.cycle.groups.group_budget import GroupBudget
from scheduler.cycle.groups.group_placement import Steps
from scheduler.cycle.preemption.disruption_budgets import Objections
from scheduler.cycle.preemption.potential_victims import Loss
from scheduler.cycle.preemption.select_victims import Candidate, Found, SelectVictims

# What is lost, and since when, the latest first.
Cost = tuple[Loss, tuple[int, ...]]


def cost_of(loss: Loss, since: str) -> Cost:
    """Return what kube-scheduler compares, the least first."""
    return loss, tuple(-ord(letter) for letter in since)


class RowCandidates:
    """The rows for one more member of a kind, that of the least loss first; a verdict holds until its row changes."""

    def __init__(self, rows: Rows, nodes: NodeColumns) -> None:
        self._rows, self._nodes, self._changes_end = set[int](rows.tolist()), nodes, nodes.changes.end
        # An ordered set.
        self._untried = dict[int, None].fromkeys(rows.tolist())
        self._heap = list[tuple[Cost, int, int, Candidate]]()
        self._candidates = dict[int, Candidate]()
        self._count = 0

    def take(self, find: SelectVictims, objections: Objections, budget: GroupBudget) -> Steps[Candidate | None]:
        """Take out the row where the least is lost; it comes again when it has changed."""
        for row in self._nodes.changes.since(self._changes_end):
            if row in self._rows:
                self._candidates.pop(row, None)
                self._untried[row] = None
        self._changes_end = self._nodes.changes.end
        while True:
            while self._untried:
                if budget.turn_is_over:
                    yield
                row = next(iter(self._untried))
                del self._untried[row]
                self._push(row, find(row)[0])
            if not self._heap:
                return None
            _, row, _, candidate = heapq.heappop(self._heap)
            if self._candidates.get(row) is not candidate:
                continue
            if objections.has_any and (now := find(row)[0]) != candidate:
                # Victims elsewhere have used up a budget since.
                self._push(row, now)
            else:
                del self._candidates[row]
                return candidate

    def leave_out(self, row: int) -> None:
        """Judge a row no more."""
        self._rows.discard(row)

    def _push(self, row: int, found: Found) -> None:
        self._candidates.pop(row, None)
        if isinstance(found, Candidate):
            self._count += 1
            self._candidates[row] = found
            heapq.heappush(self._heap, (cost_of(found.loss, found.since), row, self._count, found))

"""What a plugin reads of nodes: many rows at once as arrays, or one row as plain integers.

A formula with ``+ - * // / < > == & | <<`` and `abs` works on both, so a plugin is written once. The methods of the two
views have what operators cannot express. This matters because a pod changes one row, and a call of numpy costs as much
for one number as for a hundred: about fifty calls for one row cost several times the arithmetic.
"""

from collections.abc import Callable, Hashable
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from scheduler.cache.column import Column, Fact, Rows
from scheduler.placement.steps import Steps

# An integer, fraction or truth value for each row: an array, or a single value.
Measure = Any


class BatchView(NamedTuple):
    """Some rows, a column each: what the nodes have of each line, and what their pods leave of it.

    The facts that are evaluated for them are counted in ``steps``.
    """

    rows: Rows
    allocatable: NDArray[np.int64]
    free: NDArray[np.int64]
    steps: Steps | None = None

    def minimum(self, first: Measure, second: Measure) -> Measure:
        return np.minimum(first, second)

    def maximum(self, first: Measure, second: Measure) -> Measure:
        return np.maximum(first, second)

    def truncate(self, fraction: Measure) -> Measure:
        return fraction.astype(np.int64)

    def judge(self, facts: Column[Fact], judge_fact: Callable[[Fact], int], by: Hashable = None) -> Measure:
        """Return what ``judge_fact`` returns for each row's fact; with ``by``, results are kept (`Column.spread`)."""
        return facts.spread(judge_fact, self.rows, by, self.steps)

    def amount(self, amounts: NDArray[np.int64]) -> Measure:
        return amounts[self.rows]


class RowView(NamedTuple):
    """A single row."""

    row: int
    allocatable: list[int]
    free: list[int]

    def minimum(self, first: Measure, second: Measure) -> Measure:
        return first if first < second else second

    def maximum(self, first: Measure, second: Measure) -> Measure:
        return first if first > second else second

    def truncate(self, fraction: Measure) -> Measure:
        return int(fraction)

    def judge(self, facts: Column[Fact], judge_fact: Callable[[Fact], int], by: Hashable = None) -> Measure:
        return judge_fact(facts[self.row])

    def amount(self, amounts: NDArray[np.int64]) -> Measure:
        return amounts.item(self.row)


NodeView = BatchView | RowView

"""What a plugin reads of nodes: many rows at once as arrays, or one row as plain integers.

A formula with ``+ - * // / < > == & | <<`` and `abs` works on both, so a plugin is written once. `NodeView` has what
operators cannot express. This matters because a pod changes one row, and a call of numpy costs as much for one number
as for a hundred: about fifty calls for one row cost several times the arithmetic.
"""

from collections.abc import Callable, Hashable
from typing import Any, NamedTuple, Protocol, TypeVar

import numpy as np
from numpy.typing import NDArray

from scheduler.placement.steps import Steps

# An integer, fraction or truth value for each row: an array, or a single value.
Measure = Any
Rows = NDArray[np.intp]
Fact = TypeVar("Fact", bound=Hashable)
_Fact_co = TypeVar("_Fact_co", bound=Hashable, covariant=True)


class Facts(Protocol[_Fact_co]):
    """A fact of each row."""

    def __getitem__(self, row: int, /) -> _Fact_co: ...

    def spread(
        self, judge: Callable[[_Fact_co], int], rows: Rows, by: Hashable = None, steps: Steps | None = None
    ) -> NDArray[np.int64]: ...


class Lines(Protocol):
    """A measure for each resource, by the number of its line."""

    def __getitem__(self, line: int, /) -> Measure: ...


class NodeView(Protocol):
    """What the nodes have, and what their pods leave of it."""

    @property
    def allocatable(self) -> Lines: ...

    @property
    def free(self) -> Lines: ...

    def minimum(self, first: Measure, second: Measure) -> Measure:
        """Return the smaller of two numbers."""

    def maximum(self, first: Measure, second: Measure) -> Measure:
        """Return the larger of two numbers."""

    def truncate(self, fraction: Measure) -> Measure:
        """Truncate a fraction to an integer."""

    def judge(self, facts: Facts[Fact], judge_fact: Callable[[Fact], int], by: Hashable = None) -> Measure:
        """Return what ``judge_fact`` returns for a fact.

        With ``by``, the results are kept; it identifies the judge and everything on which its results depend besides
        the fact.
        """

    def amount(self, amounts: NDArray[np.int64]) -> Measure:
        """Return an amount that is kept by row."""


class BatchView(NamedTuple):
    """Some rows, a column each; the facts evaluated for them are counted in ``steps``."""

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

    def judge(self, facts: Facts[Fact], judge_fact: Callable[[Fact], int], by: Hashable = None) -> Measure:
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

    def judge(self, facts: Facts[Fact], judge_fact: Callable[[Fact], int], by: Hashable = None) -> Measure:
        return judge_fact(facts[self.row])

    def amount(self, amounts: NDArray[np.int64]) -> Measure:
        return amounts.item(self.row)

"""A fact of each row as a dictionary-encoded column, the journal of the rows that changed, and what plugins read.

A column and its snapshots share their arrays until one of them is written; the writer takes copies first.

A plugin reads many rows at once as arrays (`BatchView`), or one row as plain integers (`RowView`). A formula with
``+ - * // / < > == & | <<`` and `abs` works on both, so a plugin is written once; methods have what operators cannot
express. This matters because a pod changes one row, and a call of numpy costs as much for one number as for a hundred:
about fifty calls for one row cost several times the arithmetic.
"""

from collections.abc import Callable, Collection, Hashable, Iterable
from typing import Any, Generic, NamedTuple, TypeVar

import numpy as np

# `np.unique` imports it at its first call: 40 ms and more in the middle of a decision.
import numpy.ma
from numpy.typing import NDArray

from scheduler.placement.steps import Steps

Rows = NDArray[np.intp]
Amounts = NDArray[np.int64]
# For how many judges results are kept, and how many texts for each: one value that changes repeatedly may have a new
# text each time.
_MOST_JUDGES, _MOST_TEXTS = 32, 256
Fact = TypeVar("Fact", bound=Hashable)
Value = TypeVar("Value")
# A result that may differ next time, for example because a search was interrupted.
NOT_KEPT = -1


class Judgements:
    """The results of one judge for the values of a column, by their numbers; ``texts`` are numbered from 1.

    A result is dropped with its value. All are 0 or more, except `NOT_KEPT`.
    """

    __slots__ = ("codes", "texts")

    def __init__(self) -> None:
        self.codes = np.empty(0, np.int64)
        self.texts: dict[str, int] = {}

    def code(self, text: str) -> int:
        """Return the number of a text; 0 for the empty one."""
        return self.texts.setdefault(text, len(self.texts) + 1) if text else 0

    def copy(self) -> "Judgements":
        copy = Judgements()
        copy.codes, copy.texts = self.codes.copy(), self.texts.copy()
        return copy

    def forget(self, number: int) -> None:
        if number < len(self.codes):
            self.codes[number] = NOT_KEPT

    def cover(self, count: int) -> None:
        if len(self.codes) < count:
            codes = np.empty(count + count // 2, np.int64)
            codes[: len(self.codes)] = self.codes
            codes[len(self.codes) :] = NOT_KEPT
            self.codes = codes


class Column(Generic[Fact]):
    """A fact of each row. Each distinct value is kept once, for as long as a row has it."""

    def __init__(self, capacity: int, empty: Fact) -> None:
        self.ids: NDArray[np.int32] = np.zeros(capacity, np.int32)
        self.values: list[Fact] = [empty]
        # How many rows have each value; rows with the empty value, number 0, are not counted.
        self._rows: list[int] = [0]
        self._ids_of: dict[Fact, int] = {empty: 0}
        self._free_ids: list[int] = []
        # By judge; the most recently used is last.
        self._judgements: dict[Hashable, Judgements] = {}
        # Whether a snapshot shares the arrays.
        self._is_shared = False

    def snapshot(self) -> "Column[Fact]":
        self._is_shared = True
        return shallow_copy(self)

    def __getitem__(self, row: int) -> Fact:
        value: Fact = self.values[self.ids[row]]
        return value

    def __setitem__(self, row: int, value: Fact) -> None:
        number, old_number = self._ids_of.get(value), int(self.ids[row])
        if number == old_number:
            return
        self._unshare()
        if number is None:
            number = self._new_number(value)
        self.ids[row] = number
        self._rows[number] += 1
        self._leave(old_number)

    def adopt(self, snapshot: "Column[Fact]", rows: Iterable[int]) -> None:
        """Take over what a snapshot has on rows that have not changed here since."""
        if self.values is not snapshot.values:
            for row in rows:
                self[row] = snapshot[row]

    def grow(self, capacity: int) -> None:
        self._unshare()
        self.ids = grown(self.ids, (capacity,))

    def _unshare(self) -> None:
        if self._is_shared:
            self.ids, self.values, self._rows = self.ids.copy(), self.values.copy(), self._rows.copy()
            self._ids_of, self._free_ids = self._ids_of.copy(), self._free_ids.copy()
            self._judgements = {by: judgements.copy() for by, judgements in self._judgements.items()}
            self._is_shared = False

    def spread(
        self, judge: Callable[[Fact], int], rows: Rows, by: Hashable = None, steps: Steps | None = None
    ) -> Amounts:
        """Judge each distinct value of these rows once; return a result for each row.

        With ``by``, the results are kept; it identifies the judge and everything on which its results depend besides
        the value. Evaluated values are counted in ``steps``, which may raise an exception before a value whose result
        would be kept: the next call continues there.
        """
        steps = steps or Steps()
        if by is not None:
            return self._spread_judgements(judge, rows, by, steps)
        if len(self.values) == 1:
            return np.full(len(rows), judge(self.values[0]), np.int64)
        ids = self.ids.take(rows)
        if len(ids) == 1:
            return np.array((judge(self.values[ids[0]]),), np.int64)
        present = np.zeros(len(self.values), np.bool_)
        present[ids] = True
        codes = np.zeros(len(self.values), np.int64)
        numbers = present.nonzero()[0].tolist()
        steps.value_count += len(numbers)
        for number in numbers:
            codes[number] = judge(self.values[number])
        return codes.take(ids)

    def judgements(self, by: Hashable) -> Judgements:
        """Return the kept results of a judge. Do not store them: only results kept here are updated for new values."""
        judgements = self._judgements.pop(by, None) or Judgements()
        if len(self._judgements) >= _MOST_JUDGES:
            del self._judgements[next(iter(self._judgements))]
        self._judgements[by] = judgements
        return judgements

    def _spread_judgements(self, judge: Callable[[Fact], int], rows: Rows, by: Hashable, steps: Steps) -> Amounts:
        judgements = self.judgements(by)
        judgements.cover(len(self.values))
        ids = self.ids.take(rows)
        codes = judgements.codes.take(ids)
        if (codes < 0).any():
            present = np.zeros(len(self.values), np.bool_)
            present[ids] = True
            numbers = (present & (judgements.codes[: len(self.values)] < 0)).nonzero()[0].tolist()
            for number in numbers:
                steps.judge()
                judgements.codes[number] = judge(self.values[number])
            codes = judgements.codes.take(ids)
        # Not before every row has its result: a call that continues would never end.
        if len(judgements.texts) > _MOST_TEXTS:
            self._judgements.pop(by, None)
        return codes

    def among(self, values: Collection[Fact], rows: Rows | slice) -> NDArray[np.bool_]:
        """Return which rows have one of these values; none of these is the empty one."""
        if len(values) <= len(self._ids_of):
            numbers = [number for value in values if (number := self._ids_of.get(value)) is not None]
        else:
            numbers = [number for value, number in self._ids_of.items() if value in values]
        present = np.zeros(len(self.values), np.bool_)
        present[numbers] = True
        return present[self.ids[rows]]

    def _new_number(self, value: Fact) -> int:
        if self._free_ids:
            number = self._free_ids.pop()
            self.values[number] = value
            for judgements in self._judgements.values():
                judgements.forget(number)
        else:
            number = len(self.values)
            self.values.append(value)
            self._rows.append(0)
        self._ids_of[value] = number
        return number

    def _leave(self, number: int) -> None:
        self._rows[number] -= 1
        if number and self._rows[number] == 0:
            del self._ids_of[self.values[number]]
            self.values[number] = self.values[0]
            self._free_ids.append(number)


class Journal:
    """The rows that changed, each with the number of its last change, in that order."""

    __slots__ = ("_last", "end")

    def __init__(self) -> None:
        # The number of the next change.
        self.end = 0
        self._last: dict[int, int] = {}

    def successor(self) -> "Journal":
        """Return an empty journal that continues with the numbers of this one."""
        journal = Journal()
        journal.end = self.end
        return journal

    def note(self, row: int) -> None:
        self._last.pop(row, None)
        self._last[row] = self.end
        self.end += 1

    def has_changed(self, row: int, number: int) -> bool:
        return self._last.get(row, -1) >= number

    def since(self, number: int) -> list[int]:
        """Return the distinct rows changed since then, the most recent first."""
        rows = list[int]()
        for row, last in reversed(self._last.items()):
            if last < number:
                break
            rows.append(row)
        return rows


def shallow_copy(value: Value) -> Value:
    """Return an object with the same attributes, in a third of the time of `copy.copy`."""
    duplicate = object.__new__(type(value))
    duplicate.__dict__ = value.__dict__.copy()
    return duplicate


def grown(array: NDArray[Any], shape: tuple[int, ...]) -> NDArray[Any]:
    larger: NDArray[Any] = np.zeros(shape, array.dtype)
    larger[tuple(slice(length) for length in array.shape)] = array
    return larger


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

"""Counts by row: a dictionary for few rows, an array for many."""

from collections.abc import Mapping, Sequence
from itertools import chain

import numpy as np
from numpy.typing import NDArray

Counts = NDArray[np.int64]
_FEW = 64


class RowCounts:
    """Counts by row, positive or negative; ``users`` is for the owner."""

    __slots__ = ("_counts", "_few", "users")

    def __init__(self) -> None:
        self._few: dict[int, int] | None = {}
        self._counts: Counts = np.zeros(0, np.int64)
        self.users = 0

    @classmethod
    def of(cls, parts: Sequence[Mapping[int, int]]) -> "RowCounts":
        row_counts = cls()
        rows = np.fromiter(chain.from_iterable(parts), np.intp)
        if len(rows) <= _FEW:
            for row, count in chain.from_iterable(part.items() for part in parts):
                row_counts.shift(row, count)
            return row_counts
        counts = np.fromiter(chain.from_iterable(part.values() for part in parts), np.int64, len(rows))
        row_counts._few, row_counts._counts = None, np.bincount(rows, counts).astype(np.int64)
        return row_counts

    def copy(self) -> "RowCounts":
        copy = RowCounts()
        copy._few = None if self._few is None else self._few.copy()
        copy._counts = self._counts.copy()
        return copy

    def shift(self, row: int, by: int) -> None:
        few = self._few
        if few is not None:
            few[row] = few.get(row, 0) + by
            if not few[row]:
                del few[row]
            if len(few) > _FEW:
                self._to_array(few)
            return
        if row >= len(self._counts):
            self._grow(row + 1)
        self._counts[row] += by

    def add(self, other: "RowCounts") -> None:
        rows, counts = other.rows()
        if self._few is not None and len(self._few) + len(rows) > _FEW:
            self._to_array(self._few)
        if self._few is not None:
            for row, count in zip(rows.tolist(), counts.tolist(), strict=True):
                self.shift(row, count)
            return
        if len(rows) and (size := int(rows.max()) + 1) > len(self._counts):
            self._grow(size)
        self._counts[rows] += counts

    def rows(self) -> tuple[NDArray[np.intp], Counts]:
        """Return the rows with a count, in no order, and their counts."""
        few = self._few
        if few is None:
            rows = np.flatnonzero(self._counts)
            return rows, self._counts[rows]
        return np.fromiter(few, np.intp, len(few)), np.fromiter(few.values(), np.int64, len(few))

    @staticmethod
    def rows_of_all(parts: Sequence["RowCounts"]) -> tuple[NDArray[np.intp], Counts]:
        """Return the rows on which these have a count, once for each of them, and the counts."""
        few = [part._few for part in parts if part._few]
        many = [part.rows() for part in parts if part._few is None]
        rows = np.fromiter(chain.from_iterable(few), np.intp)
        counts = np.fromiter(chain.from_iterable(rows_few.values() for rows_few in few), np.int64)
        return np.concatenate([rows, *(item for item, _ in many)]), np.concatenate(
            [counts, *(item for _, item in many)]
        )

    def array(self, size: int) -> Counts:
        """Return the counts of rows 0 to ``size``; the result is read-only."""
        if self._few is not None:
            counts = np.zeros(size, np.int64)
            rows, amounts = self.rows()
            counts[rows] = amounts
            return counts
        if len(self._counts) < size:
            self._grow(size)
        return self._counts[:size]

    def _to_array(self, few: dict[int, int]) -> None:
        self._few = None
        self._grow(max(few, default=0) + 1)
        for row, count in few.items():
            self._counts[row] = count

    def _grow(self, size: int) -> None:
        grown = np.zeros(max(size, 2 * len(self._counts)), np.int64)
        grown[: len(self._counts)] = self._counts
        self._counts = grown

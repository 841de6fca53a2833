"""Counts by row: a dictionary for few rows, an array for many."""

from collections.abc import Mapping, Sequence
from itertools import chain

import numpy as np
from numpy.typing import NDArray

Counts = NDArray[np.int64]
_MAX_DICT_ROWS = 64


class RowCounts:
    """Counts by row, positive or negative; ``users`` is for the owner."""

    __slots__ = ("_by_row", "_counts", "users")

    def __init__(self) -> None:
        self._by_row: dict[int, int] | None = {}
        self._counts: Counts = np.zeros(0, np.int64)
        self.users = 0

    @classmethod
    def of(cls, parts: Sequence[Mapping[int, int]]) -> "RowCounts":
        row_counts = cls()
        rows = np.fromiter(chain.from_iterable(parts), np.intp)
        if len(rows) <= _MAX_DICT_ROWS:
            for row, count in chain.from_iterable(part.items() for part in parts):
                row_counts.shift(row, count)
            return row_counts
        counts = np.fromiter(chain.from_iterable(part.values() for part in parts), np.int64, len(rows))
        row_counts._by_row, row_counts._counts = None, np.bincount(rows, counts).astype(np.int64)
        return row_counts

    def copy(self) -> "RowCounts":
        copy = RowCounts()
        copy._by_row = None if self._by_row is None else self._by_row.copy()
        copy._counts = self._counts.copy()
        return copy

    def shift(self, row: int, by: int) -> None:
        by_row = self._by_row
        if by_row is not None:
            by_row[row] = by_row.get(row, 0) + by
            if not by_row[row]:
                del by_row[row]
            if len(by_row) > _MAX_DICT_ROWS:
                self._to_array(by_row)
            return
        if row >= len(self._counts):
            self._grow(row + 1)
        self._counts[row] += by

    def rows(self) -> tuple[NDArray[np.intp], Counts]:
        """Return the rows with a count, in no order, and their counts."""
        by_row = self._by_row
        if by_row is None:
            rows = np.flatnonzero(self._counts)
            return rows, self._counts[rows]
        return np.fromiter(by_row, np.intp, len(by_row)), np.fromiter(by_row.values(), np.int64, len(by_row))

    @staticmethod
    def joint_rows(parts: Sequence["RowCounts"]) -> tuple[NDArray[np.intp], Counts]:
        """Return the rows on which these have a count, once for each of them, and the counts."""
        dicts = [part._by_row for part in parts if part._by_row]
        arrays = [part.rows() for part in parts if part._by_row is None]
        rows = [np.fromiter(chain.from_iterable(dicts), np.intp), *(array_rows for array_rows, _ in arrays)]
        counts = np.fromiter(chain.from_iterable(row_counts.values() for row_counts in dicts), np.int64)
        return np.concatenate(rows), np.concatenate([counts, *(array_counts for _, array_counts in arrays)])

    def array(self, size: int) -> Counts:
        """Return the counts of rows 0 to ``size``; the result is read-only."""
        if self._by_row is not None:
            counts = np.zeros(size, np.int64)
            rows, amounts = self.rows()
            counts[rows] = amounts
            return counts
        if len(self._counts) < size:
            self._grow(size)
        return self._counts[:size]

    def _to_array(self, by_row: dict[int, int]) -> None:
        self._by_row = None
        self._grow(max(by_row, default=0) + 1)
        for row, count in by_row.items():
            self._counts[row] = count

    def _grow(self, size: int) -> None:
        larger = np.zeros(max(size, 2 * len(self._counts)), np.int64)
        larger[: len(self._counts)] = self._counts
        self._counts = larger

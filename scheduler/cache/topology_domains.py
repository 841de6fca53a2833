"""The topology domains of a node label: the sets of nodes with the same value."""

from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from scheduler.cache.column import Amounts
from scheduler.cache.node_columns import Flags, NodeColumns, Rows


@dataclass(frozen=True, slots=True)
class Domains:
    """Each row's domain; 0, which is not a domain, if a node lacks the label."""

    ids: NDArray[np.int32]
    # One more than the highest number of a domain.
    end: int

    def have(self, rows: Rows) -> Flags:
        return self.ids[rows] > 0

    def sums(self, counts: Amounts, among: Flags | None = None) -> Amounts:
        """Return the sum of counts, one for each row, in each domain; only of the rows marked ``among`` if given."""
        weights = counts if among is None else counts * among
        return _integers(np.bincount(self.ids, weights, self.end))

    def row_sums(self, rows: Rows, counts: Amounts) -> Amounts:
        """Return the sum of counts in each domain, for counts of these rows only."""
        return _integers(np.bincount(self.ids[rows], counts, self.end))

    def domain_flags(self, among: Flags) -> Flags:
        flags = np.zeros(self.end, np.bool_)
        flags[self.ids[among]] = True
        flags[0] = False
        return flags


def domains(nodes: NodeColumns, key: str) -> Domains:
    """Return the domains of a node label; rows without a node hold no pods and are never candidates."""
    column = nodes.label(key)
    return Domains(column.ids[: nodes.size], len(column.values))


def _integers(sums: NDArray[Any]) -> Amounts:
    # Counts of pods are far below 2**53, so floating point sums of them are exact.
    totals: Amounts = sums.astype(np.int64)
    totals[0] = 0
    return totals

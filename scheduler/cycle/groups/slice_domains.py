"""The domains of a group's slices, and how many members in whole slices each admits, by plain sums. Pure.

A domain of a level is the set of nodes with one value of its label inside one domain of the next wider level. Wide
slices consist of whole narrow ones, so each sum is rounded down to whole slices before it counts for the wider domain.
"""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from mooring.annotations.group import Slice
from scheduler.cache.column import Amounts
from scheduler.cache.node_columns import NodeColumns, Rows


@dataclass(frozen=True, slots=True)
class SliceLevel:
    """The domain of each row at one level, and the wider domain that contains each domain."""

    slice: Slice
    domain_of_row: Amounts
    wider: Amounts


@dataclass(frozen=True, slots=True)
class SliceDomains:
    """The levels from wide to narrow, for the ``rows`` that have all of their labels."""

    rows: Rows
    levels: Sequence[SliceLevel]

    @property
    def domain_of_row(self) -> Amounts:
        """Each row's domain of the narrowest level."""
        return self.levels[-1].domain_of_row

    def count(self) -> int:
        """Return how many domains the narrowest level has."""
        return len(self.levels[-1].wider)

    def admitted(self, free: Amounts, count: int, *, whole: bool = True) -> list[Amounts]:
        """Return how many members each of ``count`` domains around the slices admits, then each domain of each level.

        ``free`` is how many each of the narrowest level admits. Only ``whole`` slices of narrower levels count.
        """
        result, amounts = [free], free
        sizes = [len(level.wider) for level in self.levels]
        for level, wider_count in zip(reversed(self.levels), [*sizes[-2::-1], count], strict=True):
            amounts = np.maximum(amounts, 0)
            sums = np.zeros(wider_count, np.int64)
            np.add.at(sums, level.wider, amounts // level.slice.size * level.slice.size if whole else amounts)
            result.append(sums)
            amounts = sums
        return result[::-1]


def slice_domains(slices: Sequence[Slice], nodes: NodeColumns, rows: Rows, domain_of_row: Amounts) -> SliceDomains:
    """Return the domains of slices in some rows; ``domain_of_row`` is the domain that contains all slices."""
    has_labels = np.ones(len(rows), np.bool_)
    for one in slices:
        has_labels &= nodes.label(one.within).ids[rows] > 0
    rows, ids, levels = rows[has_labels], domain_of_row[has_labels], list[SliceLevel]()
    for one in slices:
        column = nodes.label(one.within)
        _, first, narrower = np.unique(
            ids * len(column.values) + column.ids[rows], return_index=True, return_inverse=True
        )
        levels.append(SliceLevel(one, narrower, ids[first]))
        ids = narrower
    return SliceDomains(rows, levels)

"""Compute how many members of a group rows, slices and topology domains admit, by plain sums. Pure.

A domain admits the group as often as its rows admit each shape, and as its resources suffice in sum; members count in
the mix of the group. Both are upper bounds, so a domain that is excluded really has too little room. Wide slices
consist of whole narrow ones, so each sum is rounded down to whole slices before it counts for the wider domain.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import NamedTuple

import numpy as np

from mooring.annotations.group import Slice
from scheduler.cache.column import Amounts
from scheduler.cache.node_columns import LINES, NodeColumns, Rows
from scheduler.cycle.groups.group_demand import GroupDemand, are_apart_by_host, needs
from scheduler.kube.pod_info import PodInfo

# More members than any node admits.
_MAX_ROOM = 1 << 30


class Partition(NamedTuple):
    """Some rows and the number of each one's domain, below ``domain_count``."""

    rows: Rows
    domain_of_row: Amounts
    domain_count: int

    def sums(self, amounts: Amounts) -> Amounts:
        return _sums(self.domain_of_row, amounts[self.rows], self.domain_count)

    def split(self, nodes: NodeColumns, key: str) -> tuple["Partition", Rows]:
        """Return the domains divided by the values of a label, and the index of the first row of each."""
        column = nodes.label(key)
        numbers = self.domain_of_row * len(column.values) + column.ids[self.rows]
        _, first, domain_of_row = np.unique(numbers, return_index=True, return_inverse=True)
        return Partition(self.rows, domain_of_row, len(first)), first


def one_domain(rows: Rows) -> Partition:
    return Partition(rows, np.zeros(len(rows), np.int64), 1)


class SliceLevel(NamedTuple):
    """The domain of each row at one level, and the wider domain that contains each domain."""

    slice: Slice
    domain_of_row: Amounts
    wider: Amounts


class SliceDomains(NamedTuple):
    """The levels from wide to narrow, for the rows that have all of their labels; ``narrowest`` has the last level."""

    levels: Sequence[SliceLevel]
    narrowest: Partition

    def admitted(self, free: Amounts, count: int, *, whole: bool = True) -> list[Amounts]:
        """Return how many members each of ``count`` domains around the slices admits, then each domain of each level.

        ``free`` is how many each of the narrowest level admits. Only ``whole`` slices of narrower levels count.
        """
        result = [free]
        sizes = [count, *(len(level.wider) for level in self.levels)]
        for level, wider_count in zip(reversed(self.levels), sizes[-2::-1], strict=True):
            amounts = np.maximum(result[-1], 0)
            if whole:
                amounts = amounts // level.slice.size * level.slice.size
            result.append(_sums(level.wider, amounts, wider_count))
        return result[::-1]


def slice_domains(slices: Sequence[Slice], nodes: NodeColumns, partition: Partition) -> SliceDomains:
    """Return the domains of slices in some rows; ``partition`` has the domains that contain all slices."""
    has_labels = np.ones(len(partition.rows), np.bool_)
    for level in slices:
        has_labels &= nodes.label(level.within).ids[partition.rows] > 0
    rows, domain_of_row, count = partition
    narrowest, levels = Partition(rows[has_labels], domain_of_row[has_labels], count), list[SliceLevel]()
    for level in slices:
        wider = narrowest.domain_of_row
        narrowest, first = narrowest.split(nodes, level.within)
        levels.append(SliceLevel(level, narrowest.domain_of_row, wider[first]))
    return SliceDomains(levels, narrowest)


def _sums(domain_of_each: Amounts, amounts: Amounts, count: int) -> Amounts:
    sums = np.zeros(count, np.int64)
    # Floating point cannot sum bytes of memory of many nodes exactly.
    np.add.at(sums, domain_of_each, amounts)
    return sums


@dataclass(frozen=True)
class MemberRoom:
    """How many members each row admits; ``rows_of_shapes`` are the rows that pass for each shape.

    It is computed when first needed; groups without a label to share never need it.
    """

    nodes: NodeColumns
    demand: GroupDemand
    rows_of_shapes: Sequence[Rows]

    @cached_property
    def _rooms(self) -> list[tuple[Amounts, int]]:
        """How many members of each shape each row admits, and how many members have the shape."""
        is_apart = are_apart_by_host(self.demand.summed_members)
        triples = zip(self.demand.shapes, self.rows_of_shapes, self.demand.shape_counts, strict=True)
        return [(_room(member, rows, self.nodes, is_apart=is_apart), count) for member, rows, count in triples]

    @cached_property
    def _free_and_demands(self) -> list[tuple[Amounts, Amounts]]:
        """The free amount of each resource on the rows, and what each member needs."""
        if len(self.demand.shapes) < 2:
            return []
        mask = np.zeros(self.nodes.size, np.int64)
        for rows in self.rows_of_shapes:
            mask[rows] = 1
        demands_of_shapes = np.array([needs(member) for member in self.demand.shapes], np.int64)
        demands = np.repeat(demands_of_shapes, self.demand.shape_counts, axis=0).T
        free = np.maximum(self.nodes.view(np.arange(self.nodes.size)).free, 0) * mask
        lines = zip(free, demands, strict=True)
        return [(free_of_line, demand) for free_of_line, demand in lines if demand.any()]

    def of_any_rank(self, partition: Partition) -> Amounts:
        """Return how many members each domain admits, the smallest first, whatever slices they are in."""
        counts = np.zeros(partition.domain_count, np.int64)
        for room, count in self._rooms:
            counts += np.minimum(partition.sums(room), count)
        for free, demands in self._free_and_demands:
            smallest_first = np.cumsum(np.sort(demands))
            counts = np.minimum(counts, np.searchsorted(smallest_first, partition.sums(free), "right"))
        return counts

    def of_any(self, partition: Partition) -> Amounts:
        """Return how many members each domain admits if others are left out."""
        return np.minimum(self.of_any_rank(partition), self._in_slices(partition))

    def of_all(self, partition: Partition) -> Amounts:
        """Return how many members in the group's mix each domain admits."""
        counts = self._in_slices(partition)
        for room, count in self._rooms:
            counts = np.minimum(counts, self._members_for(partition.sums(room), count))
        for free, demands in self._free_and_demands:
            counts = np.minimum(counts, self._members_for(partition.sums(free), int(demands.sum())))
        return counts

    def _in_slices(self, partition: Partition) -> Amounts:
        """Return how many members each domain admits in whole slices and a remainder; no limit without slices."""
        slices = self.demand.group.slices
        if not slices:
            return np.full(partition.domain_count, _MAX_ROOM, np.int64)
        domains = slice_domains(slices, self.nodes, partition)
        free = self.of_any_rank(domains.narrowest)
        return domains.admitted(free, partition.domain_count)[0] + len(self.demand.members) % slices[0].size

    def _members_for(self, free: Amounts, amount: int) -> Amounts:
        """Return for how many members ``free`` is enough, if the whole group needs ``amount``."""
        (factors, rest), count = np.divmod(free, amount), len(self.demand.summed_members)
        # The remainder of a group's memory, times its members, is below 2^64.
        member_count: Amounts = np.minimum(factors, _MAX_ROOM) * count + rest * count // amount
        return member_count


def _room(member: PodInfo, rows: Rows, nodes: NodeColumns, *, is_apart: bool) -> Amounts:
    """Return how many members of a shape each row admits; a row that passes admits at least one."""
    room = np.full(len(rows), 1 if is_apart or member.ports else _MAX_ROOM, np.int64)
    for free, demand in _amounts(member, rows, nodes):
        room = np.minimum(room, free // demand)
    counts = np.zeros(nodes.size, np.int64)
    counts[rows] = np.maximum(room, 1)
    return counts


def _amounts(member: PodInfo, rows: Rows, nodes: NodeColumns) -> Iterator[tuple[Amounts, int]]:
    yield from ((nodes.free(line, rows), demand) for line, demand in enumerate(needs(member)) if demand)
    for name, demand in member.resources.items():
        if demand and name not in LINES and (scalar := nodes.scalar(name)) is not None:
            yield scalar.free[rows], demand
    for wish in member.wishes:
        yield nodes.unit_pools[wish.kind.name].spread(lambda pool: len(pool.units.free), rows), 1

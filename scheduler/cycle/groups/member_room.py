"""Compute how many members of a group rows and topology domains admit, by plain sums. Pure.

A row admits as many members of one shape as its scarcest resource: cpu, memory, pods, VFs, Mb/s, other resources or
units. A domain admits the group as often as its rows admit each shape, and as its resources suffice in sum; members
count in the mix of the group. Both are upper bounds, so a domain that is excluded really has too little room.
"""

from collections import Counter
from collections.abc import Iterator, Sequence
from functools import cached_property

import numpy as np

from mooring.annotations.group import Slice
from scheduler.cache.column import Amounts
from scheduler.cache.node_columns import LINES, NodeColumns, Rows
from scheduler.cycle.groups.group_demand import are_apart_by_host, needs
from scheduler.cycle.groups.slice_domains import slice_domains
from scheduler.kube.pod_info import PodInfo

# More members than any node admits.
_MANY = 1 << 30


class MemberRoom:
    """How many members of each shape each row admits; ``rows_of_shapes`` are the rows that pass for each shape.

    It is computed when first needed; groups without a label to share never need it.
    """

    def __init__(
        self,
        members: Sequence[PodInfo],
        shapes: Sequence[PodInfo],
        rows_of_shapes: Sequence[Rows],
        nodes: NodeColumns,
        slices: Sequence[Slice] = (),
    ) -> None:
        self._count, self._shapes, self._rows_of_shapes, self._nodes = len(members), shapes, rows_of_shapes, nodes
        self._members, self._slices = members, slices

    @cached_property
    def _counts(self) -> list[int]:
        """How many members have each shape."""
        counts = Counter(member.shape for member in self._members)
        return [counts[member.shape] for member in self._shapes]

    @cached_property
    def _rooms(self) -> list[Amounts]:
        """How many members of each shape each row admits."""
        pairs, is_apart = zip(self._shapes, self._rows_of_shapes, strict=True), are_apart_by_host(self._members)
        return [_room(member, rows, self._nodes, is_apart=is_apart) for member, rows in pairs]

    @cached_property
    def _free_and_demands(self) -> list[tuple[Amounts, Amounts]]:
        """The free amount of each resource on the rows, and what each member needs."""
        if len(self._shapes) < 2:
            return []
        mask = np.zeros(self._nodes.size, np.int64)
        for rows in self._rows_of_shapes:
            mask[rows] = 1
        demands = np.repeat(np.array([needs(member) for member in self._shapes], np.int64), self._counts, axis=0).T
        free = np.maximum(self._nodes.view(np.arange(self._nodes.size)).free, 0) * mask
        lines = zip(free, demands, strict=True)
        return [(free_of_line, demand) for free_of_line, demand in lines if demand.any()]

    def of_any(self, rows: Rows, domain_of_row: Amounts, domains: int) -> Amounts:
        """Return how many of the group's members each domain admits if others are left out, in whole slices and a
        remainder.
        """
        counts = self.of_any_rank(rows, domain_of_row, domains)
        return np.minimum(counts, self._in_slices(rows, domain_of_row, domains)) if self._slices else counts

    def _in_slices(self, rows: Rows, domain_of_row: Amounts, domains: int) -> Amounts:
        slices = slice_domains(self._slices, self._nodes, rows, domain_of_row)
        free = self.of_any_rank(slices.rows, slices.domain_of_row, slices.count())
        return slices.admitted(free, domains)[0] + self._count % self._slices[0].size

    def of_any_rank(self, rows: Rows, domain_of_row: Amounts, domains: int) -> Amounts:
        """Return how many of the group's members each domain admits, whatever slices they are in, by counting the
        smallest first.
        """
        counts = np.zeros(domains, np.int64)
        for room, count in zip(self._rooms, self._counts, strict=True):
            counts += np.minimum(_sum_by_domain(domain_of_row, domains, room[rows]), count)
        for free, demands in self._free_and_demands:
            smallest_first = np.cumsum(np.sort(demands))
            sums = _sum_by_domain(domain_of_row, domains, free[rows])
            counts = np.minimum(counts, np.searchsorted(smallest_first, sums, "right"))
        return counts

    def of_all(self, rows: Rows, domain_of_row: Amounts, domains: int) -> Amounts:
        """Return how many members in the group's mix each domain admits; ``domain_of_row`` is each row's domain."""
        counts = self._in_slices(rows, domain_of_row, domains) if self._slices else np.full(domains, _MANY, np.int64)
        for room, count in zip(self._rooms, self._counts, strict=True):
            counts = np.minimum(counts, self._members_for(_sum_by_domain(domain_of_row, domains, room[rows]), count))
        for free, demands in self._free_and_demands:
            sums = _sum_by_domain(domain_of_row, domains, free[rows])
            counts = np.minimum(counts, self._members_for(sums, int(demands.sum())))
        return counts

    def _members_for(self, has: Amounts, amount: int) -> Amounts:
        """Return for how many members ``has`` is enough, if the whole group needs ``amount``."""
        often, rest = np.divmod(has, amount)
        # The remainder of a group's memory, times its members, is below 2^64.
        member_count: Amounts = np.minimum(often, _MANY) * self._count + rest * self._count // amount
        return member_count


def _room(member: PodInfo, rows: Rows, nodes: NodeColumns, *, is_apart: bool) -> Amounts:
    """Return how many members of a shape each row admits; a row that passes admits at least one."""
    room = np.full(len(rows), 1 if is_apart or member.ports else _MANY, np.int64)
    for free, demand in _amounts(member, rows, nodes):
        room = np.minimum(room, free // demand)
    counts = np.zeros(nodes.size, np.int64)
    counts[rows] = np.maximum(room, 1)
    return counts


def _amounts(member: PodInfo, rows: Rows, nodes: NodeColumns) -> Iterator[tuple[Amounts, int]]:
    """Yield for each resource the free amounts of the rows, and the amount that a member needs."""
    yield from ((nodes.free(line, rows), demand) for line, demand in enumerate(needs(member)) if demand)
    for name, demand in member.resources.items():
        if demand and name not in LINES and (scalar := nodes.scalar(name)) is not None:
            yield scalar.free[rows], demand
    for wish in member.wishes:
        yield nodes.unit_pools[wish.kind.name].spread(lambda pool: len(pool.units.free), rows), 1


def _sum_by_domain(domain_of_row: Amounts, domains: int, amounts: Amounts) -> Amounts:
    sums = np.zeros(domains, np.int64)
    # Floating point cannot sum bytes of memory of many nodes exactly.
    np.add.at(sums, domain_of_row, amounts)
    return sums

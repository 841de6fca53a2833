"""How many members of a group rows and topology domains could hold at the most. Pure.

What it is: it is counted how many members each row could hold, by what it has left of each resource and what else
bounds them. Where members differ each counts as the smallest; so do the largest of them by themselves, the two largest
kinds, and so on. A domain could hold the group as often as each of these, and as its resources suffice in sum: members
are counted as they are mixed in the group. Counted in the smallest alone, a domain with many cpus would be large for
the sake of a launcher, though it has no VFs for the workers.

Why it is right: these are upper bounds. A domain that holds the whole group has room for all members of each part.

What it costs: some arrays over all nodes for each part, of which there are seven at the most.
"""

from collections.abc import Iterator, Sequence
from typing import NamedTuple

import numpy as np

from scheduler.cache.column import Amounts
from scheduler.cache.node_columns import LINES, NodeColumns, Rows
from scheduler.cycle.groups.domain_bounds import DomainBound, summed
from scheduler.cycle.groups.members import by_size, needs
from scheduler.kube.pod_info import PodInfo

# More members than any node holds.
MANY = 1 << 40
# How many of the largest kinds are counted together; and those that are counted by themselves.
_LARGEST, _BY_THEMSELVES = (1, 2, 4, 8), 3


class Kind(NamedTuple):
    """Equal members: one of them, the rows that it passes, and how many there are."""

    member: PodInfo
    rows: Rows
    number: int


# Kinds that are counted together: all, or some.
Part = Sequence[Kind]


def parts_of(kinds: Sequence[Kind]) -> list[Part]:
    """Return the kinds that are counted together: all, and where there are more the largest, and some by themselves."""
    by_uid = {kind.member.uid: kind for kind in kinds}
    ordered = [by_uid[one.uid] for one in by_size([kind.member for kind in kinds])]
    largest = [ordered[:number] for number in _LARGEST if number < len(kinds)]
    return [kinds, *largest, *([kind] for kind in ordered[1:_BY_THEMSELVES])]


def room_for(part: Part, nodes: NodeColumns) -> Amounts:
    """Return for each row how many members it could hold at the most: each takes the least that any takes there."""
    room = np.zeros(nodes.size, np.int64)
    for member, rows, _ in part:
        room[rows] = 1 if len(part) == 1 and member.ports else MANY
    for left, takes in _amounts(part, nodes):
        # numpy divides by one number in a fraction of the time that an array of them takes.
        least = np.int64(takes[0]) if len(set(takes)) == 1 else _least(part, takes, nodes.size)
        room = np.minimum(room, np.where(least > 0, left // np.maximum(least, 1), MANY))
    # A row that a member passes holds one.
    for _, rows, _ in part:
        room[rows] = np.maximum(room[rows], 1)
    return np.maximum(room, 0)


def sums_of(kinds: Sequence[Kind], nodes: NodeColumns) -> Iterator[tuple[Amounts, int]]:
    """Yield for each resource what the rows have left that any member passes, and what all members take."""
    passed = np.zeros(nodes.size, np.int64)
    for kind in kinds:
        passed[kind.rows] = 1
    for left, takes in _amounts(kinds, nodes):
        if total := sum(amount * kind.number for amount, kind in zip(takes, kinds, strict=True)):
            yield np.maximum(left, 0) * passed, total


def _least(part: Part, takes: Sequence[int], size: int) -> Amounts:
    """Return the least that any of the members takes that pass a row, for each row."""
    least = np.full(size, MANY, np.int64)
    for kind, amount in zip(part, takes, strict=True):
        least[kind.rows] = np.minimum(least[kind.rows], amount)
    return least


def _amounts(kinds: Sequence[Kind], nodes: NodeColumns) -> Iterator[tuple[Amounts, Sequence[int]]]:
    """Yield for each resource what the rows have left, and what each member takes."""
    taken = zip(*(needs(kind.member) for kind in kinds), strict=True)
    yield from zip(nodes.view(np.arange(nodes.size)).left, taken, strict=True)
    named = {name for kind in kinds for name in kind.member.resources if name not in LINES}
    for name in sorted(one for one in named if not one.startswith("rdma-sriov/")):
        if (scalar := nodes.scalar(name)) is not None:
            yield scalar.left[: nodes.size], [kind.member.resources.get(name, 0) for kind in kinds]


class GroupRoom:
    """How many of a group's ``count`` members each row could hold, by parts; the first part is that of all members.

    ``sums`` are what the rows have left of each resource, and what all members take.
    """

    def __init__(self, count: int) -> None:
        self._count = count
        self._parts = list[tuple[int, Amounts, Sequence[DomainBound]]]()
        self.sums: Sequence[tuple[Amounts, int]] = ()

    def add(self, part: Part, room: Amounts, of_domains: Sequence[DomainBound]) -> None:
        """Add a part with how many of its members each row could hold, and what bounds those of a domain."""
        self._parts.append((sum(kind.number for kind in part), room, of_domains))

    def of_domains(self, rows: Rows, which: Amounts, domains: int) -> tuple[Amounts, Amounts]:
        """Return how many members each domain could hold as they are mixed in the group, and how many of the group's.

        ``which`` is the number of each row's domain, of which there are so many.
        """
        if not self._parts:
            return np.zeros(domains, np.int64), np.zeros(domains, np.int64)
        found = list[Amounts]()
        for _, room, bounds in self._parts:
            holds = summed(which, domains, room[rows])
            for bound in bounds:
                holds = np.minimum(holds, bound(rows, which, domains, room[rows]))
            found.append(holds)
        mixed, most = found[0], np.minimum(found[0], self._count)
        for (wanted, _, _), holds in zip(self._parts[1:], found[1:], strict=True):
            mixed = np.minimum(mixed, self._scaled(holds, wanted))
            # Of the others there may be room for all.
            most = np.minimum(most, self._count - wanted + np.minimum(holds, wanted))
        for left, wanted in self.sums:
            has = np.zeros(domains, np.int64)
            # Bytes of memory of many nodes are more than floating point sums exactly.
            np.add.at(has, which, left[rows])
            mixed = np.minimum(mixed, self._scaled(has, wanted))
        return mixed, most

    def _scaled(self, has: Amounts, wanted: int) -> Amounts:
        """Return for how many members of the group this is enough, where all of them want so much."""
        often, rest = np.divmod(has, wanted)
        # The rest of a group's memory, times its members, is less than 64 bits.
        scaled: Amounts = often * self._count + rest * self._count // wanted
        return scaled

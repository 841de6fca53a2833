"""How many members of a group rows and topology domains admit, by plain sums. Pure.

A row admits as many of one shape as the tightest of cpu, memory, pods, VFs, Mb/s, other resources and units does. A
domain admits the group as often as the rows of it admit each shape, and as its resources suffice in sum: members are
counted as they are mixed in the group. Both are upper bounds: a domain that is left out for them holds fewer in truth.
"""

from collections import Counter
from collections.abc import Iterator, Sequence

import numpy as np

from scheduler.cache.column import Amounts
from scheduler.cache.node_columns import LINES, NodeColumns, Rows
from scheduler.cycle.groups.members import HOSTNAME, apart_by, needs
from scheduler.kube.pod_info import PodInfo

# More members than any node admits.
_MANY = 1 << 30


class MemberRoom:
    """What each row admits of each shape; ``passing`` are the rows that a member of each shape passes."""

    def __init__(
        self, members: Sequence[PodInfo], shapes: Sequence[PodInfo], passing: Sequence[Rows], nodes: NodeColumns
    ) -> None:
        self._count = len(members)
        counts = Counter(one.shape for one in members)
        self._counts = [counts[one.shape] for one in shapes]
        is_apart = HOSTNAME in apart_by(members)
        rows = np.arange(nodes.size)
        self._rooms = [_room(one, at, nodes, is_apart=is_apart) for one, at in zip(shapes, passing, strict=True)]
        # What the rows have left of each resource, and what each member takes of it.
        self._left_and_taken: list[tuple[Amounts, Amounts]] = []
        if len(shapes) > 1:
            passed = np.zeros(nodes.size, np.int64)
            for at in passing:
                passed[at] = 1
            taken = np.repeat(np.array([needs(one) for one in shapes], np.int64), self._counts, axis=0).T
            left = np.maximum(nodes.view(rows).free, 0) * passed
            self._left_and_taken = [(one, of_line) for one, of_line in zip(left, taken, strict=True) if of_line.any()]

    def of_any(self, rows: Rows, which: Amounts, domains: int) -> Amounts:
        """Return how many of the group's members each domain admits, if others are left out: the smallest fit best."""
        found = np.zeros(domains, np.int64)
        for room, count in zip(self._rooms, self._counts, strict=True):
            found += np.minimum(_summed(which, domains, room[rows]), count)
        for left, taken in self._left_and_taken:
            smallest_first = np.cumsum(np.sort(taken))
            found = np.minimum(found, np.searchsorted(smallest_first, _summed(which, domains, left[rows]), "right"))
        return found

    def of_all(self, rows: Rows, which: Amounts, domains: int) -> Amounts:
        """Return how many members each domain admits as they are mixed; ``which`` is each row's domain."""
        found = np.full(domains, _MANY, np.int64)
        for room, count in zip(self._rooms, self._counts, strict=True):
            found = np.minimum(found, self._scaled(_summed(which, domains, room[rows]), count))
        for left, taken in self._left_and_taken:
            found = np.minimum(found, self._scaled(_summed(which, domains, left[rows]), int(taken.sum())))
        return found

    def _scaled(self, has: Amounts, wanted: int) -> Amounts:
        """Return for how many members of the group this is enough, where all of them want so much."""
        often, rest = np.divmod(has, wanted)
        # The rest of a group's memory, times its members, is less than 64 bits.
        scaled: Amounts = np.minimum(often, _MANY) * self._count + rest * self._count // wanted
        return scaled


def _room(member: PodInfo, passing: Rows, nodes: NodeColumns, *, is_apart: bool) -> Amounts:
    """Return how many members of a shape each row admits; a row that one passes admits one."""
    room = np.full(len(passing), 1 if is_apart or member.ports else _MANY, np.int64)
    for left, taken in _amounts(member, passing, nodes):
        room = np.minimum(room, left // taken)
    found = np.zeros(nodes.size, np.int64)
    found[passing] = np.maximum(room, 1)
    return found


def _amounts(member: PodInfo, rows: Rows, nodes: NodeColumns) -> Iterator[tuple[Amounts, int]]:
    """Yield for each resource what the rows have left, and what a member takes."""
    yield from ((left, taken) for left, taken in zip(nodes.view(rows).free, needs(member), strict=True) if taken)
    for name, taken in member.resources.items():
        if taken and name not in LINES and (scalar := nodes.scalar(name)) is not None:
            yield scalar.free[rows], taken
    for wish in member.wishes:
        yield nodes.unit_pools[wish.kind.name].spread(lambda pool: len(pool.units.free), rows), 1


def _summed(which: Amounts, domains: int, amounts: Amounts) -> Amounts:
    found = np.zeros(domains, np.int64)
    # Bytes of memory of many nodes are more than floating point sums exactly.
    np.add.at(found, which, amounts)
    return found

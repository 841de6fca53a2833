"""Which members go to which node where they fill the nodes nearly to the last: vector bin packing. Pure.

What it is: nodes are filled one after another, each with a set of members, the largest first. What a node leaves unused
must not be more than may be left unused in all: on nodes that have to be filled exactly few sets remain. That is bin
completion (R. Korf, "An improved algorithm for optimal bin packing", IJCAI 2003), with several lines at once.

Why it is right: all sets of a node that leave no more than that are tried, and what is left of nodes and members after
a failure is remembered. So if it ends without a result there is none, as far as the sums and ``fits`` say.

What it costs: a few microseconds a step, of which `advance` takes a portion. Lines are fields of one integer with a
guard bit each, so that one subtraction compares all of them.
"""

from collections.abc import Callable, Hashable, Iterator, Sequence
from dataclasses import dataclass

# How many members of each kind.
Counts = tuple[int, ...]
# Steps of one portion, a millisecond; and of the whole.
_PORTION = 250
_MOST = 200_000


@dataclass(frozen=True, slots=True)
class EqualMembers:
    """Members that are equal: what each needs of each line, and how many there are."""

    needs: Sequence[int]
    count: int


@dataclass(frozen=True, slots=True)
class FillableNode:
    """A node: what it has left of each line, and the kinds that may be there, as bits.

    On nodes of one ``shape`` the same members fit.
    """

    left: Sequence[int]
    passing: int
    shape: Hashable


class NodeFilling:
    """A search for counts of each kind of member for each node, which ``fits`` judges; ``found`` is the first."""

    def __init__(
        self, members: Sequence[EqualMembers], nodes: Sequence[FillableNode], fits: Callable[[int, Counts], bool]
    ) -> None:
        self._fits, self._nodes = fits, nodes
        self._known: dict[tuple[Hashable, Counts], bool] = {}
        totals = [sum(one.left[line] for one in nodes) for line in range(len(members[0].needs))]
        needed = [sum(one.needs[line] * one.count for one in members) for line in range(len(totals))]
        # A field holds the sum of all that is left, of all needs and of what may be left over, and its guard bit.
        self._width = 2 + max(max(totals, default=0), max(needed, default=0), 1).bit_length() + 1
        self._guards = sum(1 << (self._width * line + self._width - 1) for line in range(len(totals)))
        self._needs = [self._packed(one.needs) for one in members]
        self._left = [self._packed(one.left) for one in nodes]
        self._passing = [[bool(one.passing >> kind & 1) for kind in range(len(members))] for one in nodes]
        self._failed: set[tuple[int, Counts]] = set()
        self._steps = 0
        self.found: list[Counts] | None = None
        self.is_over = any(has < wants for has, wants in zip(totals, needed, strict=True))
        slack = 0 if self.is_over else self._packed([has - wants for has, wants in zip(totals, needed, strict=True)])
        self._search = self._fill_from(0, tuple(one.count for one in members), slack, [])

    def advance(self) -> None:
        """Go on for a portion of steps, or until ``fits`` was called; `is_over` and `found` say what came of it."""
        if not self.is_over and (next(self._search, None) is None or self._steps > _MOST):
            self.is_over = True

    def _packed(self, amounts: Sequence[int]) -> int:
        return sum(amount << (self._width * line) for line, amount in enumerate(amounts))

    def _is_enough(self, has: int, wants: int) -> bool:
        """Return whether each field of one is at least that of the other."""
        return ((has | self._guards) - wants) & self._guards == self._guards

    def _fill_from(self, number: int, rest: Counts, slack: int, chosen: list[Counts]) -> Iterator[bool]:
        """Fill the nodes from one on; yield after each portion, and end with ``found``."""
        if not any(rest):
            self.found = [*chosen, *[(0,) * len(rest)] * (len(self._left) - number)]
            return
        if number == len(self._left) or (number, rest) in self._failed:
            return
        for counts, used in self._sets(number, rest, slack):
            self._steps += 1
            if self._steps % _PORTION == 0:
                yield True
            if counts is None:
                continue
            key = self._nodes[number].shape, counts
            if key not in self._known:
                self._known[key] = not any(counts) or self._fits(number, counts)
                yield True
            if not self._known[key]:
                continue
            left = tuple(have - taken for have, taken in zip(rest, counts, strict=True))
            unused = self._left[number] - used
            yield from self._fill_from(number + 1, left, slack - unused, [*chosen, counts])
            if self.found is not None:
                return
        self._failed.add((number, rest))

    def _sets(self, number: int, rest: Counts, slack: int) -> Iterator[tuple[Counts | None, int]]:
        """Yield the sets of members that leave no more of a node than may be left, and None for each step between."""
        has, passing = self._left[number], self._passing[number]
        order = [kind for kind in range(len(rest)) if passing[kind] and rest[kind]]
        # What all kinds from one on could add.
        coming = [0] * (len(order) + 1)
        for place in range(len(order) - 1, -1, -1):
            coming[place] = coming[place + 1] + self._needs[order[place]] * rest[order[place]]
        counts = [0] * len(rest)

        def choose(place: int, used: int) -> Iterator[tuple[Counts | None, int]]:
            if not self._is_enough(slack + used + coming[place], has):
                yield None, 0
                return
            if place == len(order):
                yield tuple(counts), used
                return
            kind = order[place]
            need, most = self._needs[kind], 0
            while most < rest[kind] and self._is_enough(has, used + need * (most + 1)):
                most += 1
            for count in range(most, -1, -1):
                counts[kind] = count
                yield from choose(place + 1, used + need * count)
            counts[kind] = 0

        return choose(0, 0)

"""Yield the sets of items worth filling a bin with: one level of the search in `scheduler.placement.packing`.

Only the sets are tried that no other set dominates. A set is skipped if another item would still fit, or if an item of
it could be exchanged for a larger one that is allowed in no bin where the smaller is not. In any packing that uses the
skipped set, the two items can be exchanged, so the larger set packs whatever the skipped one does. Sources: Martello
and Toth, Knapsack Problems (1990), 8.5, dominance; Fukunaga and Korf, Bin completion algorithms (2007).

The sets come in one of two ways, by what costs less, and spend steps in proportion to the work that they do:

- Which sums the items can reach is computed first, as in the dynamic program for subset sum, with the sums as bits of
  an integer: a shift for each item. The enumeration then enters no branch that ends without a set.
- Of few items, where the bin is large and little of it may be wasted, all sets of one half meet those of the other.
  Source: Horowitz and Sahni, Computing partitions with applications to the knapsack problem (1974).
"""

from bisect import bisect_left, bisect_right
from collections.abc import Iterator, Sequence
from itertools import accumulate
from typing import NamedTuple

# A step is about a microsecond: the time to shift and join so many bits of a bin's size, or to shift so many only.
BITS_A_STEP = 6_000
COPIED_BITS_A_STEP = 60_000
# And to add so many sets of half of the items, or to sort them.
_SETS_A_STEP = 2


class Item(NamedTuple):
    """An item's size, and the bins that may hold it as bits."""

    size: int
    bins: int


class Bin(NamedTuple):
    """How many items a bin holds, and of which size in all."""

    slots: int
    size: int


class BudgetSpent(Exception):  # noqa: N818 - an outcome on its way up, not an error
    """The search has used all of its steps."""


class Steps:
    """The steps that a search may still take, and those that are set apart for what is known to end."""

    __slots__ = ("bounded", "left")

    def __init__(self, left: int, bounded: int = 0) -> None:
        self.left, self.bounded = left, bounded

    def spend_bounded(self, steps: int) -> None:
        """Spend steps of a search whose cost has a bound: first those set apart."""
        apart = min(self.bounded, steps)
        self.bounded -= apart
        self.spend(steps - apart)

    def spend(self, steps: int = 1) -> None:
        self.left -= steps
        if self.left < 0:
            raise BudgetSpent


def bits(mask: int) -> Iterator[int]:
    """Yield the positions of the bits that are set, lowest first."""
    while mask:
        low = mask & -mask
        yield low.bit_length() - 1
        mask ^= low


class Fillings:
    """The sets of items worth filling a bin with, as bits of their indices; those that waste the least size first.

    The items come as pairs of index and item, by decreasing size, none larger than the bin; their bins are the open
    ones. At most ``slack`` of the size may be wasted, and at least ``least`` items must be taken.
    """

    def __init__(self, capacity: Bin, items: Sequence[tuple[int, Item]], least: int, slack: int, steps: Steps) -> None:
        self.capacity, self.least, self.slack, self.steps = capacity, least, min(slack, capacity.size), steps
        self.sized = [(index, item) for index, item in items if item.size]
        self.weightless = [(index, item) for index, item in items if not item.size]
        self.sizes = [item.size for _, item in self.sized]
        self.before = [0, *accumulate(self.sizes)]
        reaching = (len(self.sized) + 1) * (1 + capacity.size // BITS_A_STEP)
        self.in_halves = self._cost_of_halves() < reaching
        steps.spend(5 + len(self.weightless) + (0 if self.in_halves else reaching))
        self.reach = [] if self.in_halves else self._reach()
        self.unlike = self._unlike()
        self.kinds = self._kinds()
        self.taken: list[int] = []

    def _reach(self) -> list[int]:
        """Return for each position which sums the items from there on can reach: bit ``capacity.size - sum``."""
        sums = 1 << self.capacity.size
        reach = [sums]
        for size in reversed(self.sizes):
            sums |= sums >> size
            reach.append(sums)
        return reach[::-1]

    def _unlike(self) -> list[int]:
        """Return for each position the next one with a different item: of equal items the first ones are taken."""
        unlike = list(range(1, len(self.sized) + 1))
        for position in range(len(self.sized) - 2, -1, -1):
            if self.sized[position][1] == self.sized[position + 1][1]:
                unlike[position] = unlike[position + 1]
        return unlike

    def __iter__(self) -> Iterator[int]:
        for waste, slots in self._of_halves() if self.in_halves else self._of_sums():
            weightless = min(slots, len(self.weightless))
            if len(self.taken) + weightless >= self.least and not self._can_be_better(waste, slots):
                yield from self._with_weightless(weightless)

    def _cost_of_halves(self) -> int:
        """Return how many steps it takes about to let the sets of two halves meet."""
        count = len(self.sized)
        most = (self.slack + 1 << count) // (self.before[-1] + 1)
        return (1 << (count + 1) // 2) + most

    def _of_halves(self) -> Iterator[tuple[int, int]]:
        """Set ``taken`` to each set that wastes no more than it may; yield its waste, and the slots that it leaves."""
        one, other = (sorted(self._sums(first)) for first in (0, 1))
        self.steps.spend((len(one) + len(other)) // _SETS_A_STEP)
        sums = [total for total, _ in other]
        found = []
        for total, taken in one:
            self.steps.spend()
            most = self.capacity.size - total
            for number in range(bisect_left(sums, most - self.slack), bisect_right(sums, most)):
                self.steps.spend()
                found.append((most - sums[number], taken | other[number][1]))
        for waste, taken in sorted(found):
            slots = self.capacity.slots - taken.bit_count()
            if slots >= 0 and self._are_first(taken):
                self.taken = list(bits(taken))
                yield waste, slots

    def _sums(self, first: int) -> list[tuple[int, int]]:
        """Return the sums of every second item from the first on that the bin holds, with positions as bits."""
        found = [(0, 0)]
        for position in range(first, len(self.sizes), 2):
            most, bit = self.capacity.size - self.sizes[position], 1 << position
            found += [(total + self.sizes[position], taken | bit) for total, taken in found if total <= most]
        return found

    def _are_first(self, taken: int) -> bool:
        """Return whether of equal items the first ones are taken."""
        return not any(
            taken >> position & 2 and not taken >> position & 1 and self.unlike[position] > position + 1
            for position in range(len(self.sizes) - 1)
        )

    def _of_sums(self) -> Iterator[tuple[int, int]]:
        """Set ``taken`` to each set that wastes no more than it may; yield its waste, and the slots that it leaves."""
        for waste in bits(self.reach[0] & ((1 << self.slack + 1) - 1)):
            self.steps.spend(1 + self.slack // BITS_A_STEP)
            for slots in self._subsets(0, self.capacity.size - waste, self.capacity.slots):
                yield waste, slots

    def _subsets(self, position: int, total: int, slots: int) -> Iterator[int]:
        """Set ``taken`` to each subset of the items from there on with this sum; yield the slots that it leaves."""
        self.steps.spend()
        if not total:
            yield slots
        elif slots:
            while self._reaches(position, total) and self._largest(position, slots) >= total:
                self.steps.spend(1 + total // COPIED_BITS_A_STEP)
                rest = total - self.sizes[position]
                if self._reaches(position + 1, rest):
                    self.taken.append(position)
                    yield from self._subsets(position + 1, rest, slots - 1)
                    self.taken.pop()
                position = self.unlike[position]

    def _reaches(self, position: int, total: int) -> int:
        return total >= 0 and self.reach[position] >> self.capacity.size - total & 1

    def _largest(self, position: int, slots: int) -> int:
        return self.before[min(position + slots, len(self.sizes))] - self.before[position]

    def _can_be_better(self, waste: int, slots: int) -> bool:
        """Return whether the bin could hold one more item, or a larger one in place of one that is taken."""
        if not waste:
            return False
        return (slots > len(self.weightless) and self._holds_more(waste)) or any(
            self._exchangeable(position, waste) for position in self.taken
        )

    def _holds_more(self, waste: int) -> bool:
        for position in range(len(self.sizes) - 1, -1, -1):
            self.steps.spend()
            if self.sizes[position] > waste:
                return False
            if position not in self.taken:
                return True
        return False

    def _exchangeable(self, position: int, waste: int) -> bool:
        size, bins = self.sized[position][1]
        for larger in range(position - 1, -1, -1):
            self.steps.spend()
            more = self.sizes[larger] - size
            if more > waste:
                return False
            if more and larger not in self.taken and not self.sized[larger][1].bins & ~bins:
                return True
        return False

    def _with_weightless(self, count: int) -> Iterator[int]:
        taken = sum(1 << self.sized[position][0] for position in self.taken)
        return (taken | chosen for chosen in self._choices(self.kinds, count))

    def _kinds(self) -> list[list[int]]:
        """Group the items of size 0 by the bins that may hold them."""
        kinds: dict[int, list[int]] = {}
        for index, item in self.weightless:
            kinds.setdefault(item.bins, []).append(1 << index)
        return list(kinds.values())

    def _choices(self, kinds: Sequence[list[int]], count: int) -> Iterator[int]:
        """Yield each way to choose so many items, of equal items the first ones."""
        self.steps.spend()
        if not count:
            yield 0
        elif sum(map(len, kinds)) >= count:
            for number in range(min(count, len(kinds[0])), -1, -1):
                for rest in self._choices(kinds[1:], count - number):
                    yield sum(kinds[0][:number]) | rest

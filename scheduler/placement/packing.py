"""Pack items into bins exactly: the search below `placement.place`, in the terms of the literature on bin packing.

An item has a size and a set of bins that may hold it. A bin holds at most so many items (slots) of at most so much size
in all. For `place` an item is a VF with its min rate, and a bin is a PF.

How it works: two greedy attempts, best fit with the largest items first and with the most constrained items first, find
most packings. Where both fail, the items are split into parts that share no bin. Each part is searched depth first by
bin completion: take the item with the fewest bins left, try each bin that may hold it, and fill that bin for good with
one of the sets that `fill` yields. The last two bins are settled at once, by `subset_sum.two_bins`.

Why it is right:

- In every packing that item lies in one of its bins, together with some set of other items. So trying each bin with
  each set misses no packing, except where another one exists too (`fill` explains which sets it skips).
- Open bins with equal capacity for the same items are interchangeable: one of them is tried.
- The size and the slots that the open bins have beyond the items left bound what a single bin may leave unused. A set
  that leaves more cannot be completed.
- Whether a set of items fits into a set of empty bins depends on nothing else. So a pair of sets that has failed is
  remembered and never searched again.

Hence None proves that no packing exists; the tests compare with a search over all packings.

What it costs: a greedy attempt looks at each item and bin once. The problem is strongly NP-hard, so the search is
exponential at worst: it spends steps of a budget and raises `BudgetSpent` when they are used up. Steps are counted, not
timed, so that equal input has an equal outcome. Sizes are divided by their greatest common divisor and cut to the sum,
which keeps the bit sets short. Two bins of up to 1,600,000 are always decided, by steps set apart for them.
`bench/place.py` times the hardest instances that we could construct.
"""

from collections.abc import Iterator, Sequence
from functools import lru_cache, reduce
from math import gcd

from scheduler.placement.fill import Bin, BudgetSpent, Fillings, Item, Steps, bits
from scheduler.placement.subset_sum.two_bins import for_first

__all__ = ["Bin", "BudgetSpent", "Item", "Steps", "pack_items"]

Packing = tuple[int, ...]
_TWO = 2


def pack_items(items: Sequence[Item], bins: Sequence[Bin], steps: Steps) -> Packing | None:
    """Return a bin for each item, None if they cannot be packed; raise BudgetSpent."""
    steps.spend(len(items))
    fitting = [Item(item.size, _fitting_bins(item, bins)) for item in items]
    if not all(item.bins for item in fitting):
        return None
    for order in (_largest_first, _tightest_first):
        found = _best_fit(fitting, bins, order(fitting), steps)
        if found is not None:
            return found
    return _search_parts(fitting, bins, steps)


def _fitting_bins(item: Item, bins: Sequence[Bin]) -> int:
    fitting = 0
    for index in _each(item.bins):
        slots, size = bins[index]
        if slots and size >= item.size:
            fitting |= 1 << index
    return fitting


@lru_cache(maxsize=1024)
def _each(bins: int) -> tuple[int, ...]:
    """Return the bins of a set as a tuple; a node has few PFs, so few sets occur."""
    return tuple(bits(bins))


def _largest_first(items: Sequence[Item]) -> list[int]:
    return sorted(range(len(items)), key=lambda i: (-items[i].size, items[i].bins.bit_count(), items[i].bins, i))


def _tightest_first(items: Sequence[Item]) -> list[int]:
    """Return the items with the fewest bins first."""
    return sorted(range(len(items)), key=lambda i: (items[i].bins.bit_count(), -items[i].size, items[i].bins, i))


def _best_fit(items: Sequence[Item], bins: Sequence[Bin], order: Sequence[int], steps: Steps) -> Packing | None:
    """Put each item into the bin with the least size left."""
    slots, sizes = [capacity.slots for capacity in bins], [capacity.size for capacity in bins]
    chosen = [0] * len(items)
    steps.spend(len(items))
    for index in order:
        size, allowed = items[index]
        open_bins = [b for b in _each(allowed) if slots[b] and sizes[b] >= size]
        if not open_bins:
            return None
        best = min(open_bins, key=sizes.__getitem__)
        slots[best] -= 1
        sizes[best] -= size
        chosen[index] = best
    return tuple(chosen)


def _search_parts(items: Sequence[Item], bins: Sequence[Bin], steps: Steps) -> Packing | None:
    chosen = [0] * len(items)
    for part_bins, part in _parts(items):
        search = _Search([items[index] for index in part], bins, part_bins, steps)
        if not search.descend(part_bins, (1 << len(part)) - 1):
            return None
        for bin_index, filling in search.chosen:
            for position in bits(filling):
                chosen[part[position]] = bin_index
    return tuple(chosen)


def _parts(items: Sequence[Item]) -> list[tuple[int, list[int]]]:
    """Split the items into parts that share no bin: the bins of each, and its items by decreasing size."""
    parts: list[tuple[int, list[int]]] = []
    for index in range(len(items)):
        bins, joined, apart = items[index].bins, [index], []
        for part_bins, members in parts:
            if part_bins & items[index].bins:
                bins |= part_bins
                joined += members
            else:
                apart.append((part_bins, members))
        parts = [*apart, (bins, joined)]
    place = {index: position for position, index in enumerate(_largest_first(items))}
    return [(bins, sorted(members, key=place.__getitem__)) for bins, members in parts]


class _Search:
    """The search of one part: its items by decreasing size, its bins, and the pairs of sets that have failed."""

    def __init__(self, items: Sequence[Item], bins: Sequence[Bin], part_bins: int, steps: Steps) -> None:
        unit = reduce(gcd, (item.size for item in items)) or 1
        self.items = [Item(item.size // unit, item.bins) for item in items]
        total = sum(item.size for item in self.items)
        self.bins = [Bin(min(capacity.slots, len(items)), min(capacity.size // unit, total)) for capacity in bins]
        self.alike = self._alike(part_bins)
        self.steps = steps
        self.failed: set[tuple[int, int]] = set()
        self.chosen: list[tuple[int, int]] = []

    def _alike(self, part_bins: int) -> list[int]:
        """Group the bins with equal capacity for the same items: of the open ones, any is as good as another."""
        groups: dict[tuple[Bin, int], int] = {}
        for index in bits(part_bins):
            takes = sum(1 << position for position, item in enumerate(self.items) if item.bins >> index & 1)
            key = (self.bins[index], takes)
            groups[key] = groups.get(key, 0) | 1 << index
        return list(groups.values())

    def descend(self, open_bins: int, left: int) -> bool:
        """Pack the items that are left into the open bins; ``chosen`` holds the packing."""
        if not left:
            return True
        if (open_bins, left) in self.failed:
            return False
        self.steps.spend(left.bit_count())
        if open_bins.bit_count() == _TWO:
            return self._split(open_bins, left)
        for bin_index, filling in self._fillings(open_bins, left):
            if self.descend(open_bins ^ 1 << bin_index, left ^ filling):
                self.chosen.append((bin_index, filling))
                return True
        self.failed.add((open_bins, left))
        return False

    def _split(self, open_bins: int, left: int) -> bool:
        """Pack the items that are left into two bins."""
        first, second = bits(open_bins)
        places = list(bits(left))
        found = for_first(
            [self.items[place] for place in places], (first, second), self.bins[first], self.bins[second], self.steps
        )
        if found is None:
            self.failed.add((open_bins, left))
            return False
        filling = sum(1 << places[position] for position in found)
        self.chosen += [(first, filling), (second, left ^ filling)]
        return True

    def _fillings(self, open_bins: int, left: int) -> Iterator[tuple[int, int]]:
        """Yield ways to fill a bin with one chosen item and others; none if a bound is broken."""
        items = [(index, Item(self.items[index].size, self.items[index].bins & open_bins)) for index in bits(left)]
        capacities = [self.bins[index] for index in bits(open_bins)]
        slack = sum(capacity.size for capacity in capacities) - sum(item.size for _, item in items)
        spare = sum(capacity.slots for capacity in capacities) - len(items)
        if slack < 0 or spare < 0:
            return
        firsts = sum(group & open_bins & -(group & open_bins) for group in self.alike)
        forced, (size, bins) = min(items, key=lambda item: (item[1].bins & firsts).bit_count())
        for index in sorted(bits(bins & firsts), key=lambda i: self.bins[i].size):
            capacity = Bin(self.bins[index].slots - 1, self.bins[index].size - size)
            others = [
                (i, item) for i, item in items if i != forced and item.bins >> index & 1 and item.size <= capacity.size
            ]
            for filling in Fillings(capacity, others, capacity.slots - spare, slack, self.steps):
                yield index, filling | 1 << forced

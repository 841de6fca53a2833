"""Find items with a number and a sum within bounds, by the sums that each number of items can have: exact.

The dynamic program for subset sum, once for each number of items, with the sums as bits of an integer. Sources:
Kellerer, Pferschy and Pisinger, Knapsack Problems (2004), 2.3 (the program) and 3.3 (recovering the set by halves,
after Hirschberg 1975).

How it works: every second item by size is a half. Each half has its sums for each number of items, and two of them that
meet the bounds are looked for. Each half is then asked for exactly its number and sum, and halved again.

What it costs: n²/4 shifts for n items, a third more for the smaller halves, and as many comparisons of two halves at
worst. A number's sums lie between those of its smallest and of its largest items, as multiples of what divides all
differences of sizes: bits are kept for these alone. Only the sums of two halves are held at a time: 64 items in two
bins of 1,600,000 take some 6 MiB.
"""

from collections.abc import Iterator, Sequence
from functools import reduce
from itertools import accumulate
from math import gcd

from scheduler.placement.fill import Steps
from scheduler.placement.subset_sum.drawn import Bounds

# A step is about a microsecond: the time to shift and join so many bits.
BITS_A_STEP = 30_000
_HALVED = 2

Half = tuple[int, int]


def by_number_and_sum(sizes: Sequence[int], bounds: Bounds, steps: Steps) -> list[int] | None:
    """Return positions of items, which come by decreasing size, within the bounds; raise BudgetSpent."""
    if len(sizes) < _HALVED:
        return _of_few(sizes, bounds)
    unit = reduce(gcd, (sizes[0] - size for size in sizes)) or 1
    halves = sizes[::2], sizes[1::2]
    above = _Sums(halves[0], halves[1], bounds, unit, steps)
    met = _meet(above, _Sums(halves[1][::-1], halves[0], bounds, unit, steps), bounds)
    if met is None:
        return None
    chosen = []
    for start, half, (number, total) in zip((0, 1), halves, met, strict=True):
        found = by_number_and_sum(half, Bounds(number, number, total, total), steps)
        assert found is not None, "the half has such a set"
        chosen += [start + 2 * position for position in found]
    return chosen


def _of_few(sizes: Sequence[int], bounds: Bounds) -> list[int] | None:
    for number in range(len(sizes) + 1):
        if bounds.least <= number <= bounds.most and bounds.low <= sum(sizes[:number]) <= bounds.high:
            return list(range(number))
    return None


class _Sums:
    """Which sums each number of items can have, in units from that of the first so many items.

    The items come by size, decreasing or increasing, so the first so many have the largest or the smallest sum of their
    number. An item that joins a set moves its sum away from there by what the item differs from the one at the place
    that it takes. Hence bit ``|first[number] - sum| / unit`` of ``rows[number]``. Bits so far away that no items of
    those to come and of the ``others`` bring the sum within the bounds are dropped.
    """

    def __init__(self, sizes: Sequence[int], others: Sequence[int], bounds: Bounds, unit: int, steps: Steps) -> None:
        self.bounds, self.unit, self.steps = bounds, unit, steps
        self.decreasing = sizes[0] > sizes[-1]
        self.first = list(accumulate(sizes[: bounds.most], initial=0))
        self.rows = [1]
        for joined, size in enumerate(sizes, 1):
            to_come = list(accumulate(sorted([*sizes[joined:], *others], reverse=self.decreasing), initial=0))
            if joined <= bounds.most:
                self.rows.append(0)
            # The most first: what the item joins to has not got it yet.
            for number in range(len(self.rows) - 1, 0, -1):
                moved = self.rows[number - 1] << abs(sizes[number - 1] - size) // unit
                self.rows[number] = self._within(number, self.rows[number] | moved, to_come)
            steps.spend_bounded(sum(map(shift_cost, self.rows)))

    def _within(self, number: int, row: int, to_come: Sequence[int]) -> int:
        """Drop what can no more come within the bounds; ``to_come``: the most or least sum of so many more items."""
        if self.bounds.least - number >= len(to_come):
            return 0
        if self.decreasing:
            more = to_come[min(self.bounds.most - number, len(to_come) - 1)]
            farthest = (self.first[number] + more - self.bounds.low) // self.unit
        else:
            more = to_come[max(0, self.bounds.least - number)]
            farthest = (self.bounds.high - more - self.first[number]) // self.unit
        if farthest < 0:
            return 0
        return row & (1 << farthest + 1) - 1 if row.bit_length() > farthest + 1 else row


def _meet(above: _Sums, below: _Sums, bounds: Bounds) -> tuple[Half, Half] | None:
    """Return a number and a sum of each half that meet the bounds together, None if there are none.

    ``above`` counts down from the largest sums, ``below`` up from the smallest.
    """
    unit, steps = above.unit, above.steps
    certain = max(0, (bounds.high - bounds.low) // unit - 1)
    for number, other, row in _numbers(above, below, bounds, certain):
        base = above.first[number] + below.first[other]
        least, most = -(-(bounds.low - base) // unit), (bounds.high - base) // unit
        steps.spend_bounded(shift_cost(row))
        if least > most or not (both := _moved(row | row << most - least - certain, least) & below.rows[other]):
            continue
        up = lowest(both)
        from_there = max(0, up - most)
        down = from_there + lowest(above.rows[number] >> from_there)
        return (number, above.first[number] - down * unit), (other, below.first[other] + up * unit)
    return None


def _numbers(above: _Sums, below: _Sums, bounds: Bounds, certain: int) -> Iterator[tuple[int, int, int]]:
    """Yield numbers of items of both halves, those with most sets first, and the first one's sums spread upwards."""
    for number in sorted(range(len(above.rows)), key=lambda number: abs(2 * number - len(above.rows))):
        others = range(max(0, bounds.least - number), min(len(below.rows), bounds.most - number + 1))
        spread = _spread_up(above.rows[number], certain) if others else 0
        for other in others:
            yield number, other, spread


def _moved(row: int, by: int) -> int:
    return row << by if by >= 0 else row >> -by


def _spread_up(row: int, by: int) -> int:
    """Return a row with each bit also at the ``by`` places above it."""
    done = 0
    while done < by:
        more = min(done + 1, by - done)
        row |= row << more
        done += more
    return row


def lowest(mask: int) -> int:
    """Return the place of the lowest bit."""
    return (mask & -mask).bit_length() - 1


def shift_cost(row: int) -> int:
    """Return the steps that it takes to shift and join a row."""
    return 1 + row.bit_length() // BITS_A_STEP

"""Decide which items go into the first of two bins: subset sum with a count, always answered.

With two bins packing is no longer strongly NP-hard: a set for the first bin settles the second, and what matters of a
set is its number of items and its sum. So the sums that can be reached are computed as in the dynamic program for
subset sum, as bits of an integer, and where the numbers of items matter one integer a number. Sources: Kellerer,
Pferschy and Pisinger, Knapsack Problems (2004), 2.3 (the program) and 3.3 (recovering the set by halves, after
Hirschberg 1975).

How it works: items of size 0 fill up numbers, so they are set aside. Then the sums alone are tried: if none lies within
the bounds there is no set, and often the first set found has a number of items within its bounds too. Otherwise the
items are halved, each half has its sums for each number of items, and two of them that meet the bounds are looked for.
Each half is then asked for exactly its number and sum, and halved again.

What it costs: sums alone, a shift for each item; with numbers, n²/4 shifts for n items, once more that in all for the
smaller halves, and as many comparisons of two halves at worst. A shift is of as many bits as the bin's size, so
`docs/performance.md` has the times. The sums of both halves are held at a time: 64 items in bins of 400,000 take 3 MiB.
"""

from collections.abc import Sequence
from itertools import accumulate, pairwise
from typing import NamedTuple

from scheduler.placement.fill import Bin, Item, Steps

# A step is about a microsecond: the time to shift and join so many bits.
BITS_A_STEP = 30_000


class Bounds(NamedTuple):
    """How many items a set has, and which sum: from the least to the most, both included."""

    least: int
    most: int
    low: int
    high: int


def for_first(items: Sequence[Item], bins: tuple[int, int], first: Bin, second: Bin, steps: Steps) -> set[int] | None:
    """Return the positions of the items for the first bin, the others fit into the second; None if there is no way.

    ``bins`` are the bins' places in the items' bits. Raise BudgetSpent.
    """
    where = [(item.bins >> bins[0] & 1, item.bins >> bins[1] & 1) for item in items]
    if (0, 0) in where:
        return None
    bound = {position for position, (_, other) in enumerate(where) if not other}
    free = [position for position, both in enumerate(where) if all(both)]
    sizes = [items[position].size for position in free]
    here = sum(items[position].size for position in bound)
    there = sum(item.size for item in items) - here - sum(sizes)
    beyond = len(items) - len(bound) - len(free)
    chosen = choose(
        sizes,
        Bounds(
            len(free) - (second.slots - beyond),
            first.slots - len(bound),
            sum(sizes) - (second.size - there),
            first.size - here,
        ),
        steps,
    )
    return None if chosen is None else bound | {free[place] for place in chosen}


def choose(sizes: Sequence[int], bounds: Bounds, steps: Steps) -> set[int] | None:
    """Return the positions of items within the bounds, None if there is no such set; raise BudgetSpent."""
    rest = _of_the_rest(sizes, bounds)
    if _work(rest) < _work(bounds):
        left_out = _choose(sizes, rest, steps)
        return None if left_out is None else set(range(len(sizes))) - left_out
    return _choose(sizes, bounds, steps)


def _of_the_rest(sizes: Sequence[int], bounds: Bounds) -> Bounds:
    """Return the bounds for what a set within the bounds leaves out."""
    number, total = len(sizes), sum(sizes)
    return Bounds(number - bounds.most, number - bounds.least, total - bounds.high, total - bounds.low)


def _work(bounds: Bounds) -> int:
    return max(bounds.most, 0) * max(bounds.high, 0)


def _choose(sizes: Sequence[int], bounds: Bounds, steps: Steps) -> set[int] | None:
    least, most, low, high = bounds
    if least > most or low > high or most < 0 or high < 0:
        return None
    weightless = [position for position, size in enumerate(sizes) if not size]
    sized = sorted((position for position, size in enumerate(sizes) if size), key=sizes.__getitem__, reverse=True)
    within = Bounds(max(0, least - len(weightless)), min(most, len(sized)), max(0, low), high)
    chosen = _choose_sized([sizes[position] for position in sized], within, steps)
    if chosen is None:
        return None
    found = {sized[place] for place in chosen}
    return found | set(weightless[: max(0, least - len(found))])


def _choose_sized(sizes: Sequence[int], bounds: Bounds, steps: Steps) -> list[int] | None:
    chosen = _by_sum(sizes, bounds.low, bounds.high, steps)
    if chosen is None or bounds.least <= len(chosen) <= bounds.most:
        return chosen
    if _cannot_be_so_many(sizes, bounds):
        return None
    return _by_number_and_sum(sizes, bounds, steps)


def _cannot_be_so_many(sizes: Sequence[int], bounds: Bounds) -> bool:
    """Return whether the smallest items are too much already, or the largest still too little."""
    if bounds.least > len(sizes):
        return True
    smallest = sum(sizes[len(sizes) - bounds.least :])
    return smallest > bounds.high or sum(sizes[: bounds.most]) < bounds.low


def _by_sum(sizes: Sequence[int], low: int, high: int, steps: Steps) -> list[int] | None:
    """Return positions with a sum within the bounds, whatever their number."""
    steps.spend_bounded(_shifts_cost(len(sizes), high))
    # Bit `high - sum`: what would exceed the bound falls off the end.
    reach = list(accumulate(sizes, lambda sums, size: sums | sums >> size, initial=1 << high))
    within = reach[-1] & (1 << high - low + 1) - 1
    if not within:
        return None
    left = high - _lowest(within)
    chosen = []
    for position in range(len(sizes) - 1, -1, -1):
        if not reach[position] >> high - left & 1:
            left -= sizes[position]
            chosen.append(position)
    return chosen


def _by_number_and_sum(sizes: Sequence[int], bounds: Bounds, steps: Steps, first: int = 0) -> list[int] | None:
    """Return positions, counted from ``first``, with a number and a sum within the bounds."""
    if len(sizes) < 2:
        return _of_few(sizes, bounds, first)
    half = len(sizes) // 2
    met = _meet(_sums_from_above(sizes[:half], bounds, steps), _sums(sizes[half:], bounds, steps), bounds, steps)
    if met is None:
        return None
    (number, total), (other_number, other_total) = met
    chosen = _by_number_and_sum(sizes[:half], Bounds(number, number, total, total), steps, first)
    others = Bounds(other_number, other_number, other_total, other_total)
    other = _by_number_and_sum(sizes[half:], others, steps, first + half)
    return [*(chosen or []), *(other or [])]


def _of_few(sizes: Sequence[int], bounds: Bounds, first: int) -> list[int] | None:
    for number in range(len(sizes) + 1):
        if bounds.least <= number <= bounds.most and bounds.low <= sum(sizes[:number]) <= bounds.high:
            return [first + position for position in range(number)]
    return None


def _sums_from_above(sizes: Sequence[int], bounds: Bounds, steps: Steps) -> list[int]:
    """Return for each number of items which sums they can have: bit ``high - sum``."""
    rows = [1 << bounds.high]
    for size in sizes:
        steps.spend_bounded(_shifts_cost(len(rows), bounds.high))
        longest = [rows[-1] >> size] if len(rows) <= bounds.most else []
        rows = [rows[0], *(row | before >> size for before, row in pairwise(rows)), *longest]
    return rows


def _sums(sizes: Sequence[int], bounds: Bounds, steps: Steps) -> list[int]:
    """Return for each number of items which sums up to the bound they can have: bit ``sum``."""
    rows, every = [1], (1 << bounds.high + 1) - 1
    for size in sizes:
        steps.spend_bounded(_shifts_cost(len(rows), bounds.high))
        shifted = [row << size for row in rows]
        shifted = [row & every if row > every else row for row in shifted]
        longest = [shifted[-1]] if len(rows) <= bounds.most else []
        rows = [rows[0], *(row | more for more, row in zip(shifted, rows[1:], strict=False)), *longest]
    return rows


Half = tuple[int, int]


def _meet(above: Sequence[int], below: Sequence[int], bounds: Bounds, steps: Steps) -> tuple[Half, Half] | None:
    """Return a number and a sum of each half that meet the bounds together, None if there are none.

    ``above`` has bit ``high - sum``, ``below`` bit ``sum``: the sums make exactly ``high`` where both have the bit.
    """
    for number, row in enumerate(above):
        if not row:
            continue
        reached = _spread_down(row, bounds.high - bounds.low)
        for other in range(max(0, bounds.least - number), min(len(below), bounds.most - number + 1)):
            steps.spend_bounded(_shifts_cost(1, bounds.high))
            if both := reached & below[other]:
                total = _lowest(both)
                return (number, bounds.high - total - _lowest(row >> total)), (other, total)
    return None


def _spread_down(row: int, by: int) -> int:
    """Return a row with each bit also at the ``by`` places below it."""
    done = 0
    while done < by:
        more = min(done + 1, by - done)
        row |= row >> more
        done += more
    return row


def _lowest(mask: int) -> int:
    return (mask & -mask).bit_length() - 1


def _shifts_cost(shifts: int, size: int) -> int:
    return shifts * (1 + size // BITS_A_STEP)

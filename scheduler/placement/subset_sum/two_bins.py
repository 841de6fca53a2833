"""Decide which items go into the first of two bins: subset sum with a count, always answered.

With two bins packing is no longer strongly NP-hard: a set for the first bin settles the second, and what matters of a
set is its number of items and its sum. So the sums that can be reached are computed as in the dynamic program for
subset sum, as bits of an integer. Source: Kellerer, Pferschy and Pisinger, Knapsack Problems (2004), 2.3.

How it works: items of size 0 fill up numbers, so they are set aside. Where few sizes occur, `meet` decides by how many
of each size a set takes. Of many items many sets serve, so some near a few draws are tried first (`exchange`, then
`meet`). Where none of these serves, the sums alone are computed: if none lies within the bounds there is no set, and
often the first set found has a number of items within its bounds too. Otherwise `by_number` decides, which computes the
sums of each number of items.

What it costs: the sums alone are a shift for each item, of an integer with as many bits as the bin has Mb/s, divided by
what divides all sizes; `by_number` takes n²/4 such shifts and decides the worst case. 64 items that fill two bins of
400,000 take some 10 ms at most, of 1,600,000 some 30 ms (`docs/performance.md`).
"""

from collections.abc import Iterator, Sequence

from scheduler.placement.fill import Bin, Item, Steps
from scheduler.placement.subset_sum.by_number import by_number_and_sum, lowest, shift_cost
from scheduler.placement.subset_sum.drawn import Bounds
from scheduler.placement.subset_sum.exchange import by_exchange
from scheduler.placement.subset_sum.meet import by_few_sizes, by_neighbours, have_few_choices, sum_of_few_sizes

__all__ = ["Bounds", "choose", "for_first"]

# Where so large a part of the items differs in size, exchanges of two at a time find a set sooner.
_MANY_SIZES = 0.6
# With more numbers of items within the bounds the sums alone decide nearly always.
_FEW_NUMBERS = 4


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
    sized = [position for position, size in enumerate(sizes) if 0 < size <= high]
    sized.sort(key=sizes.__getitem__, reverse=True)
    within = Bounds(max(0, least - len(weightless)), min(most, len(sized)), max(0, low), high)
    chosen = _choose_sized([sizes[position] for position in sized], within, steps)
    if chosen is None:
        return None
    found = {sized[place] for place in chosen}
    return found | set(weightless[: max(0, least - len(found))])


def _choose_sized(sizes: Sequence[int], bounds: Bounds, steps: Steps) -> list[int] | None:
    """Return positions of items, which come by decreasing size, within the bounds."""
    if _cannot_be_so_many(sizes, bounds):
        return None
    few = have_few_choices(sizes)
    if few and bounds.most - bounds.least < _FEW_NUMBERS:
        return by_few_sizes(sizes, bounds, steps)
    chosen = None if few else _near_a_draw(sizes, bounds, steps)
    if chosen is not None:
        return chosen
    chosen = (sum_of_few_sizes if few else _by_sum)(sizes, bounds, steps)
    if chosen is None or bounds.least <= len(chosen) <= bounds.most:
        return chosen
    return by_number_and_sum(sizes, bounds, steps)


def _near_a_draw(sizes: Sequence[int], bounds: Bounds, steps: Steps) -> list[int] | None:
    if len(set(sizes)) >= _MANY_SIZES * len(sizes) and (found := by_exchange(sizes, bounds, steps)) is not None:
        return found
    return by_neighbours(sizes, bounds, steps)


def _cannot_be_so_many(sizes: Sequence[int], bounds: Bounds) -> bool:
    """Return whether the smallest items are too much already, or the largest still too little."""
    if bounds.least > min(bounds.most, len(sizes)):
        return True
    smallest = sum(sizes[len(sizes) - bounds.least :])
    return smallest > bounds.high or sum(sizes[: bounds.most]) < bounds.low


def _by_sum(sizes: Sequence[int], bounds: Bounds, steps: Steps) -> list[int] | None:
    """Return positions with a sum within the bounds, whatever their number."""
    # The smallest come first: the sums grow late.
    reach = list(_sums_up_to(bounds.high, sizes[::-1], steps))
    within = reach[-1] >> bounds.low
    if not within:
        return None
    left = bounds.low + lowest(within)
    chosen = []
    for position, sums in enumerate(reach[-2::-1]):
        if not sums >> left & 1:
            left -= sizes[position]
            chosen.append(position)
    return chosen


def _sums_up_to(high: int, sizes: Sequence[int], steps: Steps) -> Iterator[int]:
    """Yield which sums none of the items, the first, the first two and so on can have: bit ``sum``."""
    sums, every = 1, (1 << high + 1) - 1
    yield sums
    for size in sizes:
        sums |= sums << size
        if sums > every:
            sums &= every
        steps.spend_bounded(shift_cost(sums))
        yield sums

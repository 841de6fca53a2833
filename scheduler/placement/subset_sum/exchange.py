"""Find items with a number and a sum within bounds by exchanging two of them, where many sets serve: not exact.

How it works: from a set that is near (`drawn`) two exchanges at a time are looked for that make up the rest: all single
ones are sorted by what they change, and each has its counterpart looked up. k of n items have k(n - k) single
exchanges, 1,024 for half of 64, so pairs of them are about as many as there are Mb/s between two sums. Where few sizes
occur many of them change the same, and `meet` finds more.

None means nothing: the caller then searches exactly.
"""

from bisect import bisect_left
from collections.abc import Sequence

from scheduler.placement.fill import Steps
from scheduler.placement.subset_sum.drawn import Bounds, bring_near, draws

_DRAWS = 2

# What it changes, the place of the item that leaves and of the item that comes among those inside and outside.
Exchange = tuple[int, int, int]


def by_exchange(sizes: Sequence[int], bounds: Bounds, steps: Steps) -> list[int] | None:
    """Return positions within the bounds, None if none were found; raise BudgetSpent."""
    for inside, outside in draws(sizes, bounds, _DRAWS):
        steps.spend_bounded(len(inside) * len(outside))
        found = _exchanged(sizes, inside, outside, bounds)
        if found is not None:
            return found
    return None


def _exchanged(sizes: Sequence[int], inside: list[int], outside: list[int], bounds: Bounds) -> list[int] | None:
    slack = bounds.high - bounds.low
    gap = bring_near(sizes, inside, outside, bounds)
    if -slack <= gap <= 0:
        return inside
    pair = _pair(_exchanges(sizes, inside, outside), gap, slack)
    if pair is None:
        return None
    for _, leaves, comes in pair:
        inside[leaves], outside[comes] = outside[comes], inside[leaves]
    return inside


def _exchanges(sizes: Sequence[int], inside: Sequence[int], outside: Sequence[int]) -> list[Exchange]:
    coming = [(sizes[position], place) for place, position in enumerate(outside)]
    return [
        (size - own, leaves, comes)
        for leaves, own in enumerate(sizes[position] for position in inside)
        for size, comes in coming
    ]


def _pair(exchanges: list[Exchange], gap: int, slack: int) -> tuple[Exchange, Exchange] | None:
    """Return two exchanges of different items that make up the gap, or up to the slack more."""
    exchanges.sort()
    changes = [change for change, _, _ in exchanges]
    for one in exchanges:
        wanted = gap - one[0]
        at = bisect_left(changes, wanted)
        if at < len(changes) and changes[at] <= wanted + slack:
            other = exchanges[at]
            if other[1] != one[1] and other[2] != one[2]:
                return one, other
    return None

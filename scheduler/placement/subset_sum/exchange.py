"""Find items with a number and a sum within bounds by exchanging two of them, where many sets serve: not exact.

How it works: some items are drawn, as many as asked for. Each of them in turn is exchanged for another if that brings
the sum nearer, then two exchanges at a time are looked for that make up the rest: all single ones are sorted by what
they change, and each has its counterpart looked up. k of n items have k(n - k) single exchanges, 1,024 for half of 64,
so pairs of them are about as many as there are Mb/s between two sums. A few draws are tried. They are drawn by powers
modulo a prime, so equal input has an equal outcome.

None means nothing: the caller then searches exactly.
"""

from bisect import bisect_left
from collections.abc import Iterator, Sequence
from typing import NamedTuple

from scheduler.placement.fill import Steps

# Primitive roots of the prime: the powers of each are in an order of its own.
_PRIME, _DRAWS = 257, (3, 5, 10, 24, 51, 93)
# Where there are fewer, an exact search takes as long.
_FEWEST_EXCHANGES = 80

# What it changes, the place of the item that leaves and of the item that comes among those inside and outside.
Exchange = tuple[int, int, int]


class Bounds(NamedTuple):
    """How many items a set has, and which sum: from the least to the most, both included."""

    least: int
    most: int
    low: int
    high: int


def by_exchange(sizes: Sequence[int], bounds: Bounds, steps: Steps) -> list[int] | None:
    """Return positions within the bounds, None if none were found; raise BudgetSpent."""
    for number, drawn in _draws(sizes, bounds):
        steps.spend_bounded(number * (len(sizes) - number))
        inside, outside = drawn[:number], drawn[number:]
        found = _exchanged(sizes, inside, outside, bounds)
        if found is not None:
            return found
    return None


def _draws(sizes: Sequence[int], bounds: Bounds) -> Iterator[tuple[int, list[int]]]:
    """Yield how many items to take, and the items with those to take first."""
    if not sizes:
        return
    every = range(len(sizes))
    near = len(sizes) * (bounds.low + bounds.high) // (2 * sum(sizes))
    number = min(max(near, bounds.least), bounds.most, len(sizes))
    if number * (len(sizes) - number) < _FEWEST_EXCHANGES:
        return
    for root in _DRAWS:
        yield number, sorted(every, key=lambda position: pow(root, position + 1, _PRIME))


def _exchanged(sizes: Sequence[int], inside: list[int], outside: list[int], bounds: Bounds) -> list[int] | None:
    slack = bounds.high - bounds.low
    gap = _brought_near(sizes, inside, outside, bounds)
    if -slack <= gap <= 0:
        return inside
    pair = _pair(_exchanges(sizes, inside, outside), gap, slack)
    if pair is None:
        return None
    for one in pair:
        _exchange(one, inside, outside)
    return inside


def _brought_near(sizes: Sequence[int], inside: list[int], outside: list[int], bounds: Bounds) -> int:
    """Exchange items one by one while the sum is too far off; return what it lacks of the least."""
    gap = bounds.low - sum(sizes[position] for position in inside)
    for leaves, own in enumerate(inside):
        if bounds.low - bounds.high <= gap <= 0:
            break
        wanted = sizes[own] + gap
        comes = min(range(len(outside)), key=lambda place: abs(sizes[outside[place]] - wanted))
        change = sizes[outside[comes]] - sizes[own]
        if abs(gap - change) < abs(gap):
            gap -= _exchange((change, leaves, comes), inside, outside)
    return gap


def _exchanges(sizes: Sequence[int], inside: Sequence[int], outside: Sequence[int]) -> list[Exchange]:
    coming = [(sizes[position], place) for place, position in enumerate(outside)]
    return [
        (size - own, leaves, comes)
        for leaves, own in enumerate(sizes[position] for position in inside)
        for size, comes in coming
    ]


def _exchange(one: Exchange, inside: list[int], outside: list[int]) -> int:
    """Carry out an exchange; return what it changes."""
    change, leaves, comes = one
    inside[leaves], outside[comes] = outside[comes], inside[leaves]
    return change


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

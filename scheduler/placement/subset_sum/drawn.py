"""Draw a set of items near the bounds: where the searches of `exchange` and `meet` start.

Items are drawn by powers modulo a prime, so equal input has an equal outcome. As many are drawn as the sum asks for.
Each of them in turn is exchanged for another if that brings the sum nearer.
"""

from collections.abc import Iterator, Sequence
from typing import NamedTuple

# Primitive roots of the prime: the powers of each are in an order of its own.
_PRIME, _ROOTS = 257, (3, 5, 10)
# Where there are fewer exchanges of two items, an exact search takes as long.
_FEWEST_EXCHANGES = 80


class Bounds(NamedTuple):
    """How many items a set has, and which sum: from the least to the most, both included."""

    least: int
    most: int
    low: int
    high: int


def draws(sizes: Sequence[int], bounds: Bounds, most: int) -> Iterator[tuple[list[int], list[int]]]:
    """Yield at most so many draws, 3 in all: positions of a set whose number is within the bounds, and the others."""
    if not sizes:
        return
    near = len(sizes) * (bounds.low + bounds.high) // (2 * sum(sizes))
    number = min(max(near, bounds.least), bounds.most, len(sizes))
    if number * (len(sizes) - number) < _FEWEST_EXCHANGES:
        return
    for root in _ROOTS[:most]:
        order = [pow(root, position + 1, _PRIME) for position in range(len(sizes))]
        drawn = sorted(range(len(sizes)), key=order.__getitem__)
        yield drawn[:number], drawn[number:]


def bring_near(sizes: Sequence[int], inside: list[int], outside: list[int], bounds: Bounds) -> int:
    """Exchange items one by one while the sum is too far off; return what it lacks of the least."""
    gap = bounds.low - sum(sizes[position] for position in inside)
    for leaves, own in enumerate(inside):
        if bounds.low - bounds.high <= gap <= 0:
            break
        wanted = sizes[own] + gap
        comes = min(range(len(outside)), key=lambda place: abs(sizes[outside[place]] - wanted))
        change = sizes[outside[comes]] - sizes[own]
        if abs(gap - change) < abs(gap):
            inside[leaves], outside[comes] = outside[comes], inside[leaves]
            gap -= change
    return gap

"""Find items with a number and a sum within bounds by meeting in the middle: exact where few sizes occur.

Source: Horowitz and Sahni, Computing partitions with applications to the knapsack problem (1974). Equal items are taken
together: what matters is how many of each size a set takes.

How it works: the sizes are dealt to two halves. The number and the sum of each choice within a half are one integer, so
a half is a set of integers, and two halves meet where two such integers add up. How many items of each size a set may
take is a range, its window.

- `by_few_sizes` has full windows: None proves that there is no set. The halves are small where few sizes occur: 64
  items of 8 sizes have 6,561 choices a half.
- `by_neighbours` has windows around a set that is near (`drawn`). With 2,048 choices a half it looks at 4 million sets
  at a time. That is more than there are numbers and sums near the set. None means nothing: the caller then searches
  exactly.
"""

from bisect import bisect_left
from collections.abc import Iterator, Sequence
from math import prod
from typing import NamedTuple

from scheduler.placement.fill import Steps
from scheduler.placement.subset_sum.drawn import Bounds, bring_near, draws

# Of more sizes a set is found near a draw, or a search by numbers is as fast.
_FEW_SIZES = 10
# Choices of one half, where all count and around one draw.
_MOST_CHOICES, _CHOICES_A_DRAW = 16_384, 2_048
# A draw for each so many Mb/s in all.
_MBPS_A_DRAW = 1_000_000
# A step is about a microsecond: so many choices are made, or met, in that time.
_CHOICES_A_STEP = 5


class _Window(NamedTuple):
    """How many items of one size a set may take: from the least to the most, both included."""

    size: int
    positions: Sequence[int]
    least: int
    most: int

    @property
    def choices(self) -> int:
        return self.most - self.least + 1


def have_few_choices(sizes: Sequence[int]) -> bool:
    """Return whether `by_few_sizes` and `sum_of_few_sizes` are fast."""
    if len(set(sizes)) > _FEW_SIZES:
        return False
    return all(prod(window.choices for window in half) <= _MOST_CHOICES for half in _dealt(_full_windows(sizes)))


def by_few_sizes(sizes: Sequence[int], bounds: Bounds, steps: Steps) -> list[int] | None:
    """Return positions within the bounds, None if there are none; raise BudgetSpent. Each number takes its time."""
    return _met(_full_windows(sizes), bounds, sum(sizes), sum(sizes) + 1, steps)


def sum_of_few_sizes(sizes: Sequence[int], bounds: Bounds, steps: Steps) -> list[int] | None:
    """Return positions with a sum within the bounds, whatever their number; None if there are none."""
    return _met(_full_windows(sizes), bounds._replace(least=0, most=0), sum(sizes), 0, steps)


def by_neighbours(sizes: Sequence[int], bounds: Bounds, steps: Steps) -> list[int] | None:
    """Return positions within the bounds, None if none were found; raise BudgetSpent."""
    total = sum(sizes)
    for inside, outside in draws(sizes, bounds, 1 + total // _MBPS_A_DRAW):
        steps.spend_bounded(len(inside) * len(outside) // 4)
        if -(bounds.high - bounds.low) <= bring_near(sizes, inside, outside, bounds) <= 0:
            return inside
        number = len(inside)
        windows = _windows_around(sizes, inside, outside)
        found = _met(windows, bounds._replace(least=number, most=number), total, total + 1, steps)
        if found is not None:
            return found
    return None


def _full_windows(sizes: Sequence[int]) -> list[_Window]:
    return [_Window(size, positions, 0, len(positions)) for size, positions in _by_size(sizes).items()]


def _by_size(sizes: Sequence[int]) -> dict[int, list[int]]:
    positions: dict[int, list[int]] = {}
    for position, size in enumerate(sizes):
        positions.setdefault(size, []).append(position)
    return positions


def _windows_around(sizes: Sequence[int], inside: Sequence[int], outside: Sequence[int]) -> list[_Window]:
    """Return windows that hold a set, widened by one, in the order drawn, while there are few enough choices."""
    taken, windows = set(inside), {}
    for size, positions in _by_size(sizes).items():
        number = sum(position in taken for position in positions)
        windows[size] = _Window(size, positions, number, number)
    # Up and down in turn, so that the number stays near.
    order = list(dict.fromkeys(sizes[position] for position in _alternating(inside, outside)))
    choices, ups = 1, 0
    while any(window.choices <= len(window.positions) for window in windows.values()):
        for size in order:
            wider = _widened(windows[size], up=ups <= 0)
            choices = choices // windows[size].choices * wider.choices
            if choices > _CHOICES_A_DRAW**2:
                return list(windows.values())
            ups += (wider.most - windows[size].most) - (windows[size].least - wider.least)
            windows[size] = wider
    return list(windows.values())


def _alternating(first: Sequence[int], second: Sequence[int]) -> Iterator[int]:
    for at in range(max(len(first), len(second))):
        yield from first[at : at + 1]
        yield from second[at : at + 1]


def _widened(window: _Window, *, up: bool) -> _Window:
    """Return a window with one choice more, where it can be on the side asked for; the same if it is full."""
    if window.most == len(window.positions) or (window.least and not up):
        return window._replace(least=max(0, window.least - 1))
    return window._replace(most=window.most + 1)


def _dealt(windows: Sequence[_Window]) -> tuple[list[_Window], list[_Window]]:
    """Deal windows to two halves with about as many choices; the widest come last."""
    halves: tuple[list[_Window], list[_Window]] = ([], [])
    choices = [1, 1]
    for window in sorted(windows, key=lambda window: window.choices, reverse=True):
        half = choices[0] > choices[1]
        halves[half].append(window)
        choices[half] *= window.choices
    return halves[0][::-1], halves[1][::-1]


def _met(windows: Sequence[_Window], bounds: Bounds, total: int, stride: int, steps: Steps) -> list[int] | None:
    """Return positions within the windows and the bounds.

    ``total``: the sum of all items. ``stride``: what an item counts, beyond any sum; or 0, then every number is 0.
    """
    most = min(bounds.high, total)
    if bounds.low > most:
        return None
    one, other = (_Half(half, stride, steps) for half in _dealt(windows))
    ordered = sorted(other.totals) if bounds.low < most else []
    for number in range(bounds.least, bounds.most + 1):
        steps.spend_bounded((len(one.totals) + len(other.totals)) // _CHOICES_A_STEP)
        low, high = number * stride + bounds.low, number * stride + most
        pair = _pair_between(one.totals, ordered, low, high) if ordered else _pair(one.totals, other.totals, low)
        if pair is not None:
            return one.positions(pair[0]) + other.positions(pair[1])
    return None


def _pair(first: set[int], second: set[int], wanted: int) -> tuple[int, int] | None:
    """Return two totals that add up to what is wanted."""
    both = {wanted - total for total in first} & second
    return (wanted - min(both), min(both)) if both else None


def _pair_between(first: set[int], second: Sequence[int], low: int, high: int) -> tuple[int, int] | None:
    """Return two totals whose sum is from low to high; ``second`` is sorted."""
    for total in first:
        at = bisect_left(second, low - total)
        if at < len(second) and second[at] <= high - total:
            return total, second[at]
    return None


class _Half:
    """The totals of all choices within some windows: the number times the stride, and the sum."""

    def __init__(self, windows: Sequence[_Window], stride: int, steps: Steps) -> None:
        self.windows, self.stride = windows, stride
        self.layers = [{0}]
        for window in windows:
            steps.spend_bounded(1 + len(self.layers[-1]) * window.choices // _CHOICES_A_STEP)
            one = stride + window.size
            added = range(window.least * one, window.most * one + 1, one)
            self.layers.append({total + more for total in self.layers[-1] for more in added})
        self.totals = self.layers[-1]

    def positions(self, total: int) -> list[int]:
        """Return the positions of a choice with this total."""
        chosen: list[int] = []
        for window, before in zip(self.windows[::-1], self.layers[-2::-1], strict=True):
            one = self.stride + window.size
            number = next(n for n in range(window.least, window.most + 1) if total - n * one in before)
            chosen += window.positions[:number]
            total -= number * one
        return chosen

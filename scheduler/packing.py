"""Pack items into bins, exactly: the search below `scheduler.place`, in the terms of the literature on bin packing.

An item has a size and a set of bins that it may lie in; a bin has room for so many items (slots) of so much size.
"""

from collections.abc import Sequence
from typing import NamedTuple


class Item(NamedTuple):
    """Its size, and the bins it may lie in as bits."""

    size: int
    bins: int


class Bin(NamedTuple):
    """How many items it holds, and of which size in all."""

    slots: int
    size: int


class BudgetSpent(Exception):  # noqa: N818 - an outcome on its way up, not an error
    """The search has used all of its steps."""


class Steps:
    """The steps that a search may still take."""

    __slots__ = ("left",)

    def __init__(self, left: int) -> None:
        self.left = left

    def spend(self, steps: int = 1) -> None:
        self.left -= steps
        if self.left < 0:
            raise BudgetSpent


def pack_items(items: Sequence[Item], bins: Sequence[Bin], steps: Steps) -> tuple[int, ...] | None:
    """Return a bin for each item, None if there is no way to pack them; raise BudgetSpent."""
    order = sorted(range(len(items)), key=lambda index: (-items[index].size, items[index].bins.bit_count(), index))
    chosen = [0] * len(items)
    slots, sizes = [room.slots for room in bins], [room.size for room in bins]
    failed: set[tuple[int, tuple[int, ...], tuple[int, ...]]] = set()

    def descend(depth: int) -> bool:
        if depth == len(order):
            return True
        steps.spend()
        state = (depth, tuple(slots), tuple(sizes))
        if state in failed:
            return False
        size, allowed = items[order[depth]]
        fitting = [i for i in range(len(bins)) if allowed >> i & 1 and slots[i] and sizes[i] >= size]
        for index in sorted(fitting, key=lambda i: (sizes[i], slots[i], i)):
            slots[index] -= 1
            sizes[index] -= size
            chosen[order[depth]] = index
            if descend(depth + 1):
                return True
            slots[index] += 1
            sizes[index] += size
        failed.add(state)
        return False

    return tuple(chosen) if descend(0) else None

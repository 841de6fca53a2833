"""Search for a placement: a bin for each item, depth first, within a number of steps. All placements come from here.

An item has a size and a set of bins that may hold it. A bin holds a limited number of items (slots) with a limited
total size. Bins of one port share its size. For `place`, an item is a VF with its minimum rate, a bin is a PF, and a
port is a cable that appears as several PFs.

A greedy attempt finds most placements: the largest item first (where bins share a port, first the items with the fewest
bins), each into the bin with the least size left. If it fails, a depth-first search takes the largest item first and
tries every bin, those with the least size left first, except by these rules. So None proves that there is no placement;
the tests compare with a search over all placements. The depth is the number of items, at most `MOST_INTERFACES`.

(1) Of bins with equal remainders for the same items, one is tried. (2) Whether the items from a position on fit depends
only on what is left for them, so failed states are remembered. (3) A bin takes no more than the size that is left, nor
than the largest remaining items for its slots, and nothing if the smallest one is too large. If all bins together take
less than the remaining items need, the search backtracks.

A step is an item or bin that is evaluated. The problem is strongly NP-hard, so the search gives up when its steps are
used up. For up to 8 items about 1,000 steps suffice, but for rare cases where items divide a port.
"""

from collections.abc import Iterator, Sequence
from functools import lru_cache
from itertools import accumulate
from typing import NamedTuple

from scheduler.placement.steps import Steps

# For each bin the first bin of its port; empty if no two bins share one.
SharedPorts = tuple[int, ...]
Packing = tuple[int, ...]
# The smallest size when there are no items.
_NO_ITEM = 1 << 62
# Cost of a position in the search in addition to the bins.
_A_PLACE = 4
# What is left of a bin: its kind, slots and size.
State = tuple[int, int, int]


class Item(NamedTuple):
    """An item's size, and its possible bins as bits."""

    size: int
    bins: int


class Bin(NamedTuple):
    """How many items a bin holds, and their maximum total size."""

    slots: int
    size: int


def bits(mask: int) -> Iterator[int]:
    """Yield the positions of the bits that are set, lowest first."""
    while mask:
        low = mask & -mask
        yield low.bit_length() - 1
        mask ^= low


def splits(sizes: Sequence[int], total: int) -> Iterator[tuple[int, ...]]:
    """Yield all numbers that add up to a total, each at most its size; there are some, and no step leads nowhere."""
    if not sizes:
        yield ()
        return
    size, other_sizes = sizes[0], sizes[1:]
    for count in range(min(size, total), max(0, total - sum(other_sizes)) - 1, -1):
        for rest in splits(other_sizes, total - count):
            yield (count, *rest)


def size_by_port(bins: Sequence[Bin], ports: SharedPorts) -> dict[int, int]:
    """Return the size of each port: that of its bins, all of which are equal or were narrowed to 0."""
    sizes: dict[int, int] = {}
    for port, capacity in zip(ports, bins, strict=True):
        sizes[port] = max(sizes.get(port, 0), capacity.size)
    return sizes


def pack(items: Sequence[Item], bins: Sequence[Bin], ports: SharedPorts, steps: Steps) -> Packing | None:
    """Return a bin for each item, None if there is no placement; raise OutOfSteps."""
    if ports:
        sizes = size_by_port(bins, ports)
        bins = [capacity._replace(size=sizes[port]) for capacity, port in zip(bins, ports, strict=True)]
    ports = ports or tuple(range(len(bins)))
    steps.spend(2 * len(items))
    candidates = [Item(item.size, _fitting_bins(item, bins)) for item in items]
    if not all(item.bins for item in candidates):
        return None
    order = _largest_first(candidates)
    is_shared = len(set(ports)) < len(bins)
    # If bins of one port may hold different items, the size is a poor guide.
    greedy_order = sorted(order, key=lambda index: candidates[index].bins.bit_count()) if is_shared else order
    if (packing := _best_fit(candidates, bins, ports, greedy_order)) is None:
        choice = _DepthFirst([candidates[index] for index in order], bins, ports, steps).run()
        if choice is None:
            return None
        packing = tuple(place for _, place in sorted(zip(order, choice, strict=True)))
    return _in_turns(packing, items, bins, ports) if is_shared else packing


def _in_turns(packing: Packing, items: Sequence[Item], bins: Sequence[Bin], ports: Sequence[int]) -> Packing:
    """Use a port's bins in turn where they are equivalent for all items: each PF has a PCI link of its own."""
    kinds, slots, result = _kinds(items, ports), [capacity.slots for capacity in bins], list[int]()
    for bin_index in packing:
        port, kind = ports[bin_index], kinds[bin_index]
        members = [index for index in range(len(bins)) if (ports[index], kinds[index]) == (port, kind)]
        result.append(max(members, key=slots.__getitem__))
        slots[result[-1]] -= 1
    return tuple(result)


def _fitting_bins(item: Item, bins: Sequence[Bin]) -> int:
    mask = 0
    for index in _indexes(item.bins):
        slots, size = bins[index]
        if slots and size >= item.size:
            mask |= 1 << index
    return mask


@lru_cache(maxsize=1024)
def _indexes(bins: int) -> tuple[int, ...]:
    """Return the bins of a set; a node has few PFs, so few sets occur."""
    return tuple(bits(bins))


def _largest_first(items: Sequence[Item]) -> list[int]:
    return sorted(range(len(items)), key=lambda i: (-items[i].size, items[i].bins.bit_count(), items[i].bins, i))


def _best_fit(items: Sequence[Item], bins: Sequence[Bin], ports: Sequence[int], order: Sequence[int]) -> Packing | None:
    """Put each item into the bin with the least size left."""
    slots, sizes = [capacity.slots for capacity in bins], [capacity.size for capacity in bins]
    packing, is_shared = [0] * len(items), len(set(ports)) < len(bins)
    for index in order:
        size, bin_mask = items[index]
        open_bins = [b for b in _indexes(bin_mask) if slots[b] and sizes[b] >= size]
        if not open_bins:
            return None
        best = min(open_bins, key=sizes.__getitem__)
        slots[best] -= 1
        for member in [b for b, port in enumerate(ports) if port == ports[best]] if is_shared else (best,):
            sizes[member] -= size
        packing[index] = best
    return tuple(packing)


class _DepthFirst:
    """What is left of the bins, and the bin for each item so far (``packing``); the items come by decreasing size."""

    def __init__(self, items: Sequence[Item], bins: Sequence[Bin], ports: Sequence[int], steps: Steps) -> None:
        self.items, self.steps = items, steps
        self.slots, self.sizes = [capacity.slots for capacity in bins], [capacity.size for capacity in bins]
        self.packing = list[int]()
        self.ports = [[index for index, other_port in enumerate(ports) if other_port == port] for port in ports]
        self.is_shared = any(len(members) > 1 for members in self.ports)
        self.kinds = _kinds(items, ports)
        self.sums = [0, *accumulate([item.size for item in items])]
        # For the bins of each port: the smallest size that they may get among items with one, and whether they may get
        # items without.
        self.smallest, self.weightless = [], []
        for members in self.ports:
            mask = sum([1 << index for index in members])
            sizes = [item.size for item in items if item.bins & mask]
            self.smallest.append(min(filter(None, sizes), default=_NO_ITEM))
            self.weightless.append(0 in sizes)
        self.failures: set[tuple[int, tuple[State, ...]]] = set()

    def run(self) -> list[int] | None:
        return self.packing if self.descend(0) else None

    def descend(self, position: int) -> bool:
        """Put the items from a position on into what is left."""
        if position == len(self.items):
            return True
        self.steps.spend(_A_PLACE + len(self.slots))
        state = self._state(position)
        if state is None or (position, state) in self.failures:
            return False
        size = self.items[position].size
        for index in self._choices(position):
            self._put(index, -1, -size)
            self.packing.append(index)
            if self.descend(position + 1):
                return True
            self.packing.pop()
            self._put(index, 1, size)
        self.failures.add((position, state))
        return False

    def _state(self, position: int) -> tuple[State, ...] | None:
        """Return what is left for the items from a position on; None if it is less than they need."""
        sums, end = self.sums, len(self.items)
        offset = sums[position]
        takes = room = 0
        states = []
        for kind, slots, size, slots_of_port, smallest, weightless in zip(
            self.kinds, self.slots, self.sizes, self._by_port(), self.smallest, self.weightless, strict=True
        ):
            if slots:
                states.append((kind, slots, size))
            if slots_of_port:
                count = size // smallest
                count = slots_of_port if slots_of_port < count else count
                max_size = sums[position + count if position + count < end else end] - offset
                room += size if size < max_size else max_size
                takes += slots_of_port if weightless else count
        if takes < end - position or room < sums[end] - offset:
            return None
        states.sort()
        return tuple(states)

    def _by_port(self) -> Sequence[int]:
        """Return at the first bin of each port how many slots all of its bins have left."""
        if not self.is_shared:
            return self.slots
        return [
            sum([self.slots[index] for index in members]) if members[0] == number else 0
            for number, members in enumerate(self.ports)
        ]

    def _choices(self, position: int) -> list[int]:
        """Return the bins to try for an item; of interchangeable ones only the first."""
        size, bin_mask = self.items[position]
        choices: dict[State, int] = {}
        for index in _indexes(bin_mask):
            slots, free = self.slots[index], self.sizes[index]
            if slots and free >= size:
                choices.setdefault((self.kinds[index], slots, free), index)
        return [index for _, _, index in sorted((free, -slots, index) for (_, slots, free), index in choices.items())]

    def _put(self, index: int, slots: int, size: int) -> None:
        self.slots[index] += slots
        for member in self.ports[index]:
            self.sizes[member] += size


def _kinds(items: Sequence[Item], ports: Sequence[int]) -> list[int]:
    """Number the bins: equivalent ones for all items have one number, except those of a port with several bins."""
    numbers: dict[object, int] = {}
    return [
        numbers.setdefault(
            (port if ports.count(port) > 1 else None, *[item.bins >> index & 1 for item in items]), len(numbers)
        )
        for index, port in enumerate(ports)
    ]

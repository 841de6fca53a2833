"""PFs that share a port: a cable that shows as several PFs is offered once.

The inventory gives such PFs one ``port`` (socket direct, multi-host, several PCI links to one NIC). What they may
reserve together is the smallest of their offers, so that Σ min_tx_rate never exceeds what the port offers, whichever of
its PFs the VFs are on. A PF whose rate is unknown, because it is down, offers nothing itself and does not limit the
others.

A value of `SharedPorts` has for each PF the index of the first PF of its port. It is empty for a node where no two PFs
share one, and every function that takes it then does what it does without ports.
"""

from collections.abc import Sequence

from mooring.annotations.inventory import Pf
from scheduler.placement.fill import Bin, Item, Steps
from scheduler.placement.packing import Packing, pack_items

SharedPorts = tuple[int, ...]


def shared_ports_of(pfs: tuple[Pf, ...]) -> SharedPorts:
    """Return the port of each PF; empty if no two of them share one."""
    first: dict[str, int] = {}
    ports = tuple(index if pf.port is None else first.setdefault(pf.port, index) for index, pf in enumerate(pfs))
    return ports if len(set(ports)) < len(pfs) else ()


def offers_of(pfs: Sequence[Pf], ports: SharedPorts) -> list[int]:
    """Return the Mb/s that each PF may reserve, with those of its port if it shares one."""
    offers = [pf.offer_mbps for pf in pfs]
    for port in set(ports):
        members = [index for index, own in enumerate(ports) if own == port]
        least = min((offers[index] for index in members if pfs[index].mbps), default=0)
        for index in members:
            offers[index] = least
    return offers


def joined(amounts: Sequence[int], ports: SharedPorts) -> list[int]:
    """Return for each PF the sum of the amounts over all PFs of its port."""
    sums = [0] * len(ports)
    for amount, port in zip(amounts, ports, strict=True):
        sums[port] += amount
    return [sums[port] for port in ports]


def sizes_by_port(bins: Sequence[Bin], ports: SharedPorts) -> dict[int, int]:
    """Return the size of each port: that of its bins, all of which are equal or were narrowed to 0."""
    sizes: dict[int, int] = {}
    for port, capacity in zip(ports, bins, strict=True):
        sizes[port] = max(sizes.get(port, 0), capacity.size)
    return sizes


def pack_on_ports(items: Sequence[Item], bins: Sequence[Bin], ports: SharedPorts, steps: Steps) -> Packing | None:
    """Return a bin for each item, None if they cannot be packed; raise BudgetSpent.

    The bins of one port share its size. If each item may lie in all of a port's bins or in none, the port is one bin
    with all of their slots: exactly the problem of `packing`. Otherwise every assignment is searched.
    """
    usable = sum(1 << index for index, capacity in enumerate(bins) if capacity.slots)
    groups = {port: sum(1 << index for index, own in enumerate(ports) if own == port) & usable for port in set(ports)}
    fitting = [Item(item.size, item.bins & usable) for item in items]
    if any(item.bins & group not in (0, group) for item in fitting for group in groups.values()):
        return _Search(fitting, bins, ports, steps).found()
    return _pack_merged(fitting, bins, ports, groups, steps)


def _pack_merged(
    items: Sequence[Item], bins: Sequence[Bin], ports: SharedPorts, groups: dict[int, int], steps: Steps
) -> Packing | None:
    order, sizes = sorted(groups), sizes_by_port(bins, ports)
    slots = [sum(bins[index].slots for index, own in enumerate(ports) if own == port) for port in order]
    merged = [Bin(count, sizes[port]) for port, count in zip(order, slots, strict=True)]
    found = pack_items(
        [
            Item(item.size, sum(1 << place for place, port in enumerate(order) if item.bins & groups[port]))
            for item in items
        ],
        merged,
        steps,
    )
    if found is None:
        return None
    left = [capacity.slots for capacity in bins]
    chosen = []
    for place in found:
        # The PFs of a port take turns: each has a PCI link of its own.
        members = [index for index, own in enumerate(ports) if own == order[place]]
        best = max(members, key=lambda index: (left[index], -index))
        left[best] -= 1
        chosen.append(best)
    return tuple(chosen)


class _Search:
    """Every assignment of items to bins that share sizes, depth first; a state that has failed is not searched again.

    Whether the items from a position on fit depends only on the slots and sizes left. Equal items are interchangeable,
    so each goes into the bin of the one before it or a later one. Hence None proves that there is no packing.
    """

    def __init__(self, items: Sequence[Item], bins: Sequence[Bin], ports: SharedPorts, steps: Steps) -> None:
        self.order = sorted(range(len(items)), key=lambda i: (items[i].bins.bit_count(), -items[i].size, items[i].bins))
        self.items = [items[index] for index in self.order]
        self.ports, self.steps = ports, steps
        self.slots = [capacity.slots for capacity in bins]
        self.sizes = sizes_by_port(bins, ports)
        self.failed: set[tuple[int, int, tuple[int, ...], tuple[int, ...]]] = set()
        self.chosen: list[int] = []

    def found(self) -> Packing | None:
        if not self._descend(0):
            return None
        placed = dict(zip(self.order, self.chosen, strict=True))
        return tuple(placed[index] for index in range(len(self.order)))

    def _descend(self, position: int) -> bool:
        if position == len(self.items):
            return True
        lowest = self._lowest(position)
        state = (position, lowest, tuple(self.slots), tuple(self.sizes.values()))
        self.steps.spend(1 + len(self.slots))
        if state in self.failed or sum(item.size for item in self.items[position:]) > sum(self.sizes.values()):
            return False
        size, allowed = self.items[position]
        for index in self._open_bins(allowed, size, lowest):
            self._put(index, size, 1)
            self.chosen.append(index)
            if self._descend(position + 1):
                return True
            self.chosen.pop()
            self._put(index, size, -1)
        self.failed.add(state)
        return False

    def _lowest(self, position: int) -> int:
        """Return the lowest bin to try: an item equal to the one before it lies in no earlier bin."""
        return self.chosen[-1] if position and self.items[position] == self.items[position - 1] else 0

    def _open_bins(self, allowed: int, size: int, lowest: int) -> list[int]:
        """Return the bins that have room for an item, those with the least size left first."""
        bins = range(lowest, len(self.slots))
        has_room = (
            index
            for index in bins
            if allowed >> index & 1 and self.slots[index] and self.sizes[self.ports[index]] >= size
        )
        return sorted(has_room, key=lambda index: (self.sizes[self.ports[index]], index))

    def _put(self, index: int, size: int, sign: int) -> None:
        self.slots[index] -= sign
        self.sizes[self.ports[index]] -= sign * size

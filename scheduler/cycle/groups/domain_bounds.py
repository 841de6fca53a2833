"""How many members a topology domain could hold at the most, by what its rows have together. Pure.

What it takes: the rows that are in a domain, with the domain's number and the members that each row holds at the most.
What it returns: for each domain an upper bound. What it must never do: say less than a domain truly holds.
"""

from collections.abc import Callable

import numpy as np
from numpy.typing import NDArray

from mooring.annotations.request import PodRequest
from scheduler.cache.column import Amounts
from scheduler.cache.node_columns import NodeColumns, Rows
from scheduler.cycle.groups.network_room import NetworkRoom
from scheduler.plugins.pod_topology_spread import HardSpread

_MOST_KEPT = 8
# More pods than any label's value has.
_MANY = 1 << 40
# Of some rows with the number of each one's domain, how many domains there are, and how many members each row holds.
DomainBound = Callable[[Rows, NDArray[np.int64], int, Amounts], Amounts]


def summed(which: NDArray[np.int64], count: int, room: Amounts) -> Amounts:
    """Return for each domain how many members its rows hold."""
    return np.bincount(which, room, count).astype(np.int64)


def of_apart(key: str, nodes: NodeColumns) -> DomainBound:
    """Return the bound of members of which no two share a value of a label: one for each value."""
    ids = nodes.label(key).ids[: nodes.size].astype(np.int64)
    values = len(nodes.label(key).values)

    def most(rows: Rows, which: NDArray[np.int64], count: int, room: Amounts) -> Amounts:
        own = ids[rows]
        # The rule says nothing of a node without the label.
        without, able = own == 0, (own > 0) & (room > 0)
        pairs = np.unique(which[able] * values + own[able])
        return summed(which[without], count, room[without]) + np.bincount(pairs // values, minlength=count)

    return most


def of_spread(spread: HardSpread) -> DomainBound:
    """Return the bound of equal members with a hard topology spread constraint that counts them.

    In the end no value of the label has more of them than ``max_skew`` beyond the value with the fewest. Outside of a
    domain these stay as many as they are; inside they become as many as there is room for.
    """
    ids, end = spread.of.ids.astype(np.int64), spread.of.end
    numbers = np.flatnonzero(spread.existing)
    in_order = numbers[np.argsort(spread.sums[numbers], kind="stable")]
    place = np.full(end, -1, np.int64)
    place[in_order] = np.arange(len(in_order))

    def most(rows: Rows, which: NDArray[np.int64], count: int, room: Amounts) -> Amounts:
        own = ids[rows]
        pairs, of_pair = np.unique(which * end + own, return_inverse=True)
        held, domains, values = summed(of_pair, len(pairs), room), pairs // end, pairs % end
        least = np.zeros(count, np.int64)
        if spread.counts_least:
            counted = spread.existing[values]
            least = _fewest_outside(place[values[counted]], domains[counted], count, spread.sums[in_order])
            np.minimum.at(least, domains[counted], (spread.sums[values] + held)[counted])
        allowed = np.maximum(least[domains] + spread.max_skew - spread.sums[values], 0)
        return summed(domains, count, np.where(values > 0, np.minimum(held, allowed), 0))

    return most


def _fewest_outside(places: Amounts, domains: Amounts, count: int, sums: Amounts) -> Amounts:
    """Return for each domain the smallest sum of the values that are not in it; more than any if all are.

    ``sums`` ascend; ``places`` are those of the values that are in the domains, each once in each.
    """
    inside = np.lexsort((places, domains))
    places, domains = places[inside], domains[inside]
    # Of the places that are in a domain, the n-th is n as long as none before it is left out.
    begins = np.searchsorted(domains, np.arange(count))
    is_next = places == np.arange(len(places)) - begins[domains]
    left_out = np.bincount(domains, minlength=count)
    np.minimum.at(left_out, domains[~is_next], (np.arange(len(places)) - begins[domains])[~is_next])
    return np.append(sums, _MANY)[left_out]


class CommonNetworks:
    """Bounds members whose k-th interfaces all lie on one network; what rows have left is kept between decisions."""

    def __init__(self, nodes: NodeColumns) -> None:
        self._nodes = nodes
        # By what the members request, the ones asked for last at the end; with each the number of the next change.
        self._kept: dict[tuple[PodRequest | None, ...], tuple[NetworkRoom, int]] = {}

    def of(self, requests: tuple[PodRequest | None, ...], count: Callable[[int], None]) -> DomainBound:
        """Return the bound for members with these requests; ``count`` is told how many rows were looked at."""
        network_room, size = self._network_room(requests, count), self._nodes.size

        def most(rows: Rows, which: NDArray[np.int64], count: int, room: Amounts) -> Amounts:
            domains, holds = np.full(size, -1, np.int64), np.zeros(size, np.int64)
            domains[rows], holds[rows] = which, room
            return network_room.most_in(domains, count, holds)

        return most

    def _network_room(self, requests: tuple[PodRequest | None, ...], count: Callable[[int], None]) -> NetworkRoom:
        nodes = self._nodes
        network_room, seen = self._kept.pop(requests, (None, -1))
        changed = nodes.changes.since(seen) if network_room is not None else []
        if network_room is None or not network_room.renew((row, nodes.free_vfs_of_row[row]) for row in changed):
            free_vfs = nodes.free_vfs_of_row.copy()
            network_room, changed = NetworkRoom(requests, 1, lambda: free_vfs), list(range(nodes.size))
            network_room.look()
        count(len(changed))
        while len(self._kept) >= _MOST_KEPT:
            del self._kept[next(iter(self._kept))]
        self._kept[requests] = network_room, nodes.changes.end
        return network_room

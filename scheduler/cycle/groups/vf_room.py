"""For how many members each node has VFs that they select: an upper bound, kept between decisions. Pure.

What it is: the columns count all VFs of a row, and the Mb/s of all its PFs together, though a VF has those of one PF.
Where a member selects its VFs, by a network or a rail, fewer of them serve. For the requests that were asked for last
it is counted here what serves, for each row.

Of members with several requests each interface counts as the one that serves most easily.

Where the rates of an equal member's interfaces differ, a PF has room for fewer than they sum up to: for rows that are
not alike, the first ones of those that are counted, it is searched whether so many members' VFs fit.

Why it is right: a row is counted again when it has changed. What is counted is an upper bound
(`scheduler.cycle.groups.network_room`), and one less only where a search has shown that so many do not fit.

What it costs: some 4 us for each row that has changed since it was asked for last, and all rows the first time. The
searches cost some 20 ms at the most.
"""

from collections.abc import Callable, Sequence

import numpy as np

from mooring.annotations.request import PodRequest, VfRequest
from scheduler.cache.column import Amounts
from scheduler.cache.node_columns import NodeColumns
from scheduler.cycle.groups.network_room import NetworkRoom
from scheduler.placement.assign import demands_on
from scheduler.placement.place import NoFit, PfCapacity, place
from scheduler.placement.steps import Steps
from scheduler.placement.vf_accounting import FreeVfs

_MOST_KEPT = 8
# Searches for the VFs of several members on one row at one time, of so many VFs and steps at the most: some 20 ms.
_SEARCHES, _MOST_VFS, _STEPS = 64, 24, 300
# What a search costs, in looks at what a row has left.
_ROWS_A_SEARCH = 50


# Of each distinct member.
Requests = tuple[PodRequest, ...]


class VfRoom:
    """The rows of all nodes, by request."""

    def __init__(self, nodes: NodeColumns) -> None:
        self._nodes = nodes
        # The one asked for last at the end; with each the number of the next change.
        self._kept: dict[Requests, tuple[Requests, Amounts, int]] = {}

    def of(self, requests: Requests, count: Callable[[int], None]) -> Amounts:
        """Return for how many members each row has VFs; ``count`` is told how many rows were looked at."""
        nodes = self._nodes
        own, before, seen = self._kept.pop(requests, (requests, np.zeros(0, np.int64), -1))
        rows = nodes.all_rows().tolist() if seen < 0 else nodes.changes.since(seen)
        count(len(rows))
        room = np.zeros(nodes.size, np.int64)
        room[: len(before)] = before
        free_vfs = [nodes.free_vfs_of_row[row] for row in rows]
        network_room = NetworkRoom(own, 1, lambda: free_vfs, network_of=lambda _: "")
        room[rows] = network_room.most_members(are_distinct=all(one.pfs == "distinct" for one in own))
        if len(own) == 1 and own[0].pfs != "distinct" and len({one.min_tx_rate for one in own[0].interfaces}) > 1:
            count(_SEARCHES * _ROWS_A_SEARCH)
            room[rows] = _that_fit(own[0], free_vfs, room[rows])
        while len(self._kept) >= _MOST_KEPT:
            del self._kept[next(iter(self._kept))]
        self._kept[own] = own, room, nodes.changes.end
        return room


def _that_fit(request: PodRequest, free_vfs: Sequence[FreeVfs], room: Amounts) -> Amounts:
    """Return how many members each of these rows holds by a search for all of their VFs, at the most as many as said.

    Unequal rates leave more of a PF than their sums say. Rows that are alike are searched once, the first ones only.
    """
    found, searches = room.copy(), 0
    known = dict[tuple[int, tuple[PfCapacity, ...], int], int]()
    for number, (free, most) in enumerate(zip(free_vfs, room.tolist(), strict=True)):
        key = id(free.pfs), free.capacities, most
        if key not in known:
            held = most
            while held and held * len(request.interfaces) <= _MOST_VFS and searches < _SEARCHES:
                searches += 1
                if _may_fit(request, free, held):
                    break
                held -= 1
            known[key] = held
        found[number] = known[key]
    return found


def _may_fit(request: PodRequest, free: FreeVfs, members: int) -> bool:
    """Return whether so many members may have their VFs on a node: no search has shown that they have not."""
    demands = demands_on(request, free.pfs)
    if isinstance(demands, str):
        return True
    outcome = place(demands * members, free.capacities, None, _STEPS, free.shared_ports, steps=Steps())
    return not isinstance(outcome, NoFit)


def is_selective(request: PodRequest) -> bool:
    """Return whether a node's sums say too much: a request selects its VFs, wants Mb/s of one PF, or distinct PFs."""
    return request.pfs == "distinct" or any(map(_selects, request.interfaces))


def _selects(interface: VfRequest) -> bool:
    selectors = interface.network, interface.pf, interface.link, interface.rail, interface.root, interface.netdev
    return interface.min_tx_rate > 0 or any(one is not None for one in selectors)

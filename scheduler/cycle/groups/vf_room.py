"""For how many equal members each node has VFs that they select: an upper bound, kept between decisions. Pure.

What it is: the columns count all VFs of a row, and the Mb/s of all its PFs together, though a VF has those of one PF.
Where a member selects its VFs, by a network or a rail, fewer of them serve. For the requests that were asked for last
it is counted here what serves, for each row.

Why it is right: a row is counted again when it has changed. What is counted is an upper bound
(`scheduler.cycle.groups.network_room`).

What it costs: some 4 us for each row that has changed since it was asked for last, and all rows the first time.
"""

from collections.abc import Callable

import numpy as np

from mooring.annotations.request import PodRequest, VfRequest
from scheduler.cache.column import Amounts
from scheduler.cache.node_columns import NodeColumns
from scheduler.cycle.groups.network_room import NetworkRoom

_MOST_KEPT = 8


class VfRoom:
    """The rows of all nodes, by request."""

    def __init__(self, nodes: NodeColumns) -> None:
        self._nodes = nodes
        # The one asked for last at the end; with each the number of the next change.
        self._kept: dict[PodRequest, tuple[PodRequest, Amounts, int]] = {}

    def of(self, request: PodRequest, count: Callable[[int], None]) -> Amounts:
        """Return for how many members each row has VFs; ``count`` is told how many rows were looked at."""
        nodes = self._nodes
        own, before, seen = self._kept.pop(request, (request, np.zeros(0, np.int64), -1))
        rows = nodes.all_rows().tolist() if seen < 0 else nodes.changes.since(seen)
        count(len(rows))
        room = np.zeros(nodes.size, np.int64)
        room[: len(before)] = before
        free_vfs = [nodes.free_vfs_of_row[row] for row in rows]
        room[rows] = NetworkRoom([own], 1, lambda: free_vfs, network_of=lambda _: "").most_members(
            own.interfaces, are_distinct=own.pfs == "distinct"
        )
        while len(self._kept) >= _MOST_KEPT:
            del self._kept[next(iter(self._kept))]
        self._kept[own] = own, room, nodes.changes.end
        return room


def is_selective(request: PodRequest) -> bool:
    """Return whether a node's sums say too much: a request selects its VFs, wants Mb/s of one PF, or distinct PFs."""
    return request.pfs == "distinct" or any(map(_selects, request.interfaces))


def _selects(interface: VfRequest) -> bool:
    selectors = interface.network, interface.pf, interface.link, interface.rail, interface.root, interface.netdev
    return interface.min_tx_rate > 0 or any(one is not None for one in selectors)

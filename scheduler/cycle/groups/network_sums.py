"""Compute how many members could have their interfaces on given networks, by plain sums. Pure.

For each network and node, the free VFs and Mb/s of the PFs that are up are summed. A node admits as many members as the
scarcest of these sums. This is an upper bound, so networks that are excluded really have room for too few members.
"""

from collections import Counter
from collections.abc import Callable, Sequence

import numpy as np

from mooring.annotations.request import PodRequest
from scheduler.cache.column import Amounts
from scheduler.cache.node_columns import Rows
from scheduler.cycle.groups.group_budget import GroupBudget, Turns
from scheduler.cycle.groups.group_demand import GroupDemand
from scheduler.placement.place import PfCapacity
from scheduler.placement.shares import Cap, caps_for
from scheduler.placement.vf_accounting import FreeVfs

# Number of nodes that are evaluated between two turns, and of networks whose sums are kept as arrays over all nodes.
_AT_ONCE, _MAX_ARRAYS = 256, 64
# The network of each interface.
Networks = tuple[str, ...]
# The free VFs and Mb/s of one node's PFs, by network.
_FreeByNetwork = dict[str, tuple[int, int]]


class NetworkSums:
    """The free VFs and Mb/s of some nodes on each network, for the members of a group."""

    def __init__(self, size: int, demand: GroupDemand) -> None:
        self._size, self._count = size, len(demand.members)
        self._namespace = demand.group.key.namespace
        counts, requests = Counter(member.shape for member in demand.summed_members), Counter[PodRequest]()
        for member in demand.shapes:
            if member.request is not None and member.interfaces:
                requests[member.request] += counts[member.shape]
        self._requests = list(requests.items())
        self._nodes: dict[str, list[tuple[int, int, int]]] = {}
        self._arrays: dict[str, tuple[Amounts, Amounts]] = {}
        # Sums by PF capacities: nodes of one model share their PFs.
        self._free_by_model: dict[tuple[int, tuple[PfCapacity, ...], tuple[int, ...]], _FreeByNetwork] = {}

    def read(
        self, rows: Rows, free_vfs_of: Callable[[int], FreeVfs], row_cost: int, budget: GroupBudget
    ) -> Turns[None]:
        """Add these rows, in turns."""
        for number, row in enumerate(rows.tolist(), 1):
            free_vfs = free_vfs_of(row)
            caps = caps_for(free_vfs.shares, self._namespace)
            key = id(free_vfs.pfs), free_vfs.capacities, tuple([cap.vfs for cap in caps])
            free = self._free_by_model.get(key)
            if free is None:
                free = self._free_by_model[key] = _free_by_network(free_vfs, caps, self._namespace)
            for network, (vfs, mbps) in free.items():
                self._nodes.setdefault(network, []).append((row, vfs, mbps))
            if number % _AT_ONCE == 0:
                budget.charge(row_cost * _AT_ONCE)
                if budget.turn_is_over:
                    yield

    def admitted(self, networks: Networks, among: Rows) -> int:
        """Return how many members these nodes admit if the first interfaces are on these networks."""
        member_limit = self._count
        for request, count in self._requests:
            interfaces = request.interfaces[: len(networks)]
            vfs = Counter(networks[: len(interfaces)])
            rates = Counter[str]()
            for network, interface in zip(networks, interfaces, strict=False):
                rates[network] += interface.min_tx_rate
            room = np.full(len(among), self._count, np.int64)
            for network, vf_count in vfs.items():
                has_vfs, has_mbps = self._on(network)
                room = np.minimum(room, has_vfs[among] // vf_count)
                if rates[network]:
                    room = np.minimum(room, has_mbps[among] // rates[network])
            member_limit = min(member_limit, int(room.sum()) * self._count // count)
        return member_limit

    def _on(self, network: str) -> tuple[Amounts, Amounts]:
        arrays = self._arrays.get(network)
        if arrays is None:
            vfs, mbps = np.zeros(self._size, np.int64), np.zeros(self._size, np.int64)
            if nodes := self._nodes.get(network):
                numbers, free_vfs, free_mbps = map(list, zip(*nodes, strict=True))
                vfs[numbers], mbps[numbers] = free_vfs, free_mbps
            while len(self._arrays) >= _MAX_ARRAYS:
                del self._arrays[next(iter(self._arrays))]
            arrays = self._arrays[network] = vfs, mbps
        return arrays


def _free_by_network(free_vfs: FreeVfs, caps: Sequence[Cap], namespace: str) -> _FreeByNetwork:
    free, capped = _FreeByNetwork(), dict[tuple[int, str], int]()
    for index, (pf, capacity) in enumerate(zip(free_vfs.pfs, free_vfs.capacities, strict=True)):
        if not pf.up or pf.access.refused(namespace, pf.network):
            continue
        vfs = capacity.vfs
        if (number := next((number for number, cap in enumerate(caps) if cap.pfs >> index & 1), None)) is not None:
            # The VFs that the share leaves count once for each network.
            left = capped.get((number, pf.network), max(caps[number].vfs, 0))
            vfs = min(vfs, left)
            capped[number, pf.network] = left - vfs
        old_sums = free.get(pf.network, (0, 0))
        free[pf.network] = old_sums[0] + vfs, old_sums[1] + max(capacity.mbps, 0)
    return free

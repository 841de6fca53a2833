"""Compute how many members could have their interfaces on given networks, by plain sums. Pure.

For each network and node, the free VFs and Mb/s of the PFs that are up are summed. A node admits as many members as the
scarcest of these sums. This is an upper bound, so networks that are excluded really have room for too few members.
"""

from collections import Counter
from collections.abc import Iterable, Iterator, Sequence

import numpy as np

from mooring.annotations.request import PodRequest
from scheduler.cache.column import Amounts
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
    """The free VFs and Mb/s of some nodes on each network; networks are numbered."""

    def __init__(self, size: int, requests: Counter[PodRequest | None], namespace: str | None) -> None:
        """Store the members' requests, each with the number of members that have it, and their namespace."""
        self._namespace = namespace
        self._size, self._count = size, sum(requests.values())
        items = requests.items()
        self._requests = [(request, count) for request, count in items if request is not None and request.interfaces]
        self._nodes: dict[str, list[tuple[int, int, int]]] = {}
        self._arrays: dict[str, tuple[Amounts, Amounts]] = {}
        # Sums by PF capacities: nodes of one model share their PFs.
        self._free_by_model: dict[tuple[int, tuple[PfCapacity, ...], tuple[int, ...]], _FreeByNetwork] = {}

    def add(self, nodes: Iterable[tuple[int, FreeVfs]]) -> Iterator[int]:
        """Add these nodes; yield how many were evaluated, in portions."""
        portion = 0
        for number, free_vfs in nodes:
            portion += 1
            caps = caps_for(free_vfs.shares, self._namespace)
            key = id(free_vfs.pfs), free_vfs.capacities, tuple([cap.vfs for cap in caps])
            free = self._free_by_model.get(key)
            if free is None:
                free = self._free_by_model[key] = _free_by_network(free_vfs, caps, self._namespace)
            for network, (vfs, mbps) in free.items():
                self._nodes.setdefault(network, []).append((number, vfs, mbps))
            if portion == _AT_ONCE:
                yield portion
                portion = 0
        yield portion

    def admitted(self, networks: Networks, among: Amounts) -> int:
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


def _free_by_network(free_vfs: FreeVfs, caps: Sequence[Cap], namespace: str | None) -> _FreeByNetwork:
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

"""Choose the networks (rails) for a group's interfaces. Pure.

``index``: interface k of every member is on the k-th network of its node, in natural order of all of the node's PFs,
including those that are down. ``same``: interface k of all members is on one network, which is chosen once for the
group; placed members determine it. Both restrict the members' requests; then they are scheduled like all requests.
"""

import itertools
from collections import Counter, deque
from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from functools import cached_property, partial

import msgspec
import numpy as np

from mooring.annotations.request import NO_RAIL, PodRequest, VfRequest
from mooring.natural_order import natural
from scheduler.cache.assigned_pod import AssignedPod
from scheduler.cache.column import Amounts
from scheduler.cache.node_columns import NodeColumns, Rows
from scheduler.cycle.groups.domains import Domain
from scheduler.cycle.groups.group_snapshot import GroupSnapshot, Turns
from scheduler.kube.group import Group
from scheduler.kube.pod_info import PodInfo
from scheduler.placement.place import PfCapacity
from scheduler.placement.shares import Cap, caps_for
from scheduler.placement.vf_accounting import FreeVfs

# The network of each interface.
Networks = tuple[str, ...]
# The free VFs and Mb/s of one node's PFs, by network.
_FreeByNetwork = dict[str, tuple[int, int]]
# Number of choices of networks to try in each topology domain, and of checks how many members a choice or its beginning
# admits.
_MOST_CHOICES, _MAX_CHECKS = 32, 256
# Maximum number of networks to sort in natural order: 40,000 take 150 ms.
_MOST_NATURAL = 4_096
# Cost of the sums of a row in units of one node, rows between two turns, and networks whose sums are kept as arrays.
_A_ROW, _NODE_PORTION, _MAX_ARRAYS = 50, 256, 64
# No PF has this network.
_NOWHERE = ""


class NetworkSums:
    """The free VFs and Mb/s of some nodes on each network, for the members of a group; they are read once."""

    def __init__(self, snapshot: GroupSnapshot) -> None:
        self.snapshot, self.demand, self._count = snapshot, snapshot.demand, len(snapshot.demand.members)
        self._nodes: dict[str, list[tuple[int, int, int]]] = {}
        self._arrays: dict[str, tuple[Amounts, Amounts]] = {}
        # Sums by PF capacities: nodes of one model share their PFs.
        self._free_by_model: dict[tuple[int, tuple[PfCapacity, ...], tuple[int, ...]], _FreeByNetwork] = {}

    @cached_property
    def _requests(self) -> Sequence[tuple[PodRequest, int]]:
        # The request of a shape is hashed once: it may have 64 interfaces.
        requests = Counter[PodRequest]()
        for member, count in zip(self.demand.shapes, self.demand.shape_counts, strict=True):
            if member.request is not None and member.interfaces:
                requests[member.request] += count
        return list(requests.items())

    def read(self, rows: Rows) -> Turns[None]:
        if self._nodes:
            return
        nodes, namespace = self.snapshot.nodes, self.demand.group.key.namespace
        for number, row in enumerate(rows.tolist(), 1):
            free_vfs = nodes.free_vfs_of_row[row]
            caps = caps_for(free_vfs.shares, namespace)
            key = id(free_vfs.pfs), free_vfs.capacities, tuple([cap.vfs for cap in caps])
            if key not in self._free_by_model:
                self._free_by_model[key] = _free_by_network(free_vfs, caps, namespace)
            for network, (vfs, mbps) in self._free_by_model[key].items():
                self._nodes.setdefault(network, []).append((row, vfs, mbps))
            if number % _NODE_PORTION == 0:
                yield from self.snapshot.budget.checkpoint(_A_ROW * _NODE_PORTION)

    def admitted(self, networks: Networks, rows: Rows) -> int:
        """Return how many members these nodes admit if the first interfaces are on these networks."""
        member_limit = self._count
        for request, count in self._requests:
            vfs, rates = Counter[str](), Counter[str]()
            for network, interface in zip(networks, request.interfaces, strict=False):
                vfs[network] += 1
                rates[network] += interface.min_tx_rate
            room = np.full(len(rows), self._count, np.int64)
            for network, vf_count in vfs.items():
                free_vfs, free_mbps = self._on(network)
                room = np.minimum(room, free_vfs[rows] // vf_count)
                if rates[network]:
                    room = np.minimum(room, free_mbps[rows] // rates[network])
            member_limit = min(member_limit, int(room.sum()) * self._count // count)
        return member_limit

    def _on(self, network: str) -> tuple[Amounts, Amounts]:
        if network not in self._arrays:
            vfs, mbps = np.zeros((2, self.snapshot.nodes.size), np.int64)
            for row, free_vfs, free_mbps in self._nodes.get(network, ()):
                vfs[row], mbps[row] = free_vfs, free_mbps
            while len(self._arrays) >= _MAX_ARRAYS:
                del self._arrays[next(iter(self._arrays))]
            self._arrays[network] = vfs, mbps
        return self._arrays[network]


def _free_by_network(free_vfs: FreeVfs, caps: Sequence[Cap], namespace: str) -> _FreeByNetwork:
    free, rest_of_shares = _FreeByNetwork(), dict[tuple[int, str], int]()
    for index, (pf, capacity) in enumerate(zip(free_vfs.pfs, free_vfs.capacities, strict=True)):
        if not pf.up or pf.access.refusal(namespace, pf.network):
            continue
        vfs = capacity.vfs
        if (number := next((number for number, cap in enumerate(caps) if cap.pfs >> index & 1), None)) is not None:
            # The VFs that the share leaves count once for each network.
            rest = rest_of_shares.get((number, pf.network), max(caps[number].vfs, 0))
            vfs = min(vfs, rest)
            rest_of_shares[number, pf.network] = rest - vfs
        vf_sum, mbps_sum = free.get(pf.network, (0, 0))
        free[pf.network] = vf_sum + vfs, mbps_sum + max(capacity.mbps, 0)
    return free


def choices(
    sums: NetworkSums, needed_count: int, domain: Domain, nominated_pods: Sequence[AssignedPod] = ()
) -> Iterator[Networks | None]:
    """Yield the networks to try for the members' interfaces in a domain; at least one choice, empty for any network.

    Yield None before ``sums`` must have been read: mostly they are not needed. Choices that admit fewer than
    ``needed_count`` are skipped, except the first one. The choice of ``nominated_pods`` comes first, because their
    victims have left. If not all members must be placed, choices that admit most come first.
    """
    demand, members, nodes = sums.demand, sums.demand.members, sums.snapshot.nodes
    count = max((len(member.interfaces) for member in members), default=0)
    if demand.group.rails != "same" or not count:
        yield ()
        return
    rows = domain.rows(nodes)
    networks, has_extra_members = _networks_in(rows, nodes), needed_count < len(members)
    candidates = [
        [network] if network else _candidates(members, k, networks, has_extra_members=has_extra_members)
        for k, network in enumerate(_networks_of(demand.placed_pods, count))
    ]
    if not all(candidates):
        # No node has a network: each interface stays in the request and fits nowhere.
        yield (_NOWHERE,) * count
        return
    # On one network, several interfaces of a member can share one PF.
    requests = [member.request for member in members if member.interfaces]
    is_packed = {request.pfs for request in requests if request is not None} == {"pack"}
    row_set = frozenset(rows.tolist())
    nominated_pods = [pod for pod in nominated_pods if nodes.row_of.get(pod.node, -1) in row_set]
    nominated_networks = _networks_of(nominated_pods, count)
    if all(network in candidate for network, candidate in zip(nominated_networks, candidates, strict=True)):
        first, is_first = nominated_networks, True
    else:
        first = tuple(candidate[0 if is_packed else k % len(candidate)] for k, candidate in enumerate(candidates))
        is_first = not has_extra_members
    if is_first:
        yield first
    yield None

    member_limit = partial(sums.admitted, rows=rows)
    with_room = _with_room(candidates, lambda choice: member_limit(choice) >= needed_count, is_packed=is_packed)
    results = list(itertools.islice(with_room, _MOST_CHOICES)) or [first]
    if has_extra_members:
        results.sort(key=member_limit, reverse=True)
    yield from (choice for choice in results if choice != first or not is_first)


def _with_room(
    candidates: Sequence[Sequence[str]], has_room: Callable[[Networks], bool], *, is_packed: bool
) -> Iterator[Networks]:
    """Yield choices that have room, in turns for each network of the first interface; skip all with one beginning."""
    checks = itertools.count()

    def extend(networks: Networks) -> Iterator[Networks]:
        if next(checks) >= _MAX_CHECKS or not has_room(networks):
            return
        if len(networks) == len(candidates):
            yield networks
            return
        candidate = candidates[len(networks)]
        start = candidate.index(networks[-1]) + 1 if networks[-1] in candidate else 0
        rotation = [*candidate[start:], *candidate[:start]]
        # Another network if there is one, then the same one again, because nodes may have no other.
        unused = [network for network in rotation if network not in networks]
        first = [*unused[:1], networks[-1]][:: -1 if is_packed else 1]
        for network in dict.fromkeys((*first, *unused, *rotation)):
            if network in candidate:
                yield from extend((*networks, network))

    iterators = deque(extend((network,)) for network in candidates[0])
    while iterators:
        iterator = iterators.popleft()
        if (choice := next(iterator, None)) is not None:
            yield choice
            iterators.append(iterator)


def _networks_in(rows: Rows, nodes: NodeColumns) -> Sequence[str]:
    """Return the networks of nodes, those of most first: the inventory of one node must not use up the choices."""
    models, counts = np.unique(nodes.models.ids[rows], return_counts=True)
    # Many nodes have the same networks.
    counts_by_networks, node_counts = Counter[Networks](), Counter[str]()
    for model, count in zip(models.tolist(), counts.tolist(), strict=True):
        counts_by_networks[tuple([pf.network for pf in nodes.models.values[model][1]])] += count
    for networks, count in counts_by_networks.items():
        node_counts.update(dict.fromkeys(networks, count))
    if len(node_counts) > _MOST_NATURAL:
        return sorted(sorted(node_counts), key=node_counts.__getitem__, reverse=True)
    return sorted(node_counts, key=lambda network: (-node_counts[network], natural(network)))


def _candidates(
    members: Sequence[PodInfo], k: int, networks: Sequence[str], *, has_extra_members: bool
) -> Sequence[str]:
    """Return the networks to try for an interface: those that members name, the most frequent first, or otherwise all.

    If not all members are needed, those without a name may use all networks.
    """
    member_counts = Counter(member.interfaces[k].network for member in members if k < len(member.interfaces))
    favourites = sorted(filter(None, member_counts), key=lambda network: (-member_counts[network], natural(network)))
    if favourites and not (has_extra_members and None in member_counts):
        return favourites
    return list(dict.fromkeys([*favourites, *networks]))


def _networks_of(pods: Sequence[AssignedPod], count: int) -> Networks:
    """Return the networks of the interfaces of placed members; empty if none of them has such an interface."""
    lists = [pod.assignment.vfs for pod in pods if pod.assignment is not None]
    return tuple(next((vfs[k].network for vfs in lists if k < len(vfs) and vfs[k].network), "") for k in range(count))


def on_rails(members: Sequence[PodInfo], group: Group, networks: Networks) -> Sequence[PodInfo]:
    """Return the members with their interfaces restricted to the group's rails."""
    if group.rails is None:
        return members
    # Members of one shape have equal requests.
    requests_by_shape: dict[bytes, tuple[PodRequest, bytes]] = {}
    results, suffix = list[PodInfo](), repr((group.rails, networks)).encode()
    for member in members:
        if member.request is None or not member.interfaces:
            results.append(member)
            continue
        if member.shape not in requests_by_shape:
            if group.rails == "index":
                interfaces = tuple(replace(interface, rail=index) for index, interface in enumerate(member.interfaces))
            else:
                interfaces = tuple(map(_on_network, member.interfaces, networks))
            requests_by_shape[member.shape] = replace(member.request, interfaces=interfaces), member.shape + suffix
        request, shape = requests_by_shape[member.shape]
        results.append(msgspec.structs.replace(member, request=request, shape=shape))
    return results


def _on_network(interface: VfRequest, network: str) -> VfRequest:
    """Restrict an interface to a network; one that names another network keeps it, and the member fits nowhere."""
    if network == _NOWHERE or interface.network not in (None, network):
        return replace(interface, rail=NO_RAIL)
    return replace(interface, network=network)

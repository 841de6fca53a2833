"""Choose the networks (rails) for a group's interfaces. Pure.

``index``: interface k of every member is on the k-th network of its node, in natural order of all of the node's PFs,
including those that are down. ``same``: interface k of all members is on one network, which is chosen once for the
group; placed members determine it. Both restrict the members' requests; then they are scheduled like all requests.
"""

import itertools
from collections import Counter, defaultdict, deque
from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace

import msgspec
import numpy as np

from mooring.annotations.request import NO_RAIL, PodRequest, VfRequest
from mooring.natural_order import natural
from scheduler.cache.assigned_pod import AssignedPod
from scheduler.cache.groups.group_sources import Group
from scheduler.cache.node_columns import NodeColumns
from scheduler.cycle.groups.domains import Domain
from scheduler.cycle.groups.group_demand import GroupDemand
from scheduler.cycle.groups.network_sums import Networks
from scheduler.kube.pod_info import PodInfo

# Number of choices of networks to try in each topology domain, and of checks how many members a choice or its beginning
# admits.
_MOST_CHOICES, _MAX_CHECKS = 32, 256
# Maximum number of networks to sort in natural order: 40,000 take 150 ms.
_MOST_NATURAL = 4_096
# No PF has this network.
_NOWHERE = ""


def networks_in(domain: Domain, nodes: NodeColumns) -> Sequence[str]:
    """Return the networks of a domain's nodes, those of most nodes first; in natural order, or plain order if there are
    many.

    The inventory of one node must not use up the choices.
    """
    models, counts = np.unique(nodes.models.ids[domain.row_numbers(nodes)], return_counts=True)
    # Many nodes have the same networks.
    counts_by_model, node_counts = Counter[tuple[str, ...]](), defaultdict[str, int](int)
    for model, count in zip(models.tolist(), counts.tolist(), strict=True):
        counts_by_model[tuple([pf.network for pf in nodes.models.values[model][1]])] += count
    for networks, count in counts_by_model.items():
        for network in dict.fromkeys(networks):
            node_counts[network] += count
    if len(node_counts) > _MOST_NATURAL:
        return sorted(sorted(node_counts), key=node_counts.__getitem__, reverse=True)
    return sorted(node_counts, key=lambda network: (-node_counts[network], natural(network)))


def choices(
    demand: GroupDemand,
    min_members: int,
    networks: Sequence[str],
    member_limit: Callable[[Networks], int],
    nominated: Sequence[AssignedPod] = (),
) -> Iterator[Networks | None]:
    """Yield the networks to try for the members' interfaces, in order; at least one choice, which is empty for any
    network.

    Yield None before ``member_limit`` is first called, because mostly no sums are needed.

    ``networks`` are those of the nodes where members are tried. ``member_limit`` returns how many members these admit
    on some networks. Choices that admit fewer than ``min_members`` are skipped, except the first one. The choice of
    ``nominated`` members comes first, because their victims have left. If not all members must be placed, choices that
    admit most come first: the other members join them there.
    """
    members = demand.members
    count = max((len(member.interfaces) for member in members), default=0)
    if demand.group.rails != "same" or not count:
        yield ()
        return
    group_networks, has_extra_members = _networks_of(demand.placed_pods, count), min_members < len(members)
    candidates = [
        [network] if network else _candidates(members, k, networks, has_extra_members=has_extra_members)
        for k, network in enumerate(group_networks)
    ]
    if not all(candidates):
        # No node has a network: each interface stays in the request and fits nowhere.
        yield (_NOWHERE,) * count
        return
    # On one network, several interfaces of a member can share one PF.
    requests = [member.request for member in members if member.interfaces]
    is_packed = {request.pfs for request in requests if request is not None} == {"pack"}
    nominated_networks = tuple(_networks_of(nominated, count))
    if all(network in among for network, among in zip(nominated_networks, candidates, strict=True)):
        first = nominated_networks
    else:
        first = tuple(among[0 if is_packed else k % len(among)] for k, among in enumerate(candidates))
    is_first = first == nominated_networks or not has_extra_members
    if is_first:
        yield first
    yield None
    with_room = _with_room(candidates, member_limit, min_members, is_packed=is_packed)
    others = list(itertools.islice(with_room, _MOST_CHOICES)) or [first]
    if has_extra_members:
        others.sort(key=member_limit, reverse=True)
    yield from (choice for choice in others if choice != first or not is_first)


def _with_room(
    candidates: Sequence[Sequence[str]], member_limit: Callable[[Networks], int], min_members: int, *, is_packed: bool
) -> Iterator[Networks]:
    """Yield choices that admit enough members, in turns for each network of the first interface.

    Choices with the same beginning are skipped together, so few are computed.
    """
    checks = itertools.count()

    def extend(networks: Networks) -> Iterator[Networks]:
        if next(checks) >= _MAX_CHECKS or member_limit(networks) < min_members:
            return
        if len(networks) == len(candidates):
            yield networks
            return
        following = candidates[len(networks)]
        start = following.index(networks[-1]) + 1 if networks[-1] in following else 0
        rotation = [*following[start:], *following[:start]]
        # Another network if there is one, then the same one again, because nodes may have no other.
        unused = [network for network in rotation if network not in networks]
        first = [*unused[:1], networks[-1]][:: -1 if is_packed else 1]
        for network in dict.fromkeys((*first, *unused, *rotation)):
            if network in following:
                yield from extend((*networks, network))

    iterators = deque(extend((network,)) for network in candidates[0])
    while iterators:
        iterator = iterators.popleft()
        if (choice := next(iterator, None)) is not None:
            yield choice
            iterators.append(iterator)


def _candidates(
    members: Sequence[PodInfo], k: int, networks: Sequence[str], *, has_extra_members: bool
) -> Sequence[str]:
    """Return the networks to try for an interface: those that members name, the most frequent first, or otherwise all.

    A member that names a network fits on no other. If not all are needed, members without a name may use all networks.
    """
    member_counts = Counter(member.interfaces[k].network for member in members if k < len(member.interfaces))
    favourites = sorted(
        (network for network in member_counts if network),
        key=lambda network: (-member_counts[network], natural(network)),
    )
    if favourites and not (has_extra_members and None in member_counts):
        return favourites
    return list(dict.fromkeys([*favourites, *networks]))


def _networks_of(pods: Sequence[AssignedPod], count: int) -> list[str]:
    """Return the networks of the interfaces of placed members; empty if none of them has such an interface."""
    lists = [pod.assignment.vfs for pod in pods if pod.assignment is not None]
    return [_first(vfs[k].network for vfs in lists if k < len(vfs)) for k in range(count)]


def _first(networks: Iterator[str | None]) -> str:
    return next((network for network in networks if network), "")


def on_rails(members: Sequence[PodInfo], group: Group, networks: Networks) -> Sequence[PodInfo]:
    """Return the members with their interfaces restricted to the group's rails."""
    if group.rails is None:
        return members
    # Members of one shape have equal requests.
    requests_by_shape: dict[bytes, tuple[PodRequest, bytes]] = {}
    return [_restrict(member, group, networks, requests_by_shape) for member in members]


def _restrict(
    pod_info: PodInfo, group: Group, networks: Networks, requests_by_shape: dict[bytes, tuple[PodRequest, bytes]]
) -> PodInfo:
    if pod_info.request is None or not pod_info.interfaces:
        return pod_info
    entry = requests_by_shape.get(pod_info.shape)
    if entry is None:
        if group.rails == "index":
            interfaces = tuple(replace(interface, rail=index) for index, interface in enumerate(pod_info.interfaces))
        else:
            interfaces = tuple(map(_on_network, pod_info.interfaces, networks))
        shape = pod_info.shape + repr((group.rails, networks)).encode()
        entry = requests_by_shape[pod_info.shape] = replace(pod_info.request, interfaces=interfaces), shape
    return msgspec.structs.replace(pod_info, request=entry[0], shape=entry[1])


def _on_network(interface: VfRequest, network: str) -> VfRequest:
    """Restrict an interface to a network; an interface that names another network keeps it, and the member fits
    nowhere.
    """
    if network == _NOWHERE or interface.network not in (None, network):
        return replace(interface, rail=NO_RAIL)
    return replace(interface, network=network)

"""On which networks a group's interfaces lie. Pure.

``index``: interface k of every member lies on the k-th network of its node, in natural order over all of the node's
PFs, those that are down included. ``same``: interface k of all members lies on one network, which is chosen once for
the group; placed members have chosen it already. Both restrict what a member requests; the decision then goes its
ordinary way.
"""

import itertools
from collections import Counter, defaultdict
from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace

import msgspec
import numpy as np

from mooring.annotations.request import NO_RAIL, PodRequest, VfRequest
from mooring.natural_order import natural
from scheduler.cache.assigned_pod import AssignedPod
from scheduler.cache.groups.sources import Group
from scheduler.cache.node_columns import NodeColumns
from scheduler.cycle.groups.domains import Domain
from scheduler.cycle.groups.group_demand import GroupDemand
from scheduler.cycle.groups.network_sums import Networks
from scheduler.kube.pod_info import PodInfo

# Choices of networks that are tried in each topology domain; the first ones, which are tried in any case; and those of
# which it is judged how many members they admit.
_MOST_CHOICES, _SAFE_CHOICES, _MAX_CHECKS = 32, 2, 128
# Networks that are put in natural order: for 40,000 it takes 150 ms.
_MOST_NATURAL = 4_096
# A network that no PF has.
_NOWHERE = ""


def networks_in(domain: Domain, nodes: NodeColumns) -> Sequence[str]:
    """Return the networks of a domain's nodes, those of most nodes first; in natural order, or plain if they are many.

    What one node says of itself must not use up the choices.
    """
    models, counts = np.unique(nodes.models.ids[domain.row_numbers(nodes)], return_counts=True)
    # Many nodes have the same networks.
    alike, node_counts = Counter[tuple[str, ...]](), defaultdict[str, int](int)
    for model, count in zip(models.tolist(), counts.tolist(), strict=True):
        alike[tuple([pf.network for pf in nodes.models.values[model][1]])] += count
    for networks, count in alike.items():
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
    """Yield the networks to try for the members' interfaces, in order; at least one choice, empty for any network.

    None comes before ``member_limit`` is first called: mostly no sums are needed.

    ``networks`` are those of the nodes where members are tried, and ``member_limit`` returns how many members these
    admit on some networks. Choices that admit fewer than ``min_members`` are left out but the first ones. Those of
    members that are ``nominated`` there come before all: others have left for them. Where not all members must be
    placed, those that admit the most come first: the others join them there.
    """
    members = demand.members
    count = max((len(member.interfaces) for member in members), default=0)
    if demand.group.rails != "same" or not count:
        yield ()
        return
    group_networks, has_extra_members = _networks_of(demand.placed, count), min_members < len(members)
    candidates = [
        [network] if network else _candidates(members, k, networks, has_extra_members=has_extra_members)
        for k, network in enumerate(group_networks)
    ]
    if not all(candidates):
        # No node has a network: each interface stays in the request, and fits nowhere.
        yield (_NOWHERE,) * count
        return
    # On one network an interface can be beside the others on one PF.
    requests = [member.request for member in members if member.interfaces]
    is_packed = {request.pfs for request in requests if request is not None} == {"pack"}
    attempts: Iterator[Networks | None] = itertools.islice(
        _first_choices(candidates, member_limit, min_members, is_packed=is_packed), _MOST_CHOICES + 1
    )
    if has_extra_members:
        yield None
        networks_by_room: list[Networks] = [choice for choice in attempts if choice is not None]
        networks_by_room.sort(key=member_limit, reverse=True)
        attempts = iter(networks_by_room)
    theirs = tuple(_networks_of(nominated, count))
    if all(network in among for network, among in zip(theirs, candidates, strict=True)):
        attempts = itertools.chain([theirs], (choice for choice in attempts if choice != theirs))
    yield from attempts


def _first_choices(
    candidates: Sequence[Sequence[str]], member_limit: Callable[[Networks], int], min_members: int, *, is_packed: bool
) -> Iterator[Networks | None]:
    """Yield distinct choices: the first ones in any case, then None, and those that admit enough members."""
    favourites, previous = _favourites(candidates, is_packed=is_packed), set[Networks]()
    with_room = (choice for choice in itertools.islice(favourites, _MAX_CHECKS) if member_limit(choice) >= min_members)
    first, others = itertools.islice(favourites, _SAFE_CHOICES), _with_room(candidates, member_limit, min_members)
    for choice in itertools.chain(first, (None,), with_room, others):
        if choice is None:
            yield None
        elif choice not in previous:
            previous.add(choice)
            yield choice


def _favourites(candidates: Sequence[Sequence[str]], *, is_packed: bool) -> Iterator[Networks]:
    """Yield a network of its own for each interface, from each one on, unless they are packed; one network for all."""
    longest_first = sorted(candidates, key=len, reverse=True)
    networks = list(dict.fromkeys(itertools.chain.from_iterable(longest_first)))
    possible = [frozenset(candidate) for candidate in candidates]
    for step in (0,) if is_packed else (1, 0):
        for first in range(len(networks)):
            rotation = [networks[(first + k * step) % len(networks)] for k in range(len(candidates))]
            choice = tuple(
                candidate[0] if len(candidate) == 1 else network
                for network, candidate in zip(rotation, candidates, strict=True)
            )
            if all(network in among for network, among in zip(choice, possible, strict=True)):
                yield choice


def _with_room(
    candidates: Sequence[Sequence[str]], member_limit: Callable[[Networks], int], min_members: int
) -> Iterator[Networks]:
    """Yield choices that admit enough members; those that begin alike are left out together, and few are judged."""
    count, iterators = 0, [iter([[network] for network in candidates[0]])]
    while iterators:
        prefix = next(iterators[-1], None)
        if prefix is None:
            iterators.pop()
            continue
        count += 1
        if count > _MAX_CHECKS:
            return
        if member_limit(tuple(prefix)) < min_members:
            continue
        if len(prefix) == len(candidates):
            yield tuple(prefix)
        else:
            iterators.append(iter([[*prefix, network] for network in candidates[len(prefix)]]))


def _candidates(
    members: Sequence[PodInfo], k: int, networks: Sequence[str], *, has_extra_members: bool
) -> Sequence[str]:
    """Return the networks to try for an interface: those that members name, of most of them first, or else all.

    Members fit on no others than they name. Where not all are needed, the others may do without them on all networks.
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
    """Return the networks on which the interfaces of placed members lie; empty where none has such an interface."""
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
    """Restrict an interface to a network; one that names another keeps its own, and the member fits nowhere."""
    if network == _NOWHERE or interface.network not in (None, network):
        return replace(interface, rail=NO_RAIL)
    return replace(interface, network=network)

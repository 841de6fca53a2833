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
from scheduler.cache.cache import AssignedPod
from scheduler.cache.groups.sources import Group
from scheduler.cache.node_columns import NodeColumns
from scheduler.cycle.groups.domains import Domain
from scheduler.cycle.groups.group_demand import GroupDemand
from scheduler.cycle.groups.network_sums import Networks
from scheduler.kube.pod_info import PodInfo

# Choices of networks that are tried in each topology domain; the first ones, which are tried in any case; and those of
# which it is judged how many members they admit.
_MOST_CHOICES, _UNJUDGED, _MOST_JUDGED = 32, 2, 128
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
    alike, found = Counter[tuple[str, ...]](), defaultdict[str, int](int)
    for model, count in zip(models.tolist(), counts.tolist(), strict=True):
        alike[tuple([pf.network for pf in nodes.models.values[model][1]])] += count
    for networks, count in alike.items():
        for network in dict.fromkeys(networks):
            found[network] += count
    if len(found) > _MOST_NATURAL:
        return sorted(sorted(found), key=found.__getitem__, reverse=True)
    return sorted(found, key=lambda network: (-found[network], natural(network)))


def choices(
    demand: GroupDemand,
    wanted: int,
    networks_there: Sequence[str],
    admitted: Callable[[Networks], int],
    nominated: Sequence[AssignedPod] = (),
) -> Iterator[Networks]:
    """Yield the networks to try for the members' interfaces, in order; at least one choice, empty for any network.

    ``networks_there`` are those of the nodes where members are tried, and ``admitted`` returns how many members these
    admit on some networks. Choices that admit fewer than ``wanted`` are left out but the first ones. Those of members
    that are ``nominated`` there come before all: others have left for them. Where not all members must be placed, those
    that admit the most come first: the others join them there.
    """
    members = demand.members
    count = max((len(one.interfaces) for one in members), default=0)
    if demand.group.rails != "same" or not count:
        yield ()
        return
    chosen, wants_most = _chosen(demand.placed, count), wanted < len(members)
    candidates = [
        [chosen[k]] if chosen[k] else _candidates(members, k, networks_there, wants_most=wants_most)
        for k in range(count)
    ]
    if not all(candidates):
        # No node has a network: each interface stays in the request, and fits nowhere.
        yield (_NOWHERE,) * count
        return
    # On one network an interface can be beside the others on one PF.
    is_packed = {one.request.pfs for one in members if one.request is not None and one.interfaces} == {"pack"}
    found: Iterator[Networks] = itertools.islice(
        _first_choices(candidates, admitted, wanted, is_packed=is_packed), _MOST_CHOICES
    )
    if wants_most:
        found = iter(sorted(found, key=admitted, reverse=True))
    theirs = tuple(_chosen(nominated, count))
    if all(one in among for one, among in zip(theirs, candidates, strict=True)):
        found = itertools.chain([theirs], (one for one in found if one != theirs))
    yield from found


def _first_choices(
    candidates: Sequence[Sequence[str]], admitted: Callable[[Networks], int], wanted: int, *, is_packed: bool
) -> Iterator[Networks]:
    """Yield distinct choices: the first ones in any case, then those that admit enough members."""
    preferred, seen = _preferred(candidates, is_packed=is_packed), set[Networks]()
    with_room = (one for one in itertools.islice(preferred, _MOST_JUDGED) if admitted(one) >= wanted)
    for one in itertools.chain(
        itertools.islice(preferred, _UNJUDGED), with_room, _with_room(candidates, admitted, wanted)
    ):
        if one not in seen:
            seen.add(one)
            yield one


def _preferred(candidates: Sequence[Sequence[str]], *, is_packed: bool) -> Iterator[Networks]:
    """Yield a network of its own for each interface, from each one on, unless they are packed; one network for all."""
    longest_first = sorted(candidates, key=len, reverse=True)
    networks = list(dict.fromkeys(itertools.chain.from_iterable(longest_first)))
    possible = [frozenset(candidate) for candidate in candidates]
    for step in (0,) if is_packed else (1, 0):
        for first in range(len(networks)):
            wanted = [networks[(first + k * step) % len(networks)] for k in range(len(candidates))]
            found = tuple(
                candidate[0] if len(candidate) == 1 else one for one, candidate in zip(wanted, candidates, strict=True)
            )
            if all(one in among for one, among in zip(found, possible, strict=True)):
                yield found


def _with_room(
    candidates: Sequence[Sequence[str]], admitted: Callable[[Networks], int], wanted: int
) -> Iterator[Networks]:
    """Yield choices that admit enough members; those that begin alike are left out together, and few are judged."""
    judged, begun = 0, [iter([[network] for network in candidates[0]])]
    while begun:
        before = next(begun[-1], None)
        if before is None:
            begun.pop()
            continue
        judged += 1
        if judged > _MOST_JUDGED:
            return
        if admitted(tuple(before)) < wanted:
            continue
        if len(before) == len(candidates):
            yield tuple(before)
        else:
            begun.append(iter([[*before, network] for network in candidates[len(before)]]))


def _candidates(members: Sequence[PodInfo], k: int, networks: Sequence[str], *, wants_most: bool) -> Sequence[str]:
    """Return the networks to try for an interface: those that members name, of most of them first, or else all.

    Members fit on no others than they name. Where not all are needed, the others may do without them on all networks.
    """
    named = Counter(one.interfaces[k].network for one in members if k < len(one.interfaces))
    asked = sorted((one for one in named if one), key=lambda network: (-named[network], natural(network)))
    if asked and not (wants_most and None in named):
        return asked
    return list(dict.fromkeys([*asked, *networks]))


def _chosen(placed: Sequence[AssignedPod], count: int) -> list[str]:
    """Return the networks on which the interfaces of placed members lie; empty where none has such an interface."""
    lists = [one.assignment.vfs for one in placed if one.assignment is not None]
    return [_first(vfs[k].network for vfs in lists if k < len(vfs)) for k in range(count)]


def _first(networks: Iterator[str | None]) -> str:
    return next((network for network in networks if network), "")


def on_rails(members: Sequence[PodInfo], group: Group, networks: Networks) -> Sequence[PodInfo]:
    """Return the members with their interfaces restricted to the group's rails."""
    if group.rails is None:
        return members
    # Members of one shape have equal requests.
    known: dict[bytes, tuple[PodRequest, bytes]] = {}
    return [_restricted(member, group, networks, known) for member in members]


def _restricted(
    pod_info: PodInfo, group: Group, networks: Networks, known: dict[bytes, tuple[PodRequest, bytes]]
) -> PodInfo:
    if pod_info.request is None or not pod_info.interfaces:
        return pod_info
    found = known.get(pod_info.shape)
    if found is None:
        if group.rails == "index":
            interfaces = tuple(replace(one, rail=index) for index, one in enumerate(pod_info.interfaces))
        else:
            interfaces = tuple(map(_on_network, pod_info.interfaces, networks))
        shape = pod_info.shape + repr((group.rails, networks)).encode()
        found = known[pod_info.shape] = replace(pod_info.request, interfaces=interfaces), shape
    return msgspec.structs.replace(pod_info, request=found[0], shape=found[1])


def _on_network(interface: VfRequest, network: str) -> VfRequest:
    """Restrict an interface to a network; one that names another keeps its own, and the member fits nowhere."""
    if network == _NOWHERE or interface.network not in (None, network):
        return replace(interface, rail=NO_RAIL)
    return replace(interface, network=network)

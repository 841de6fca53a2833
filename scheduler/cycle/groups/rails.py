"""On which networks a group's interfaces lie. Pure.

``index``: interface k of every member lies on the k-th network of its node, in natural order over all of the node's
PFs, those that are down included. ``same``: interface k of all members lies on one network, which is chosen once for
the group; placed members have chosen it already. Both restrict what a member requests; the decision then goes its
ordinary way.
"""

import itertools
import math
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
from scheduler.cycle.groups.network_room import NetworkRooms
from scheduler.kube.pod_info import PodInfo

# The network of each interface.
Networks = tuple[str, ...]
# Choices of networks that are tried in each topology domain; and the first ones, which are tried in any case.
_MOST_CHOICES, _UNJUDGED = 32, 2
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
    group: Group,
    members: Sequence[PodInfo],
    placed: Sequence[AssignedPod],
    networks_there: Callable[[], Sequence[str]],
    room: NetworkRooms,
    nominated: Sequence[AssignedPod] = (),
    *,
    wants_most: bool = False,
) -> Iterator[Networks | None]:
    """Yield the networks to try for the members' interfaces, in order; at least one choice, empty for any network.

    And None before what looks at all nodes: the turn may end there.

    ``networks_there`` returns those of the nodes where members are tried. Where there are many choices, those are left
    out that could hold too few members for lack of ``room``, but the first ones: mostly one of them serves. Those of
    members that are ``nominated`` there come before all: others have left for them. Where fewer members must be placed
    than there are (``wants_most``), those that could hold the most come first: the others join them there.
    """
    count = max((len(one.interfaces) for one in members), default=0)
    if group.rails != "same" or not count:
        yield ()
        return
    yield None
    chosen, networks = _chosen(placed, count), networks_there()
    yield None
    candidates = [
        [chosen[k]] if chosen[k] else _candidates(members, k, networks, wants_most=wants_most) for k in range(count)
    ]
    if not all(candidates):
        # No node has a network: each interface stays in the request, and fits nowhere.
        yield (_NOWHERE,) * count
        return
    # On one network an interface can be beside the others on one PF.
    is_packed = {one.request.pfs for one in members if one.request is not None and one.interfaces} == {"pack"}
    found: Iterator[Networks | None] = _in_order(candidates, room, is_packed=is_packed)
    if wants_most and math.prod(map(len, candidates)) > 1:
        yield None
        known = list[Networks]()
        for one in _first_choices(found):
            if one is None:
                yield None
            else:
                known.append(one)
        known.sort(key=room.most_on, reverse=True)
        found = iter(known)
    theirs = tuple(_chosen(nominated, count))
    if all(one in among for one, among in zip(theirs, candidates, strict=True)):
        found = itertools.chain([theirs], found)
    yield from _first_choices(found)


def _first_choices(found: Iterator[Networks | None]) -> Iterator[Networks | None]:
    """Yield the first distinct choices, as many as are tried, and each None before the last of them."""
    seen = set[Networks]()
    for networks in found:
        if networks is None:
            yield None
        elif networks not in seen:
            seen.add(networks)
            yield networks
            if len(seen) == _MOST_CHOICES:
                return


def _in_order(candidates: Sequence[Sequence[str]], room: NetworkRooms, *, is_packed: bool) -> Iterator[Networks | None]:
    """Yield the choices in order; where they are many, the first ones, and then those for which there is room."""
    if math.prod(map(len, candidates)) <= _MOST_CHOICES:
        yield from _preferred(candidates, is_packed=is_packed)
        yield from itertools.product(*candidates)
        return
    yield from itertools.islice(_preferred(candidates, is_packed=is_packed), _UNJUDGED)
    for one in room.rooms:
        yield None
        one.look()
    given = [room.giving(k, each) for k, each in enumerate(candidates)]
    if all(given):
        yield None
        yield from filter(room.could_hold, _preferred(given, is_packed=is_packed))
        yield from _with_room(given, room, ())


def _preferred(candidates: Sequence[Sequence[str]], *, is_packed: bool) -> Iterator[Networks]:
    """Yield a network of its own for each interface, from each one on, unless they are packed; one network for all."""
    longest_first = sorted(candidates, key=len, reverse=True)
    networks = list(dict.fromkeys(itertools.chain.from_iterable(longest_first)))
    possible = [frozenset(each) for each in candidates]
    for step in (0,) if is_packed else (1, 0):
        for first in range(len(networks)):
            wanted = [networks[(first + k * step) % len(networks)] for k in range(len(candidates))]
            found = tuple(each[0] if len(each) == 1 else one for one, each in zip(wanted, candidates, strict=True))
            if all(one in among for one, among in zip(found, possible, strict=True)):
                yield found


def _with_room(candidates: Sequence[Sequence[str]], room: NetworkRooms, before: Networks) -> Iterator[Networks]:
    """Yield all choices for which there is room; those that begin alike are left out together."""
    if len(before) == len(candidates):
        yield before
        return
    for network in candidates[len(before)]:
        if not before or room.could_hold((*before, network)):
            yield from _with_room(candidates, room, (*before, network))


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
    return [_restricted(one, group, networks, known) for one in members]


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

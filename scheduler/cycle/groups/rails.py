"""On which networks a group's interfaces lie. Pure.

``index``: interface k of every member lies on the k-th network of its node, in natural order over all of the node's
PFs, those that are down included. ``same``: interface k of all members lies on one network, which is chosen once for
the group; placed members have chosen it already. Both restrict what a member requests; the decision then goes its
ordinary way.
"""

import itertools
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import replace

import msgspec

from mooring.natural_order import natural
from mooring.request import PodRequest, VfRequest
from scheduler.cache.cache import AssignedPod
from scheduler.cache.groups.sources import Group
from scheduler.cache.node_columns import NodeColumns
from scheduler.kube.pod_info import PodInfo

# The network of each interface; empty where none is chosen.
Networks = tuple[str, ...]
# Choices of networks that are tried in each topology domain.
_MOST_CHOICES = 32


def choices(
    group: Group, members: Sequence[PodInfo], placed: Sequence[AssignedPod], nodes: NodeColumns
) -> list[Networks]:
    """Return the networks to try for the members' interfaces, in order; at least one choice, empty for any network."""
    count = max((len(one.interfaces) for one in members), default=0)
    if group.rails != "same" or not count:
        return [()]
    chosen = _chosen(placed, count)
    asked = [_first(one.interfaces[k].network for one in members if k < len(one.interfaces)) for k in range(count)]
    nodes_with = Counter(
        network for row in nodes.all_rows() for network in {pf.network for pf in nodes.offers[row][1] if pf.network}
    )
    # Those of most nodes first: what one node says of itself must not use up the choices.
    networks = sorted(nodes_with, key=lambda network: (-nodes_with[network], natural(network)))
    candidates = [[chosen[k] or asked[k] or ""] if chosen[k] or asked[k] else networks for k in range(count)]
    # On one network an interface can be beside the others on one PF.
    is_packed = {one.request.pfs for one in members if one.request is not None and one.interfaces} == {"pack"}
    found = itertools.islice(_in_order(candidates, is_packed=is_packed), _MOST_CHOICES)
    # Where no node has a network, each interface stays in the request, and fits nowhere.
    return list(dict.fromkeys(found)) or [("",) * count]


def _in_order(candidates: Sequence[Sequence[str]], *, is_packed: bool) -> Iterator[Networks]:
    """Yield the k-th network for the k-th interface unless they are packed, one network for all, and all others."""
    if all(candidates):
        kth = tuple(each[k % len(each)] for k, each in enumerate(candidates))
        one = (tuple(each[n % len(each)] for each in candidates) for n in range(max(map(len, candidates))))
        yield from one if is_packed else (kth, *one)
    yield from itertools.product(*candidates)


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
    if interface.network not in (None, network):
        return replace(interface, rail=_NO_RAIL)
    return replace(interface, network=network or None)


# No node has as many networks.
_NO_RAIL = 1 << 20

"""Group GPUs that reach each other without PCIe: every GPU of a group has a link to every other one. Pure.

An NVSwitch joins all GPUs on it. Without a switch, pairs of GPUs are linked or not: in a DGX-1 each GPU reaches four of
the seven others, and its groups are the two quads.
"""

from collections.abc import Iterable, Iterator, Mapping, Set
from itertools import combinations

from advertiser.inventory.gpu.facts import GpuFacts

Neighbours = Mapping[str, Set[str]]
# With more GPUs, groups are built greedily. Hosts without a switch have at most 16 GPUs.
_MOST_EXACT = 16


def link_groups(facts: GpuFacts) -> dict[str, int]:
    """Return the group number of each linked GPU; groups are numbered by their lowest PCI address."""
    neighbours = _neighbours(facts)
    groups = sorted(sorted(group) for group in _groups(neighbours))
    return {address: number for number, group in enumerate(groups) for address in group}


def _neighbours(facts: GpuFacts) -> Neighbours:
    """Return the GPUs that each GPU reaches; both ends must show the link."""
    nvml = facts.nvml or {}
    gpus_of_switch = {address for address, gpu in nvml.items() if gpu.switched}
    hives = {function.address: function.hive for function in facts.functions if (function.hive or "0") != "0"}
    # KFD shows links between the GPUs of a hive (kfd_create_vcrat_image_gpu), so a hive means the same.
    peers_of: dict[str, Set[str]] = {
        address: {peer for peer, hive in hives.items() if hive == own_hive} for address, own_hive in hives.items()
    }
    peers_of |= {address: node.xgmi | peers_of.get(address, frozenset()) for address, node in facts.kfd.items()}
    for address, gpu in nvml.items():
        peers_of[address] = gpu.nvlinks | (gpus_of_switch if gpu.switched else frozenset())
    return {
        address: {peer for peer in peers if peer != address and address in peers_of.get(peer, ())}
        for address, peers in peers_of.items()
    }


def _groups(neighbours: Neighbours) -> Iterator[frozenset[str]]:
    """Yield groups of two or more GPUs, the largest first; among equal sizes the one with the lowest addresses."""
    left = {address for address, peers in neighbours.items() if peers}
    while left:
        group = _largest(neighbours, left)
        if len(group) < 2:
            return
        left -= group
        yield group


def _largest(neighbours: Neighbours, left: Set[str]) -> frozenset[str]:
    addresses = sorted(left)
    if all(neighbours[address] >= left - {address} for address in addresses):
        return frozenset(left)
    if len(addresses) > _MOST_EXACT:
        return max((_grown(neighbours, address, addresses) for address in addresses), key=len)
    sizes = range(max(len(neighbours[address] & left) for address in addresses) + 1, 0, -1)
    candidates = (frozenset(combination) for size in sizes for combination in combinations(addresses, size))
    return next(candidate for candidate in candidates if _all_linked(neighbours, candidate))


def _grown(neighbours: Neighbours, first: str, addresses: Iterable[str]) -> frozenset[str]:
    group = frozenset({first})
    for address in addresses:
        if address not in group and group <= neighbours[address]:
            group |= {address}
    return group


def _all_linked(neighbours: Neighbours, group: frozenset[str]) -> bool:
    return all(neighbours[address] >= group - {address} for address in group)

"""Find the part of an interface's request that leaves a node no PF. Pure.

The parts are applied in the order in which users narrow down: network, name, link type, rate. The first one that leaves
no PF is the reason, counted by node. If other PFs of the node match that part, the reason also names the parts before
it, because the user may want to change either.
"""

from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import lru_cache

from mooring.annotations.inventory import Pf
from mooring.annotations.request import NO_RAIL, VfRequest
from mooring.natural_order import natural
from scheduler.placement.glob import glob

# The number of each network of a node, from 0 in natural order.
Rails = Mapping[str, int]


def unmet_part(interface: VfRequest, pfs: Sequence[Pf]) -> str:
    """Return the reason of the first part that leaves none of a node's PFs; empty if some PF matches all parts."""
    if not pfs:
        return "node(s) had no PF on offer"
    matches, phrases = pfs, list[str]()
    for reason, is_match, is_named_later in _parts(interface, rails_of(pfs) if interface.rail is not None else {}):
        matches = [pf for pf in matches if is_match(pf)]
        if not matches:
            names_others = phrases and any(map(is_match, pfs))
            return f"{reason} among those {' and '.join(phrases)}" if names_others else reason
        if is_named_later:
            phrases.append(reason.partition(" PF ")[2])
    return ""


def _parts(interface: VfRequest, rails: Rails) -> Iterator[tuple[str, Callable[[Pf], bool], bool]]:
    """Yield the parts: the reason of each, which PFs match it, and whether the reasons of later parts name it."""
    network, rail, link, rate = interface.network, interface.rail, interface.link, interface.min_tx_rate
    if network is not None:
        yield f"node(s) had no PF on network {network!r}", lambda pf: pf.network == network, True
    if rail is not None:
        own = f"node(s) had no PF on network number {rail + 1}"
        lacks = own if rail != NO_RAIL else "node(s) had no PF on the group's network"
        yield lacks, lambda pf: rails.get(pf.network) == rail, True
    if interface.pf is not None:
        matches = glob(interface.pf).match
        yield f"node(s) had no PF named {interface.pf!r}", lambda pf: matches(pf.name) is not None, True
    if link is not None:
        yield f"node(s) had no PF of link type {link!r}", lambda pf: pf.link == link, True
    if rate:
        # A PF that is down or of unknown rate provides VFs without a min rate only: there is nothing to reserve.
        yield "node(s) had no PF with its link up", lambda pf: pf.up, False
        yield f"node(s) had no PF fast enough for {rate} Mb/s", lambda pf: pf.up and pf.offer_mbps >= rate, False


def rails_of(pfs: Sequence[Pf]) -> Rails:
    """Number a node's networks, over all PFs, including those that are down."""
    return _numbers(frozenset([pf.network for pf in pfs]))


@lru_cache(maxsize=64)
def _numbers(networks: frozenset[str]) -> Rails:
    return {network: number for number, network in enumerate(sorted(filter(None, networks), key=natural))}

"""Find the part of an interface's request that leaves a node no PF. Pure.

The parts are applied in the order in which users narrow down: network, name, link type, rate. The first one that leaves
no PF is the reason, counted by node. If other PFs of the node match that part, the reason also names the parts before
it, because the user may want to change either.
"""

from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import lru_cache
from typing import NamedTuple

from mooring.annotations.inventory import Pf
from mooring.annotations.request import NO_RAIL, VfRequest
from mooring.natural_order import natural
from scheduler.placement.glob import glob

# The number of each network of a node, from 0 in natural order.
Rails = Mapping[str, int]
# Returns those of a node's PFs that match a part.
_Sift = Callable[[Sequence[Pf], Rails], list[Pf]]


class _Part(NamedTuple):
    """A part, and the reasons against a node: ``reason`` if no PF of the node matches it, otherwise
    ``reason_among``.
    """

    sift: _Sift
    reason: str
    reason_among: str


class InterfaceParts:
    """What one interface requests of its PF, as parts in order."""

    def __init__(self, interface: VfRequest) -> None:
        self._parts: list[_Part] = []
        phrases: list[str] = []
        for reason, sift, is_named_later in _parts_of(interface):
            reason_among = f"{reason} among those {' and '.join(phrases)}" if phrases else reason
            self._parts.append(_Part(sift, reason, reason_among))
            if is_named_later:
                phrases.append(reason.partition(" PF ")[2])
        self._has_rail = interface.rail is not None

    def unmet_by(self, pfs: Sequence[Pf]) -> str:
        """Return the reason of the first part that leaves none of a node's PFs; empty if some PF matches all parts."""
        if not pfs:
            return "node(s) had no PF on offer"
        matches, rails = pfs, rails_of(pfs) if self._has_rail else {}
        for part in self._parts:
            matches = part.sift(matches, rails)
            if not matches:
                return part.reason_among if part.sift(pfs, rails) else part.reason
        return ""


interface_parts = lru_cache(maxsize=256)(InterfaceParts)


def _parts_of(interface: VfRequest) -> Iterator[tuple[str, _Sift, bool]]:
    """Yield the parts: the reason of each, which PFs match it, and whether the reasons of later parts name it."""
    network, rail, link, rate = interface.network, interface.rail, interface.link, interface.min_tx_rate
    if network is not None:
        lacks = f"node(s) had no PF on network {network!r}"
        yield lacks, lambda pfs, _: [pf for pf in pfs if pf.network == network], True
    if rail is not None:
        own = f"node(s) had no PF on network number {rail + 1}"
        lacks = own if rail != NO_RAIL else "node(s) had no PF on the group's network"
        yield lacks, lambda pfs, rails: [pf for pf in pfs if rails.get(pf.network) == rail], True
    if interface.pf is not None:
        matches = glob(interface.pf).match
        yield f"node(s) had no PF named {interface.pf!r}", lambda pfs, _: [pf for pf in pfs if matches(pf.name)], True
    if link is not None:
        yield f"node(s) had no PF of link type {link!r}", lambda pfs, _: [pf for pf in pfs if pf.link == link], True
    if rate:
        # A PF that is down or of unknown rate provides VFs without a min rate only: there is nothing to reserve.
        yield "node(s) had no PF with its link up", lambda pfs, _: [pf for pf in pfs if pf.up], False
        lacks = f"node(s) had no PF fast enough for {rate} Mb/s"
        yield lacks, lambda pfs, _: [pf for pf in pfs if pf.up and pf.offer_mbps >= rate], False


def rails_of(pfs: Sequence[Pf]) -> Rails:
    """Number a node's networks, over all PFs, including those that are down."""
    return _numbers(frozenset([pf.network for pf in pfs]))


@lru_cache(maxsize=64)
def _numbers(networks: frozenset[str]) -> Rails:
    return {network: number for number, network in enumerate(sorted(filter(None, networks), key=natural))}

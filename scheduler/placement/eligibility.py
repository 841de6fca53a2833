"""Determine which PFs may provide each interface of one request, free or not, and why none may.

A request reads only a few properties of a PF: its name, network and link, what its driver supports and the operator
allows, whether its VFs have netdevs, and its rate. PFs of thousands of nodes are equal in all but the rate, so each
distinct PF is evaluated once for all interfaces of the request. The result is a mask: bit ``i`` is the interface with
index ``i``. The rate differs from node to node: the interfaces are sorted by rate, and those that a PF can reserve are
a prefix. A PF therefore costs a few lookups, independent of the number of interfaces.
"""

import re
from bisect import bisect_right
from collections.abc import Callable, Hashable, Iterator, Mapping, Sequence
from fnmatch import translate
from functools import lru_cache, partial
from operator import attrgetter
from typing import TypeVar

from mooring.annotations.inventory import Pf
from mooring.annotations.request import NO_RAIL, PodRequest, VfRequest
from mooring.natural_order import natural
from mooring.nic.settings import VfSettings
from scheduler.kube.outcomes import Refused
from scheduler.placement.bin_packing import bits
from scheduler.placement.place import VfDemand

K = TypeVar("K", bound=Hashable)
# Number of names, networks and kinds of PFs for which a request's masks are kept: nodes of one model have a few.
_MAX_KINDS = 256


# For each PF the interfaces that select it and whose rate it can reserve, and those of them whose settings it supports.
_Matches = Sequence[tuple[int, int]]
# The fields with which an interface selects a PF, besides its rate: link, network, rail, and pattern of names.
_Selector = tuple[str | None, str | None, int | None, str | None]
_selector_of: Callable[[VfRequest], _Selector] = attrgetter("link", "network", "rail", "pf")
# The number of each network of a node, from 0 in natural order.
Rails = Mapping[str, int]


class Eligibility:
    """The results for one request; earlier results are kept."""

    def __init__(self, request: PodRequest) -> None:
        self._interfaces, self._namespace = request.interfaces, request.namespace
        self._all_interfaces = (1 << len(request.interfaces)) - 1
        selectors = _masks_by_value(list(map(_selector_of, request.interfaces)))
        # No method: its cache would refer to this object, and only the rare collections of garbage would free both.
        self._selector_mask = lru_cache(_MAX_KINDS)(partial(_select, selectors))
        self._names_rails = any(rail is not None for _, _, rail, _ in selectors)
        # Nodes may have PFs of names that no other node has.
        self._names_pfs = any(pattern is not None for *_, pattern in selectors)
        # For PFs that support the same settings, the interfaces whose settings they support.
        self._able: dict[Hashable, int] = {}
        # The interfaces that no PF can distinguish by settings.
        self._equal = _masks_by_value(
            [(_without_values(interface.settings), interface.netdev) for interface in request.interfaces]
        ).values()
        self.rates = [interface.settings.min_tx_rate or 0 for interface in request.interfaces]
        indexes = sorted(range(len(self.rates)), key=self.rates.__getitem__)
        self._sorted_rates = [self.rates[index] for index in indexes]
        self._prefixes = [0]
        for index in indexes:
            self._prefixes.append(self._prefixes[-1] | 1 << index)

    def refusal(self, pfs: Sequence[Pf]) -> str:
        """Return why a node with these PFs cannot serve the first interface that has no PF; empty if all have one."""
        return self._first_refusal(pfs, self._matches(pfs))

    def demands(self, pfs: Sequence[Pf]) -> tuple[VfDemand, ...] | Refused:
        """Return which PFs may provide each interface; return the reason if one has none."""
        matches = self._matches(pfs)
        if refusal := self._first_refusal(pfs, matches):
            return Refused(refusal)
        common = self._all_interfaces
        for _, usable in matches:
            common &= usable
        masks = [(1 << len(pfs)) - 1] * len(self._interfaces)
        for index in bits(self._all_interfaces & ~common):
            masks[index] = sum([1 << number for number, (_, usable) in enumerate(matches) if usable >> index & 1])
        return tuple(map(VfDemand, self.rates, masks))

    def _first_refusal(self, pfs: Sequence[Pf], matches: _Matches) -> str:
        selectors = usable = 0
        for of_pf, usable_of_pf in matches:
            selectors |= of_pf
            usable |= usable_of_pf
        if usable == self._all_interfaces:
            return ""
        first = next(bits(self._all_interfaces & ~usable))
        if not selectors >> first & 1:
            return unmet_part(self._interfaces[first], pfs)
        selected_pfs = [pf for pf, (of_pf, _) in zip(pfs, matches, strict=True) if of_pf >> first & 1]
        return min([self._refusal(self._interfaces[first], pf) for pf in selected_pfs])

    def _refusal(self, interface: VfRequest, pf: Pf) -> str:
        """Return why this PF's VFs cannot be assigned to an interface that selects it; empty if they can."""
        return (
            pf.access.refusal(self._namespace, pf.network)
            or refused_netdev(interface.netdev, pf)
            or refused_settings(interface.settings, pf)
        )

    def _matches(self, pfs: Sequence[Pf]) -> _Matches:
        rails = rails_of(pfs) if self._names_rails else {}
        matches, terms, able = list[tuple[int, int]](), None, 0
        for pf in pfs:
            name = pf.name if self._names_pfs else ""
            mask = self._selector_mask(name, pf.link, pf.network, rails.get(pf.network))
            # A PF that is down or of unknown rate provides VFs without a min rate only: there is nothing to reserve.
            reservable = self._prefixes[bisect_right(self._sorted_rates, pf.offer_mbps if pf.up else 0)]
            # A node's PFs are mostly of one kind, and hashing the fields of a kind costs more than comparing them.
            if terms != (terms := _terms_of(pf)):
                able = self._able_with(terms, pf)
            selectors = reservable & mask
            matches.append((selectors, selectors & able))
        return matches

    def _able_with(self, terms: Hashable, pf: Pf) -> int:
        able = self._able.get(terms)
        if able is None:
            if len(self._able) >= _MAX_KINDS:
                self._able.clear()
            masks = [mask for mask in self._equal if not self._refusal(self._interfaces[next(bits(mask))], pf)]
            able = self._able[terms] = sum(masks)
        return able


# All fields of a PF that determine whether its VFs can have given settings, and for which namespaces they are.
_terms_of: Callable[[Pf], tuple[object, ...]] = attrgetter(
    "link", "can", "mbps", "allow", "vlan", "vf_netdevs", "access"
)


def _select(selectors: Mapping[_Selector, int], name: str, link: str, network: str, rail: int | None) -> int:
    """Return the interfaces that select such a PF; ``rail`` is its network's number."""
    return sum(
        [
            mask
            for (own_link, own_network, own_rail, pattern), mask in selectors.items()
            if own_link in (None, link)
            and own_network in (None, network)
            and own_rail in (None, rail)
            and (pattern is None or glob(pattern).match(name))
        ]
    )


def _masks_by_value(values: Sequence[K]) -> dict[K, int]:
    """Return for each distinct value the interfaces that have it."""
    masks: dict[K, int] = {}
    for index, value in enumerate(values):
        masks[value] = masks.get(value, 0) | 1 << index
    return masks


def _without_values(settings: VfSettings) -> Hashable:
    """Return the settings by which a PF can differ: without the value of a min rate or an address."""
    return (
        *(bool(settings.min_tx_rate), settings.max_tx_rate, settings.mac is None, settings.vlan, settings.qos),
        *(settings.trust, settings.spoofchk, settings.link_state, settings.guid is None),
    )


@lru_cache(maxsize=64)
def eligibility(request: PodRequest) -> Eligibility:
    """Return the results of a request; equal requests share them."""
    return Eligibility(request)


def refused_netdev(netdev: bool | None, pf: Pf) -> str:
    """Return why a VF of this PF cannot be assigned with its netdev, or without it; empty if it can.

    An advertiser of an earlier version does not report this; the node's other programs may not support it either.
    """
    if netdev is None or (netdev and pf.link == "ethernet"):
        return ""
    if pf.link == "ethernet":
        return "netdev false is for InfiniBand only: RDMA on Ethernet needs the netdev"
    if pf.vf_netdevs is None:
        return "the node's advertiser does not report which VFs have a netdev"
    return "the PF has VFs without a netdev" if netdev and not pf.vf_netdevs else ""


def refused_settings(settings: VfSettings, pf: Pf) -> str:
    """Return which setting this PF's link, driver, rate or operator rejects, with the reason; empty if none."""
    wishes, absent = _wishes(settings), _IMPOSSIBLE_SETTINGS[pf.link]
    for wish in wishes:
        if wish in absent:
            return f"{wish} cannot be set on {pf.link} links"
    for wish in wishes:
        if wish not in pf.can:
            return f"{wish} cannot be set by the PF's driver"
    # Some drivers reject such a limit, and it limits nothing; an unknown rate excludes nothing.
    if settings.max_tx_rate and settings.max_tx_rate > pf.mbps > 0:
        return f"max_tx_rate {settings.max_tx_rate} is above the line rate of the PF"
    return pf.allow.refusal(settings, pf.vlan)


_ZERO_IS_NO_WISH = frozenset({"min_tx_rate", "max_tx_rate", "qos"})
# Settings that an InfiniBand VF does not have, and those that an Ethernet VF does not have. Source: mlx5's eswitch,
# where rates, VLAN tags and MACs are for Ethernet, and GUIDs for InfiniBand.
_IMPOSSIBLE_SETTINGS: Mapping[str, frozenset[str]] = {
    "infiniband": frozenset({"min_tx_rate", "max_tx_rate", "vlan", "qos", "mac", "spoofchk"}),
    "ethernet": frozenset({"guid"}),
}


def _wishes(settings: VfSettings) -> list[str]:
    """Return the names of the requested settings; rate 0 and priority 0 are the defaults of a VF."""
    present = settings.to_fields()
    return [name for name in present if present[name] or name not in _ZERO_IS_NO_WISH]


def unmet_part(interface: VfRequest, pfs: Sequence[Pf]) -> str:
    """Return the reason of the first part of a request that leaves none of a node's PFs; empty if some PF matches all.

    The parts are in the order in which users narrow down: network, name, link type, rate. If other PFs of the node
    match that part, the reason also names the parts before it, because the user may want to change either.
    """
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


@lru_cache(maxsize=256)
def glob(pattern: str) -> re.Pattern[str]:
    """Return a pattern of `fnmatch.fnmatchcase` as a regular expression: 0.3 ms for 64 characters.

    fnmatch would keep thousands of them.
    """
    return re.compile(translate(pattern))

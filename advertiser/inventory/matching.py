"""Match NICs with the entries of the offer; pure."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from advertiser.inventory import port
from advertiser.inventory.facts import Host, PciFunction
from advertiser.inventory.guest_nics import why_without_sriov
from advertiser.inventory.offer import Candidate, Offer, OfferEntry, Terms
from advertiser.inventory.port import Port
from mooring.names import LinkType
from mooring.nic.pci import pf_name

# The most NICs named in one message.
_MOST_NAMED = 3


class UnfitError(ValueError):
    """The NIC cannot be described; the message says why."""


@dataclass(frozen=True, slots=True)
class OfferedPf:
    """A PF on offer: its name, link type and terms."""

    name: str
    link: LinkType
    terms: Terms


def candidate(function: PciFunction, host: Host, node: str) -> Candidate:
    """Return the values that the offer's globs match; values that the NIC lacks are empty."""
    netdev = port.main_netdev(function.netdevs)
    at = port.read_port(netdev, function.rdma)
    own_names = () if at is None else (pf_name(function.address), *(device.name for device in function.rdma))
    return Candidate(
        names=own_names if netdev is None else (netdev.name, *host.altnames.get(netdev.name, ())),
        node=node,
        pci=function.address,
        vendor=(function.vendor or "").removeprefix("0x"),
        device=(function.device or "").removeprefix("0x"),
        driver=function.driver or "",
        link="" if at is None else at.link,
    )


def pf_port(function: PciFunction) -> tuple[str, Port]:
    """Return a PF's name and its port; raise UnfitError for a NIC that cannot have VFs.

    An InfiniBand PF without a netdev (ib_ipoib is not loaded) is named by its PCI address: its RDMA device can be
    renumbered at every boot.
    """
    if not function.sriov:
        raise UnfitError(why_without_sriov(function))
    netdev = port.main_netdev(function.netdevs)
    at = port.read_port(netdev, function.rdma)
    if at is None and netdev is not None:
        raise UnfitError(f"netdev type {netdev.type!r} is neither Ethernet (1) nor InfiniBand (32)")
    if at is None:
        raise UnfitError("no netdev in the host's network namespace")
    return pf_name(function.address) if netdev is None else netdev.name, at


def offered_pf(function: PciFunction, host: Host, offer: Offer, node: str) -> OfferedPf | None:
    """Return how a PF is offered, even if it has no VFs yet; None if it cannot have VFs or is not on offer."""
    terms = offer.terms(candidate(function, host, node))
    if terms is None or _unfit(function) is not None:
        return None
    name, at = pf_port(function)
    return OfferedPf(name, at.link, terms)


def entries_without_pf(host: Host, offer: Offer, node: str) -> Iterator[str]:
    """Yield a complaint for each entry with ``init`` for this node that matches no PF that can have VFs.

    An entry counts as matching its PF even if an earlier entry decides about that PF.
    """
    candidates = [(function, candidate(function, host, node)) for function in host.functions]
    for index, entry in enumerate(offer.entries):
        if entry.terms is None or entry.terms.init is None or not entry.is_for(node):
            continue
        unfit = [(function.address, _unfit(function)) for function, candidate in candidates if entry.matches(candidate)]
        if all(why is not None for _, why in unfit):
            advice = "if that is intended, limit the entry to other nodes with `node` in its match"
            fault = _found(unfit) if unfit else f"no NIC of this node matches it{_nearest(entry, candidates)}"
            yield f"pfs[{index}] of the offer has init, but {fault}: {advice}"


@dataclass(frozen=True, slots=True)
class EntryMatch:
    """What an entry of the offer matches on this node: PFs that it decides about, and PFs of earlier entries.

    ``fault`` is why an entry that offers PFs matches none here, empty otherwise.
    """

    index: int
    pfs: tuple[str, ...]
    earlier: tuple[str, ...] = ()
    fault: str = ""


def entry_matches(host: Host, offer: Offer, node: str) -> Iterator[EntryMatch]:
    """Yield each entry of the offer that can match a PF of this node, with the PFs that it matches."""
    candidates = [(function, candidate(function, host, node)) for function in host.functions]
    pfs = [candidate for function, candidate in candidates if _unfit(function) is None]
    for index, entry in enumerate(offer.entries):
        if not entry.is_for(node):
            continue
        matches = [pf for pf in pfs if entry.matches(pf)]
        earlier = [pf for pf in matches if any(earlier_entry.matches(pf) for earlier_entry in offer.entries[:index])]
        fault = f"it matches no PF of this node{_nearest(entry, candidates)}" if entry.terms and not matches else ""
        decides = tuple(pf.names[0] for pf in matches if pf not in earlier)
        yield EntryMatch(index, decides, tuple(pf.names[0] for pf in earlier), fault)


def _nearest(entry: OfferEntry, candidates: Sequence[tuple[PciFunction, Candidate]]) -> str:
    """Return a text with the PF that matches most selectors of an entry, and the differences; empty without PFs."""
    pfs = [candidate for function, candidate in candidates if _unfit(function) is None]
    if not pfs:
        return ""
    nearest = max(pfs, key=entry.nearness)
    differences = ", ".join(f"{name} {values!r}, not {glob!r}" for name, glob, values in entry.mismatches(nearest))
    return f" (nearest is {nearest.names[0]} at {nearest.pci}: {differences})"


def _found(unfit: list[tuple[str, str | None]]) -> str:
    examples = ", ".join(f"{address} ({why})" for address, why in unfit[:_MOST_NAMED])
    return f"no NIC that it matches can have VFs: {examples}"


def _unfit(function: PciFunction) -> str | None:
    try:
        pf_port(function)
    except UnfitError as unfit:
        return str(unfit)
    return None

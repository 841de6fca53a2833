"""VLANs of a network for some namespaces that pods of other namespaces can have on another network. Pure.

They are a warning and not an error: VLAN ids may repeat on separate switches, about which the offer has nothing.
"""

from collections.abc import Iterator, Sequence

from advertiser.inventory.offer import Offer
from mooring.annotations.pf_terms import Access
from mooring.indexes import Indexes

# The most networks that one warning names.
_MOST_NAMED = 8


def shared_vlans(offer: Offer) -> Iterator[str]:
    """Yield a warning for each network with ``namespaces`` whose VLANs others can have.

    All entries of a network have the same ``namespaces``.
    """
    vlans: dict[str, Indexes] = {}
    access: dict[str, Access] = {}
    for terms in (entry.terms for entry in offer.entries if entry.terms is not None):
        own = terms.allow.vlan if terms.vlan is None else Indexes.of([terms.vlan])
        vlans[terms.network] = vlans.get(terms.network, Indexes()) | own
        access[terms.network] = terms.access
    for network in (name for name in vlans if access[name].namespaces):
        shared, others = Indexes(), []
        for other, own in vlans.items():
            if (both := own & vlans[network]) and not _admits(access[network], access[other]):
                shared |= both
                others.append(other)
        if others:
            yield (
                f"{access[network].refused(None, network)}, but pods of other namespaces can have vlan {shared} on "
                f"{_named(others)}: use different VLANs, unless the networks have separate switches"
            )


def _admits(own: Access, other: Access) -> bool:
    """Return whether all namespaces of another network may use this one: a pattern matches narrower patterns."""
    return not any(own.refused(namespace, "") for namespace in other.namespaces or ("*",))


def _named(networks: Sequence[str]) -> str:
    more = f" and {hidden} more" if (hidden := len(networks) - _MOST_NAMED) > 0 else ""
    return f"network{'s' if len(networks) > 1 else ''} {', '.join(map(repr, networks[:_MOST_NAMED]))}{more}"

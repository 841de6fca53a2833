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
        vlans_of_terms = terms.allow.vlan if terms.vlan is None else Indexes.of([terms.vlan])
        vlans[terms.network] = vlans.get(terms.network, Indexes()) | vlans_of_terms
        access[terms.network] = terms.access
    for network in (name for name in vlans if access[name].namespaces):
        shared, other_networks = Indexes(), []
        for other, vlans_of_terms in vlans.items():
            if (common_vlans := vlans_of_terms & vlans[network]) and not _admits(access[network], access[other]):
                shared |= common_vlans
                other_networks.append(other)
        if other_networks:
            yield (
                f"{access[network].refusal(None, network)}, but pods of other namespaces can have vlan {shared} on "
                f"{_named(other_networks)}: use different VLANs, unless the networks have separate switches"
            )


def _admits(own: Access, other: Access) -> bool:
    """Return whether all namespaces of another network may use this one: a pattern matches narrower patterns."""
    return not any(own.refusal(namespace, "") for namespace in other.namespaces or ("*",))


def _named(networks: Sequence[str]) -> str:
    suffix = f" and {hidden_count} more" if (hidden_count := len(networks) - _MOST_NAMED) > 0 else ""
    return f"network{'s' if len(networks) > 1 else ''} {', '.join(map(repr, networks[:_MOST_NAMED]))}{suffix}"

"""The node's part of an offer, for tests whose pods ask for more than a node without an offer allows."""

from dataclasses import replace

from mooring.annotations.pf_terms import Allow
from mooring.indexes import Indexes
from mooring.nic.settings import MAX_VLAN
from mooring.records.node_offer import PfOffer, dump_node_offer

EVERY_VLAN = Indexes(2 ** (MAX_VLAN + 1) - 2)
ALL_ALLOWED = PfOffer(allow=Allow(EVERY_VLAN, mac=True, guid=True, trust=True, spoofchk=True))
# The PFs of a simulated host, as many as a test has, and those of the lab.
HOST_PFS = tuple(f"0000:04:00.{function}" for function in range(8))
_LAB_PFS = tuple(f"0000:3b:00.{function}" for function in range(4))


def node_offer(**terms: object) -> str:
    """Return the file's text for a simulated host: everything is allowed but for these terms of its PFs."""
    return dump_node_offer(dict.fromkeys(HOST_PFS, replace(ALL_ALLOWED, **terms)))  # type: ignore[arg-type]


def in_the_lab(**terms: object) -> str:
    """Return the command with which a script of the lab's allows its pods everything, but for these terms."""
    offer = dump_node_offer(dict.fromkeys(_LAB_PFS, replace(ALL_ALLOWED, **terms)))  # type: ignore[arg-type]
    return f"mkdir -p /var/lib/mooring && echo '{offer}' >/var/lib/mooring/offer.json"


IN_THE_LAB = in_the_lab()

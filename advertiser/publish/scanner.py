"""One scan: read the host and the offer, and build the inventory."""

from dataclasses import dataclass

from advertiser.host.offer_file import OfferFile
from advertiser.host.read_host import Roots, read_host
from advertiser.inventory.build_inventory import Survey, survey
from advertiser.inventory.facts import Claims, Host


@dataclass(frozen=True, slots=True)
class Look:
    """One look at the host: what it said, what that means, and which of the seeds' resources are on offer."""

    host: Host
    survey: Survey
    resources: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class Looker:
    """Everything that a look needs but the cluster's claims."""

    roots: Roots
    offer: OfferFile
    node: str

    def look(self, claims: Claims) -> Look:
        """Read and judge the host; raise OSError if its PCI bus or ledger cannot be read."""
        host = read_host(self.roots)
        offer = self.offer.offer()
        return Look(host, survey(host, offer, claims, self.node), offer.resources)

"""One scan: read the host and the offer, and build the inventory."""

from dataclasses import dataclass

from advertiser.host.offer_file import OfferFile
from advertiser.host.read_host import Roots, read_host
from advertiser.inventory.build_inventory import InventoryResult, build_inventory
from advertiser.inventory.facts import ClusterFacts, Host


@dataclass(frozen=True, slots=True)
class Scan:
    """One scan of the host: its facts, the inventory, and which extended resources are on offer."""

    host: Host
    result: InventoryResult
    resources: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class Scanner:
    """Everything that a scan needs except the cluster's facts."""

    roots: Roots
    offer: OfferFile
    node: str

    def scan(self, cluster_facts: ClusterFacts) -> Scan:
        """Read and judge the host; raise OSError if its PCI bus or ledger cannot be read."""
        host = read_host(self.roots)
        offer = self.offer.offer()
        return Scan(host, build_inventory(host, offer, cluster_facts, self.node), offer.resources)

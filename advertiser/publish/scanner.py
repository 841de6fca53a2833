"""One scan: read the host and the offer, and build the inventory."""

from dataclasses import dataclass
from pathlib import Path

import structlog

from advertiser.host.offer_file import OfferFile
from advertiser.host.read_host import Roots, read_host
from advertiser.inventory.build_inventory import InventoryResult, build_inventory
from advertiser.inventory.facts import ClusterFacts, Host
from mooring import ports
from mooring.files import read_file, remove_file, write_file
from mooring.ports import Ports, dump_ports, shared_ports

_log = structlog.get_logger()


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
        """Read and judge the host; raise OSError if its PCI bus or ledger cannot be read.

        Which PFs share a port is recorded for the CNI plugin before anything is published.
        """
        host = read_host(self.roots)
        offer = self.offer.offer()
        result = build_inventory(host, offer, cluster_facts, self.node)
        record_ports(self.roots.run, shared_ports(result.inventory.pfs))
        return Scan(host, result, offer.resources)


def record_ports(run: Path, shared: Ports) -> None:
    """Write which PFs share a port where the record does not say so yet; without any there is no record."""
    path, text = run / ports.FILE, dump_ports(shared) if shared else None
    try:
        if text == read_file(path):
            return
        if text is None:
            remove_file(path)
        else:
            write_file(path, text)
    except OSError as refused:
        _log.error("shared ports are not recorded for the CNI plugin", path=str(path), reason=str(refused))

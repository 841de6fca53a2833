"""Scan once: read the host and the offer, and build the inventory."""

from collections.abc import Mapping
from dataclasses import dataclass, replace
from importlib.metadata import version
from pathlib import Path

import structlog

from advertiser.formats.extended_resources import HeldVf
from advertiser.formats.network_status import NetworkStatus, network_statuses
from advertiser.host.gpu.read_gpus import GpuSources
from advertiser.host.offer_file import OfferFile
from advertiser.host.pod_records import assigned_gpus_of, assigned_vfs, held_vfs
from advertiser.host.rates_states import read_rates_states
from advertiser.host.read_host import Roots, read_host
from advertiser.inventory.build_inventory import InventoryResult, build_inventory
from advertiser.inventory.facts import ClusterFacts, Host
from mooring.annotations.inventory import ADVERTISER
from mooring.files import is_text_of, remove_file, write_shared
from mooring.gpu.inventory import GpuInventory
from mooring.records import shared_ports
from mooring.records.rates_exchange import RatesState
from mooring.records.rates_server import is_of_last_server
from mooring.records.run_folder import ADVERTISER_VERSION
from mooring.records.shared_ports import SharedPorts, dump_shared_ports, shared_ports_of

_log = structlog.get_logger()


@dataclass(frozen=True, slots=True)
class Scan:
    """The result of a scan: the host's facts, its inventory, the extended resources on offer, and its GPUs.

    ``gpus`` is None if GPUs are not published; ``gpus_of_pods`` are the PCI addresses of the GPUs that this node's pods
    have. ``networks`` are the pods' network statuses. ``pod_vfs`` are the VFs that the pods have, None while unknown.
    ``rates`` are the CNI server's reports about changed rates, by pod uid; ``rates_server``: its version changes rates.
    """

    host: Host
    result: InventoryResult
    resources: tuple[str, ...] = ()
    gpus: GpuInventory | None = None
    gpus_of_pods: frozenset[str] = frozenset()
    networks: tuple[NetworkStatus, ...] = ()
    pod_vfs: frozenset[HeldVf] | None = None
    rates: Mapping[str, RatesState] | None = None
    rates_server: bool = True


@dataclass(frozen=True, slots=True)
class Scanner:
    """Scans the host; has everything that a scan needs except the cluster's facts."""

    roots: Roots
    offer: OfferFile
    node: str
    gpus: GpuSources | None = None

    def scan(self, cluster_facts: ClusterFacts) -> Scan:
        """Return a scan of the host; raise OSError if its PCI bus or ledger cannot be read.

        Also records for the CNI plugin which PFs share a port, before anything is published.
        """
        host = read_host(self.roots)
        # Add the advertiser's own version: without the CNI server there is no folder to record it in.
        own_version = version("mooring")
        host = replace(host, programs={**host.programs, ADVERTISER: own_version})
        record(self.roots.run / ADVERTISER_VERSION, own_version)
        offer = self.offer.offer()
        # Read pod records after the ledger: a pod's record is written before its VFs' entries.
        facts = replace(cluster_facts, assigned=assigned_vfs(self.roots.records))
        result = build_inventory(host, offer, facts, self.node)
        record_shared_ports(self.roots.run, shared_ports_of(result.inventory.pfs))
        networks = tuple(network_statuses(host.ledger, facts.assigned or ()))
        pod_vfs = held_vfs(self.roots.records) if offer.resources or self.gpus is not None else None
        run = self.roots.run
        scan = Scan(host, result, offer.resources, networks=networks, pod_vfs=pod_vfs, rates=read_rates_states(run))
        scan = replace(scan, rates_server=is_of_last_server(run))
        if self.gpus is None:
            return scan
        of_pods = assigned_gpus_of(self.roots.records)
        return replace(scan, gpus=self.gpus.inventory(self.node), gpus_of_pods=of_pods)


def record_shared_ports(run: Path, ports: SharedPorts) -> None:
    """Record which PFs share a port, if that has changed; remove the record if there are none."""
    error = record(run / shared_ports.FILE, dump_shared_ports(ports) if ports else None)
    if error is not None:
        _log.error("shared ports cannot be recorded for the CNI plugin", reason=str(error))


def record(path: Path, text: str | None) -> OSError | None:
    """Write a file of the advertiser's folder if it differs, or remove it if ``text`` is None; return an error."""
    try:
        if is_text_of(path, text):
            return None
        if text is None:
            remove_file(path)
        else:
            write_shared(path, text, mode=0o644)
    except OSError as error:
        return error
    return None

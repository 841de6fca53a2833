"""Scan the host whenever something may have changed, and publish the result."""

import asyncio
from collections.abc import Callable, Coroutine, Iterator, Mapping
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from typing import Any

import structlog

from advertiser.formats import install_condition, vf_condition
from advertiser.formats.extended_resources import counted_gpus
from advertiser.formats.vf_events import RefusedRates, lost_vfs, missing_devices, port_faults, refused_rates, reset_vfs
from advertiser.host.host_events import HostEvents
from advertiser.inventory.build_inventory import IgnoredNic, InventoryResult, VfWarning
from advertiser.inventory.debounce import CONFIRM_S, ScanPeriod, Sighting, VfKey, debounce
from advertiser.inventory.facts import ClusterFacts
from advertiser.publish.cluster_view import ClusterView
from advertiser.publish.metrics import Metrics
from advertiser.publish.network_status_writer import NetworkStatusWriter
from advertiser.publish.node_condition_writer import NodeConditionWriter
from advertiser.publish.node_resources import NodeResources
from advertiser.publish.publisher import Publisher
from advertiser.publish.rates_handover import RatesHandOver
from advertiser.publish.scanner import Scan, Scanner
from advertiser.publish.shim_condition_writer import ShimConditionWriter
from advertiser.publish.vf_event_reporter import VfEvent, VfEventReporter
from mooring.annotations.inventory import dump_inventory
from mooring.gpu.inventory import GpuInventory, GpuOut, dump_gpu_inventory
from mooring.records.vf_faults import VfFaults

_log = structlog.get_logger()


@dataclass(frozen=True, slots=True)
class Publishers:
    """The writers of a scan's result: inventory, extended resources, Events about VFs, GPUs, node conditions.

    A writer is None if its feature is off: ``gpus``, ``networks`` (the pods' network status) and ``rates``.
    """

    inventory: Publisher
    resources: NodeResources
    vf_events: VfEventReporter
    gpus: Publisher | None = None
    networks: NetworkStatusWriter | None = None
    shim: ShimConditionWriter | None = None
    rates: RatesHandOver | None = None
    vf_condition: NodeConditionWriter | None = None
    install_condition: NodeConditionWriter | None = None

    def conditions(self) -> list[NodeConditionWriter]:
        return [writer for writer in (self.shim, self.vf_condition, self.install_condition) if writer is not None]

    def run_all(self) -> list[Coroutine[Any, Any, None]]:
        """Return the work of all writers."""
        features = (writer for writer in (self.gpus, self.networks, self.rates) if writer is not None)
        return [
            writer.run() for writer in (self.inventory, self.resources, self.vf_events, *self.conditions(), *features)
        ]


class ScanLoop:
    """The scan loop; ``last`` is the last successful scan. ``clock`` is monotonic, in seconds."""

    def __init__(
        self,
        scanner: Scanner,
        view: ClusterView,
        publishers: Publishers,
        clock: Callable[[], float] = lambda: asyncio.get_running_loop().time(),
        metrics: Metrics | None = None,
    ) -> None:
        self._scanner = scanner
        self._view = view
        self._publishers = publishers
        self._other_nics: tuple[IgnoredNic, ...] = ()
        self._warnings: tuple[VfWarning, ...] = ()
        self._gpus_out: tuple[GpuOut, ...] = ()
        self._clock = clock
        self._scanned_s = float("-inf")
        self._first_s: float | None = None
        self._sightings: Mapping[VfKey, Sighting] = {}
        self._due_s: float | None = None
        self.metrics = metrics or Metrics()
        self.last: Scan | None = None

    def age_s(self) -> float:
        """Return the age of the last successful scan in seconds."""
        return self._clock() - self._scanned_s

    async def scan(self) -> Scan:
        """Scan once, now; raise OSError if the host cannot be read."""
        return await asyncio.to_thread(self._scanner.scan, self._view.cluster_facts or ClusterFacts())

    async def run(self, changes: HostEvents, resync_s: float) -> None:
        """Scan after every change, to confirm reasons, and every ``resync_s`` seconds; never return."""
        while True:
            try:
                # Until the node was listed, the drained VFs are unknown.
                if self._view.cluster_facts is not None:
                    began_s = self._clock()
                    self.take(await self.scan(), began_s)
            except Exception:  # noqa: BLE001 - the one of this program
                # The published inventory stays, and the next scan tries again.
                _log.exception("host cannot be read, keeping the last inventory")
                self.metrics.count_failure()
                self._due_s = None
            await changes.wait(self.wait_s(resync_s))

    def wait_s(self, resync_s: float) -> float:
        """Return how long to wait for a change before the next scan, in seconds."""
        return resync_s if self._due_s is None else min(max(self._due_s - self._clock(), 0.0), resync_s)

    def take(self, scan: Scan, began_s: float) -> None:
        """Publish a scan that began at ``began_s``; transient reasons only once they are confirmed."""
        self._scanned_s = self._clock()
        self._first_s = self._scanned_s if self._first_s is None else self._first_s
        result = debounce(scan.result.inventory, self._sightings, ScanPeriod(began_s, self._scanned_s))
        self._sightings, self._due_s = result.sightings, result.due_s
        if result.pending and began_s - self._first_s < CONFIRM_S:
            # Until the reasons are confirmed, the inventory of an earlier run stays published.
            return
        self._publish(replace(scan, result=replace(scan.result, inventory=result.inventory)))

    def _publish(self, scan: Scan) -> None:
        self.last = scan
        self.metrics.scan(scan.result, scan.gpus)
        inventory = replace(scan.result.inventory, rates=self._changes_rates(scan))
        self._publishers.inventory.set_desired_state(dump_inventory(inventory))
        gpus = None if scan.gpus is None else counted_gpus(scan.gpus, scan.gpus_of_pods)
        self._publishers.resources.set_desired_state(scan.resources, scan.result.inventory, scan.pod_vfs, gpus)
        events: tuple[VfEvent, ...] = (
            *lost_vfs(scan.result.inventory, scan.host),
            *reset_vfs(scan.host, datetime.now(UTC)),
            *missing_devices(scan.host),
            *port_faults(scan.host),
            *self._rate_refusals(scan),
        )
        self._publishers.vf_events.update(frozenset(events))
        if self._publishers.networks is not None:
            self._publishers.networks.set_statuses(scan.networks)
        if self._publishers.shim is not None:
            self._publishers.shim.take(scan.host.node_check, datetime.now(UTC), scan.host.shim_bypass)
        self._publish_conditions(scan)
        self._log_faults(scan.result)
        if scan.gpus is not None and self._publishers.gpus is not None:
            self._publish_gpus(scan.gpus, self._publishers.gpus)

    def _publish_conditions(self, scan: Scan) -> None:
        # Until the CNI server has reported since boot, the node keeps its condition.
        self.metrics.vf_faults(scan.host.vf_faults or VfFaults())
        if self._publishers.vf_condition is not None and scan.host.vf_faults is not None:
            self._publishers.vf_condition.set_desired_state(vf_condition.condition_of(scan.host.vf_faults))
        if self._publishers.install_condition is not None and scan.host.node_install is not None:
            self._publishers.install_condition.set_desired_state(install_condition.condition_of(scan.host.node_install))

    def _log_faults(self, result: InventoryResult) -> None:
        """Log NICs that are not on offer, and faults of VFs, when they change."""
        if result.ignored != self._other_nics:
            self._other_nics = result.ignored
            for device in self._other_nics:
                _log.warning("NIC is not on offer", pci=device.pci, name=device.name, reason=device.why)
        if result.warnings != self._warnings:
            self._warnings = result.warnings
            for warning in self._warnings:
                _log.warning("VFs on offer have a fault", pf=warning.pf, vfs=str(warning.vfs), reason=warning.why)

    def _rate_refusals(self, scan: Scan) -> Iterator[RefusedRates]:
        rates = self._publishers.rates
        for refusal in refused_rates(scan.rates or {}):
            if rates is None or rates.stays(refusal.uid):
                yield refusal

    def _changes_rates(self, scan: Scan) -> bool:
        """Pass on the CNI server's reports about rates; return whether the inventory should say that rates change."""
        rates = self._publishers.rates
        if rates is None:
            return False
        rates.set_states(scan.rates)
        return rates.claims_rates(self._publishers.inventory.observed_state, is_served=scan.rates_server)

    def _publish_gpus(self, gpus: GpuInventory, publisher: Publisher) -> None:
        publisher.set_desired_state(dump_gpu_inventory(gpus))
        if gpus.out != self._gpus_out:
            self._gpus_out = gpus.out
            for gpu in gpus.out:
                _log.warning("GPU is out", pci=gpu.pci, reason=gpu.why)

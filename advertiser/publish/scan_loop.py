"""Scan the host whenever something may have changed, and publish what it offers."""

import asyncio
from dataclasses import dataclass
from datetime import UTC, datetime

import structlog

from advertiser.formats.vf_events import lost_vfs, missing_devices, reset_vfs
from advertiser.host.host_events import HostEvents
from advertiser.inventory.build_inventory import IgnoredNic, VfWarning
from advertiser.inventory.facts import ClusterFacts
from advertiser.publish.cluster_view import ClusterView
from advertiser.publish.metrics import Metrics
from advertiser.publish.node_resources import NodeResources
from advertiser.publish.publisher import Publisher
from advertiser.publish.scanner import Scan, Scanner
from advertiser.publish.vf_event_reporter import VfEvent, VfEventReporter
from mooring.inventory import dump_inventory

_log = structlog.get_logger()


@dataclass(frozen=True, slots=True)
class Publishers:
    """Where the result of a scan is written: the inventory, the extended resources, Events about VFs of pods."""

    inventory: Publisher
    resources: NodeResources
    vf_events: VfEventReporter


class ScanLoop:
    """The loop that scans; ``last`` is the last scan that gave an inventory."""

    def __init__(self, scanner: Scanner, view: ClusterView, publishers: Publishers) -> None:
        self._scanner = scanner
        self._view = view
        self._publishers = publishers
        self._ignored: tuple[IgnoredNic, ...] = ()
        self._warnings: tuple[VfWarning, ...] = ()
        self._scanned_s = float("-inf")
        self.metrics = Metrics()
        self.last: Scan | None = None

    def age_s(self) -> float:
        """Return how long ago the last good scan was, in seconds of the event loop's clock."""
        return asyncio.get_running_loop().time() - self._scanned_s

    async def scan(self) -> Scan:
        """Scan once, now; raise OSError if the host cannot be read."""
        return await asyncio.to_thread(self._scanner.scan, self._view.cluster_facts or ClusterFacts())

    async def run(self, changes: HostEvents, resync_s: float) -> None:
        """Scan after every change and at least every ``resync_s`` seconds; never return."""
        while True:
            try:
                # Before both lists are complete an inventory would be partial.
                if self._view.cluster_facts is not None:
                    self._take(await self.scan())
            except Exception:  # noqa: BLE001 - the one of this program
                # Whatever is wrong with this host now, the published inventory stays and the next scan may correct it.
                _log.exception("host cannot be read, the last inventory stands")
                self.metrics.scan_failed()
            await changes.wait(resync_s)

    def _take(self, scan: Scan) -> None:
        self.last = scan
        self._scanned_s = asyncio.get_running_loop().time()
        self.metrics.scanned(scan.result)
        self._publishers.inventory.set_desired(dump_inventory(scan.result.inventory))
        self._publishers.resources.set_desired(scan.resources, scan.result.inventory)
        happened: tuple[VfEvent, ...] = (
            *lost_vfs(scan.result.inventory, scan.host),
            *reset_vfs(scan.host, datetime.now(UTC)),
            *missing_devices(scan.host),
        )
        self._publishers.vf_events.update(frozenset(happened))
        if scan.result.ignored != self._ignored:
            self._ignored = scan.result.ignored
            for device in self._ignored:
                _log.warning("device is left out", pci=device.pci, name=device.name, reason=device.why)
        if scan.result.warnings != self._warnings:
            self._warnings = scan.result.warnings
            for found in self._warnings:
                _log.warning("VFs are on offer with a fault", pf=found.pf, vfs=str(found.vfs), reason=found.why)

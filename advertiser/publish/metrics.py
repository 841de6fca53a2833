"""What the advertiser counts, as Prometheus reads it."""

from collections.abc import Callable

from prometheus_client import CollectorRegistry, Counter, Gauge, generate_latest

from advertiser.inventory.build_inventory import InventoryResult


class Metrics:
    """Counters in a registry of their own; ``age_s`` returns the age of the last scan, in seconds."""

    def __init__(self, age_s: Callable[[], float]) -> None:
        self._registry = CollectorRegistry()
        self._patches = Counter(
            "mooring_inventory_patches", "Patches of the node's inventory annotation.", registry=self._registry
        )
        self._failures = Counter(
            "mooring_inventory_look_failures", "Looks at the host that gave no inventory.", registry=self._registry
        )
        age = Gauge("mooring_inventory_age_seconds", "Since the host was last looked at.", registry=self._registry)
        age.set_function(age_s)
        self._vfs = Gauge("mooring_inventory_vfs", "VFs on offer and not out.", ("pf",), registry=self._registry)
        self._up = Gauge("mooring_inventory_pf_up", "1 where the PF's link is up.", ("pf",), registry=self._registry)
        self._ignored = Gauge("mooring_inventory_left_out", "NICs that are not offered.", registry=self._registry)

    def patched(self) -> None:
        self._patches.inc()

    def scan_failed(self) -> None:
        self._failures.inc()

    def scanned(self, result: InventoryResult) -> None:
        """Show what a scan has found."""
        self._vfs.clear()
        self._up.clear()
        for pf in result.inventory.pfs:
            self._vfs.labels(pf.name).set(len(pf.usable))
            self._up.labels(pf.name).set(pf.up)
        self._ignored.set(len(result.ignored))

    def text(self) -> bytes:
        return generate_latest(self._registry)

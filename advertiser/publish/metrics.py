"""The advertiser's Prometheus metrics."""

from typing import get_args

from prometheus_client import CollectorRegistry, Counter, Gauge, generate_latest

from advertiser.formats.shim_condition import SocketState
from advertiser.inventory.build_inventory import InventoryResult
from mooring.annotations.inventory import TESTED_RATES, RateState
from mooring.gpu.inventory import GpuInventory
from mooring.records.node_check import NodeCheck
from mooring.records.vf_faults import VfFaults


class Metrics:
    """The metrics, in their own registry."""

    def __init__(self) -> None:
        self._registry = CollectorRegistry()
        self._patches = Counter(
            "mooring_inventory_patches", "Patches of the node's inventory annotation.", registry=self._registry
        )
        self._failures = Counter(
            "mooring_inventory_scan_failures", "Scans of the host that failed.", registry=self._registry
        )
        self._last_scan = self._gauge(
            "mooring_inventory_last_scan_timestamp_seconds", "When the host was last scanned."
        )
        self._usable_vfs = self._gauge("mooring_inventory_usable_vfs", "VFs on offer that can be assigned now.", "pf")
        self._up = self._gauge("mooring_inventory_pf_up", "1 if the PF's link is up.", "pf")
        self._rates = self._gauge(
            "mooring_inventory_rate_tested",
            "1 for what is known of a PF's rate: requested (set and read back only), shown or differs (by a hardware "
            "test).",
            "pf",
            "setting",
            "state",
        )
        self._other_nics = self._gauge("mooring_inventory_ignored_nics", "NICs that are not on offer.")
        self._gpus = self._gauge("mooring_inventory_gpus", "GPUs by state: offered or out.", "state")
        self._policies = self._gauge(
            "mooring_inventory_admission_policies",
            "1 for the state of an admission policy: bound, missing or unknown.",
            "policy",
            "state",
        )
        self._kubelet = self._gauge(
            "mooring_node_check_kubelet",
            "1 for the socket that the kubelet uses: shim, runtime, bypass, unknown; failed: the shim failed and is "
            "bypassed; stale: the last check is too old.",
            "state",
        )
        self._findings = self._gauge("mooring_node_check_findings", "Findings of the last mooring-node check.")
        self._vf_faults = self._gauge(
            "mooring_inventory_vf_faults", "Faults that keep pods of this node from getting VFs."
        )
        self._foreign = self._gauge(
            "mooring_inventory_foreign_entries",
            "Entries in this node's record folders that no program of Mooring has written.",
        )

    def _gauge(self, name: str, text: str, *labels: str) -> Gauge:
        return Gauge(name, text, labels, registry=self._registry)

    def node_check(self, check: NodeCheck | None, socket: SocketState | None) -> None:
        """Set the metrics of the node's check; ``check`` is None without a report, ``socket`` the kubelet's socket."""
        for state in get_args(SocketState):
            self._kubelet.labels(state).set(state == socket)
        self._findings.set(0 if check is None else len(check.findings))

    def vf_faults(self, faults: VfFaults) -> None:
        """Set the metrics of the CNI server's report."""
        self._vf_faults.set(bool(faults.unavailable) + len(faults.faults))
        self._foreign.set(faults.count)

    def policy(self, policy: str, policy_state: str) -> None:
        """Set the state of an admission policy: bound, missing or unknown."""
        for state in ("bound", "missing", "unknown"):
            self._policies.labels(policy, state).set(state == policy_state)

    def count_patch(self) -> None:
        self._patches.inc()

    def count_failure(self) -> None:
        self._failures.inc()

    def scan(self, result: InventoryResult, gpus: GpuInventory | None = None) -> None:
        """Set the metrics of a scan; ``gpus`` is None if GPUs are not published."""
        if gpus is not None:
            self._gpus.labels("offered").set(len(gpus.gpus))
            self._gpus.labels("out").set(len(gpus.out))
        self._usable_vfs.clear()
        self._up.clear()
        self._rates.clear()
        for pf in result.inventory.pfs:
            self._usable_vfs.labels(pf.name).set(len(pf.usable))
            self._up.labels(pf.name).set(pf.up)
            for setting in TESTED_RATES:
                if (rate_state := pf.rate_state(setting)) is not None:
                    for state in get_args(RateState):
                        self._rates.labels(pf.name, setting, state).set(state == rate_state)
        self._other_nics.set(len(result.ignored))
        self._last_scan.set_to_current_time()

    def text(self) -> bytes:
        return generate_latest(self._registry)

"""The server's Prometheus metrics: calls, repairs, and the ledger at the last reconcile."""

import collections
from collections.abc import Callable, Iterable
from functools import partial
from typing import get_args

from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram, generate_latest

from cni.plan.orphans import REASONS, Reason
from cni.spec.skel import COMMANDS
from mooring.http.metrics_page import serve_metrics
from mooring.records.ledger import LedgerEntry, Phase

# In seconds, from a DEL without VFs to an ADD that waits for a VF and more.
_BUCKETS_S = (0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 30.0)


class Metrics:
    """The metrics in their own registry; one-shot calls are not counted."""

    def __init__(self) -> None:
        self.registry = CollectorRegistry()
        counter, gauge = partial(Counter, registry=self.registry), partial(Gauge, registry=self.registry)
        self._calls = counter(
            "mooring_cni_calls", "CNI calls answered, by error code; 0 is success.", ("command", "code")
        )
        self._call_s = Histogram(
            "mooring_cni_call_duration_seconds",
            "Time from a call's arrival to its answer.",
            ("command",),
            buckets=_BUCKETS_S,
            registry=self.registry,
        )
        self._repairs = counter("mooring_cni_repairs", "Orphaned VFs released to the host.", ("reason",))
        self._repair_failures = counter(
            "mooring_cni_repair_failures", "Repairs of orphaned VFs that failed.", ("reason",)
        )
        self._unreadable = counter(
            "mooring_cni_unreadable_ledger_entries", "Ledger entries that cannot be read, each counted once."
        )
        self._entries = gauge("mooring_cni_ledger_entries", "Ledger entries at the last reconcile.", ("phase",))
        self._held_vfs = gauge("mooring_cni_held_vfs", "VFs held by pods at the last reconcile.", ("pf",))
        self._last_reconcile = gauge(
            "mooring_cni_last_reconcile_timestamp_seconds", "When the last reconcile of the ledger ended."
        )
        self._without_counters = gauge(
            "mooring_cni_vfs_without_counters",
            "Held VFs without all counters on this page, by reason: late, nothing found, or beyond the bound.",
            ("reason",),
        )
        self._faults = gauge(
            "mooring_cni_vf_faults", "Faults that keep this node's pods from getting VFs, as in the node's condition."
        )
        self._inactive_ports = gauge(
            "mooring_cni_inactive_ports", "InfiniBand VFs in pods whose port is not active 30 s after ADD."
        )
        self._foreign = gauge(
            "mooring_cni_foreign_entries",
            "Entries in the record folders that Mooring did not write.",
        )
        for reason in REASONS:
            self._repairs.labels(reason)
            self._repair_failures.labels(reason)
        self._add_settings(counter, gauge)

    def _add_settings(self, counter: "partial[Counter]", gauge: "partial[Gauge]") -> None:
        """Create the metrics about settings of held VFs."""
        self._resets = counter("mooring_cni_resets", "Held VFs whose settings the PF lost and the server restored.")
        self._reset_failures = counter("mooring_cni_reset_failures", "Failed attempts to restore lost settings.")
        self._changed_vfs = gauge(
            "mooring_cni_changed_vfs", "Held VFs whose settings another program changed, at the last reconcile."
        )
        self._rates_changes = counter(
            "mooring_cni_rates_changes", "Rate changes of running pods that were put in force."
        )
        self._rates_failures = counter(
            "mooring_cni_rates_failures",
            "Rate changes of running pods that were rejected, and failed attempts to put them in force.",
        )
        self._pending_rates = gauge(
            "mooring_cni_pending_rates", "Pods whose changed rates are recorded but not in force yet."
        )

    def call(self, command: str, code: int, seconds: float) -> None:
        """Count one call and its duration in seconds; unknown commands share one label."""
        label = command if command in COMMANDS else "other"
        self._calls.labels(label, str(code)).inc()
        self._call_s.labels(label).observe(seconds)

    def repair(self, reason: Reason, *, success: bool) -> None:
        (self._repairs if success else self._repair_failures).labels(reason).inc()

    def reset(self, *, success: bool) -> None:
        (self._resets if success else self._reset_failures).inc()

    def changed_vfs(self, count: int) -> None:
        self._changed_vfs.set(count)

    def rates_change(self) -> None:
        self._rates_changes.inc()

    def rates_failure(self) -> None:
        self._rates_failures.inc()

    def pending_rates(self, pods: int) -> None:
        self._pending_rates.set(pods)

    def vfs_without_counters(self, **vfs: int) -> None:
        """Set how many held VFs lack counters on the last page, by reason."""
        for reason, count in vfs.items():
            self._without_counters.labels(reason).set(count)

    def vf_faults(self, faults: int, foreign: int, inactive_ports: int) -> None:
        self._faults.set(faults)
        self._inactive_ports.set(inactive_ports)
        self._foreign.set(foreign)

    def unreadable_entry(self) -> None:
        self._unreadable.inc()

    def ledger(self, listing: Iterable[LedgerEntry], unreadable: int) -> None:
        """Set the metrics of the ledger after a complete reconcile."""
        entries = list(listing)
        phases = collections.Counter(entry.phase for entry in entries)
        for phase in get_args(Phase):
            self._entries.labels(phase).set(phases[phase])
        self._entries.labels("unreadable").set(unreadable)
        self._held_vfs.clear()
        for pf, count in collections.Counter(entry.pf for entry in entries if entry.phase == "held").items():
            self._held_vfs.labels(pf).set(count)
        self._last_reconcile.set_to_current_time()

    def serve(self, address: str, counters: Callable[[], bytes]) -> None:
        """Serve /metrics at ``host:port`` from a separate thread; raise ConfigError or OSError.

        ``counters`` returns the last part of the page. It is called first, because it sets metrics of the first part.
        """

        def make() -> bytes:
            end = counters()
            return generate_latest(self.registry) + end

        serve_metrics(address, make)

"""The shim's Prometheus metrics: calls by method and status code, the time that the shim adds, and missing devices."""

from collections.abc import Callable

import grpc
from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram, generate_latest

from cri_shim.proxy.proxy import STREAMS, UNARY
from mooring.http.metrics_page import serve_metrics

# The goal is a median under 0.7 ms and a 99th percentile under 3 ms.
_BUCKETS_S = (0.0001, 0.00025, 0.0005, 0.001, 0.002, 0.003, 0.005, 0.01, 0.025, 0.1, 1.0)


class Metrics:
    """The metrics in their own registry."""

    def __init__(self) -> None:
        self.registry = CollectorRegistry()
        self._stop_server: Callable[[], None] = lambda: None
        self._calls = Counter(
            "mooring_cri_calls", "Finished CRI calls, by gRPC status code.", ("method", "code"), registry=self.registry
        )
        self._overhead = Histogram(
            "mooring_cri_overhead_seconds",
            "Duration of a unary call, without the time spent waiting for the runtime.",
            ("method",),
            buckets=_BUCKETS_S,
            registry=self.registry,
        )

        self._without_devices = Gauge(
            "mooring_cri_containers_without_devices",
            "Running containers that lack devices of their pod's VFs or GPUs.",
            registry=self.registry,
        )
        self._unchecked_containers = Gauge(
            "mooring_cri_unchecked_containers",
            "Running containers of pods with VFs or GPUs, and pod records, that the device check could not read.",
            registry=self.registry,
        )
        self._stopped_containers = Counter(
            "mooring_cri_containers_stopped",
            "Containers stopped because they lacked devices of their pod's VFs or GPUs.",
            registry=self.registry,
        )

    def observe(self, method: str, code: grpc.StatusCode, total_s: float, waited_s: float) -> None:
        """Count one call; times are in seconds. Unknown methods share one label, because callers choose their names."""
        label = method.rpartition("/")[2] if method in UNARY | STREAMS else "other"
        self._calls.labels(label, code.name).inc()
        if method in UNARY:
            self._overhead.labels(label).observe(total_s - waited_s)

    def set_device_check(self, without: int, unknown: int) -> None:
        """Set the result of a check: how many containers lack devices, and how many could not be checked."""
        self._without_devices.set(without)
        self._unchecked_containers.set(unknown)

    def count_stop(self) -> None:
        """Count a container that was stopped because it lacks devices."""
        self._stopped_containers.inc()

    def serve(self, address: str) -> None:
        """Serve /metrics at ``host:port`` from a separate thread; raise ConfigError or OSError.

        During a handover both shims serve there.
        """
        self._stop_server = serve_metrics(address, lambda: generate_latest(self.registry), share_address=True)

    def stop_server(self) -> None:
        """Leave the address to the shim that has taken over."""
        self._stop_server()

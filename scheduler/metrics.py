"""What Prometheus sees, under the field's names where the field has one (kube-scheduler's ``scheduler_*``)."""

from collections.abc import Iterable

from prometheus_client import Counter, Gauge, Histogram
from prometheus_client.core import GaugeMetricFamily
from prometheus_client.registry import REGISTRY, Collector

from scheduler.assign import OUT_OF_BUDGET
from scheduler.machine import Machine

ATTEMPTS = Counter("scheduler_schedule_attempts", "Decisions by result", ["result"])
DECISION_S = Histogram(
    "scheduler_scheduling_algorithm_duration_seconds",
    "Time of one decision",
    buckets=[0.00001 * 4**power for power in range(9)],
)
BINDS = Counter("scheduler_binds", "Binds by what became of them", ["outcome"])
BIND_S = Histogram("scheduler_binding_duration_seconds", "Time from a decision to the definite answer to its Binding")
BUDGET_SPENT = Counter("mooring_placement_budget_exhausted", "Decisions in which a placement search ran out of steps")
NOTICES = Counter("mooring_left_out", "Objects left out or not believed, by what is to blame", ["blame"])
REPORTS_DROPPED = Counter("mooring_reports_dropped", "Events and conditions dropped because too many waited")
LEADER = Gauge("leader_election_master_status", "1 while this process leads", ["name"])


def count_reason(reason: str) -> None:
    """Count what a decision's reason stands for beyond "no"."""
    if OUT_OF_BUDGET in reason:
        BUDGET_SPENT.inc()


class _Derived(Collector):
    """Gauges derived from the machine when they are read: there is no second count to drift."""

    def __init__(self, machine: Machine) -> None:
        self._machine = machine

    def describe(self) -> Iterable[GaugeMetricFamily]:
        return []

    def collect(self) -> Iterable[GaugeMetricFamily]:
        pending = GaugeMetricFamily("scheduler_pending_pods", "Pods by place in the queue", labels=["queue"])
        for place, count in self._machine.queue.depths().items():
            pending.add_metric([place], count)
        yield pending
        yield from self._networks()
        faults = GaugeMetricFamily("mooring_nodes_without_inventory", "Nodes left out, by reason", labels=["reason"])
        for reason, count in self._faults().items():
            faults.add_metric([reason], count)
        yield faults

    def _networks(self) -> Iterable[GaugeMetricFamily]:
        vfs = GaugeMetricFamily("mooring_free_vfs", "VFs that may be given now", labels=["network"])
        mbps = GaugeMetricFamily("mooring_free_mbps", "Rate not reserved, in Mb/s", labels=["network"])
        free: dict[str, tuple[int, int]] = {}
        for view in self._machine.cluster.views():
            for pf, room in zip(view.supply.pfs, view.supply.rooms, strict=True):
                known = free.get(pf.network, (0, 0))
                free[pf.network] = (known[0] + room.vfs, known[1] + max(room.mbps, 0))
        for network, (count, rate) in free.items():
            vfs.add_metric([network], count)
            mbps.add_metric([network], rate)
        return (vfs, mbps)

    def _faults(self) -> dict[str, int]:
        faults: dict[str, int] = {}
        for view in self._machine.cluster.views():
            if view.facts.fault:
                faults[view.facts.fault] = faults.get(view.facts.fault, 0) + 1
        return faults


def expose(machine: Machine) -> None:
    """Let the machine's state be read; once a process."""
    REGISTRY.register(_Derived(machine))

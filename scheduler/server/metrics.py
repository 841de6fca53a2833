"""The scheduler's metrics, under kube-scheduler's names (``scheduler_*``) if it has them.

Children of labels that occur often are stored, because finding them costs more than counting.
"""

import collections
import time
from collections.abc import Iterable, Mapping, Sequence
from functools import cache
from itertools import product
from typing import TypeVar, get_args, get_type_hints

from prometheus_client import Counter, Gauge, Histogram, disable_created_metrics
from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, Metric
from prometheus_client.registry import REGISTRY, Collector

from scheduler.constraints.protocol import VFS
from scheduler.cycle.decisions import Bind
from scheduler.cycle.instructions import EvictionCause, EvictionResult, Instruction, PreBind, WriteRatesResult
from scheduler.cycle.reserved_room import Cause
from scheduler.kube.outcomes import Outcome
from scheduler.plugins.device_rules.rdma_vfs import FAULTS
from scheduler.state.machine import Machine

LabelT = TypeVar("LabelT", bound=str)
disable_created_metrics()  # type: ignore[no-untyped-call]
ATTEMPTS = Counter(
    "scheduler_schedule_attempts", "Number of attempts to schedule pods, by result", ["result", "profile"]
)
ATTEMPT_S = Histogram(
    "scheduler_scheduling_attempt_duration_seconds",
    "Scheduling attempt latency in seconds (decision and binding)",
    ["result", "profile"],
    buckets=[0.0001 * 2**power for power in range(18)],
)
DECISION_S = Histogram(
    "scheduler_scheduling_algorithm_duration_seconds",
    "Scheduling algorithm latency in seconds",
    buckets=[0.00001 * 4**power for power in range(9)],
)
POINT_S = Histogram(
    "scheduler_framework_extension_point_duration_seconds",
    "Latency of all plugins of an extension point, in seconds",
    ["extension_point", "status", "profile"],
    buckets=[0.00001 * 4**power for power in range(11)],
)
WAITED_S = Histogram(
    "scheduler_pod_scheduling_sli_duration_seconds",
    "Latency from the time a pod enters the queue to its binding, in seconds, by number of attempts",
    ["attempts"],
    buckets=[0.01 * 2**power for power in range(20)],
)
TRIES = Histogram(
    "scheduler_pod_scheduling_attempts", "Number of attempts to successfully schedule a pod", buckets=[1, 2, 4, 8, 16]
)
BINDS = Counter("mooring_binds", "Number of bindings, by result", ["result"])
IGNORED_OBJECTS = Counter(
    "mooring_ignored_objects", "Number of objects ignored because they are invalid, by reason", ["reason"]
)
EVICTIONS = Counter(
    "mooring_evictions",
    "Number of evictions, by cause (the reason of the pod's event) and result",
    ["cause", "result"],
)
RATE_CHANGES = Counter(
    "mooring_rate_changes", "Number of writes of changed rates for running pods, by result", ["result"]
)
# Prometheus computes an increase only for a series that exists, so each starts at 0 to count the first one too.
for labels in product(get_args(EvictionCause), get_args(EvictionResult)):
    EVICTIONS.labels(*labels)
for kind in get_args(get_type_hints(WriteRatesResult)["kind"]):
    RATE_CHANGES.labels(kind)
PREEMPTIONS = Counter("scheduler_preemption_attempts", "Number of preemption attempts that selected victims")
VICTIMS = Histogram(
    "scheduler_preemption_victims",
    "Number of selected preemption victims",
    buckets=[2**power for power in range(7)],
)
EXTENDER_REQUESTS = Counter(
    "mooring_extender_requests", "Number of requests from kube-scheduler, by verb and HTTP status", ["verb", "code"]
)
DROPPED_EVENTS = Counter(
    "mooring_events_dropped", "Number of events dropped because too many were queued, in all or for one object"
)
LEADER = Gauge("leader_election_master_status", "1 if this process is the leader, otherwise 0", ["name"])
_point_s, _binds, _waited_s = cache(POINT_S.labels), cache(BINDS.labels), cache(WAITED_S.labels)
# kube-scheduler has a label value for each of the attempts 1 to 14, and one for the rest.
_MAX_ATTEMPTS = 15


class DecisionTiming:
    """The timing of a decision; ``record_phase`` stores the time since its last call."""

    __slots__ = ("_last", "phases", "start")

    def __init__(self) -> None:
        self.phases: list[tuple[str, float]] = []
        self.start = self._last = time.perf_counter()

    def record_phase(self, point: str) -> None:
        now = time.perf_counter()
        self.phases.append((point, now - self._last))
        self._last = now


class ProfileMetrics:
    """The metrics of one schedulerName."""

    def __init__(self, profile: str) -> None:
        results = ("scheduled", "unschedulable", "error")
        self._attempts = {result: ATTEMPTS.labels(result, profile) for result in results}
        self._attempt_s = {result: ATTEMPT_S.labels(result, profile) for result in results}
        self._bind_s = {result: POINT_S.labels("Bind", result, profile) for result in ("Success", "Error")}
        self._profile = profile

    def decision(self, timing: DecisionTiming, instructions: Sequence[Instruction]) -> None:
        """Count a decision; one with a Binding becomes an attempt in `bind`."""
        duration_s = time.perf_counter() - timing.start
        DECISION_S.observe(duration_s)
        is_placed = any(isinstance(instruction, Bind | PreBind) for instruction in instructions)
        if not is_placed:
            self._attempt("unschedulable", duration_s)
        for point, phase_s in timing.phases:
            # Only the last phase has rejected the pod.
            status = "Success" if is_placed or point != timing.phases[-1][0] else "Unschedulable"
            _point_s(point, status, self._profile).observe(phase_s)

    def bind(self, outcome: Outcome, duration_s: float) -> None:
        is_bound = outcome.kind == "bound"
        _binds(outcome.kind).inc()
        self._bind_s["Success" if is_bound else "Error"].observe(duration_s)
        self._attempt("scheduled" if is_bound else "error", duration_s)

    def success(self, queue_s: float, attempts: int) -> None:
        """Count a pod that was bound, with its time in the queue."""
        _waited_s(str(attempts) if attempts < _MAX_ATTEMPTS else f"{_MAX_ATTEMPTS}+").observe(queue_s)
        TRIES.observe(attempts)

    def _attempt(self, result: str, duration_s: float) -> None:
        self._attempts[result].inc()
        self._attempt_s[result].observe(duration_s)


# Our queue names to kube-scheduler's; a pod in flight is being bound, which kube-scheduler does not count as pending.
_QUEUES = {"in_flight": "binding"}


class _MachineCollector(Collector):
    """Gauges that are derived from the machine when they are read, so that no second count can become wrong."""

    def __init__(self, machine: Machine) -> None:
        self._machine = machine

    def describe(self) -> Iterable[GaugeMetricFamily]:
        return []

    def collect(self) -> Iterable[Metric]:
        machine, disputes = self._machine, self._machine.vf_disputes.dispute_counts
        depths = {_QUEUES.get(place, place): count for place, count in machine.pending_pods.depths().items()}
        yield _gauge("scheduler_pending_pods", "Number of pending pods, by queue", "queue", depths)
        arrivals = CounterMetricFamily(
            "scheduler_queue_incoming_pods",
            "Number of pods added to scheduling queues, by event and queue",
            labels=["queue", "event"],
        )
        for (place, event), count in machine.queue.arrivals.items():
            arrivals.add_metric([_QUEUES.get(place, place), event], count)
        yield arrivals
        yield from self._groups()
        yield GaugeMetricFamily(
            "mooring_disputed_vfs", "Number of VFs that more than one live pod claims", disputes[VFS]
        )
        yield CounterMetricFamily(
            "mooring_placement_budget_exhausted",
            "Number of placement searches on one node that ran out of steps",
            machine.budget_spent,
        )
        yield from self._networks()
        pools, rows = machine.cache.nodes.unit_pools, machine.cache.nodes.all_rows()
        free_units = {kind: sum(len(column[row].units.free) for row in rows) for kind, column in pools.items()}
        yield _gauge("mooring_free_units", "Number of free units of other kinds, by kind", "kind", free_units)
        yield _gauge(
            "mooring_disputed_units",
            "Number of units of other kinds that more than one live pod claims",
            "kind",
            {kind: disputes[kind] for kind in pools},
        )
        yield _gauge(
            "mooring_edited_rates",
            "Number of running pods with changed rates that are not in force, by state",
            "state",
            machine.rate_changes.states(),
        )
        yield GaugeMetricFamily(
            "mooring_rates_late_since_timestamp_seconds",
            "Time at which the oldest rates not yet in force were allocated, as UNIX time; 0 if there are none",
            machine.rate_changes.late_start() or 0,
        )
        faults = (machine.cache.nodes.models[row][0] for row in rows)
        yield _gauge(
            "mooring_nodes_without_inventory",
            "Number of nodes without a usable inventory, by reason",
            "reason",
            collections.Counter(FAULTS[fault] for fault in faults if fault is not None),
        )

    def _groups(self) -> Iterable[Metric]:
        scheduling, states = self._machine.group_scheduling, self._machine.pending_groups.counts()
        vfs = collections.Counter(dict.fromkeys(get_args(Cause), 0))
        for reservation in self._machine.reservations.all():
            assignments = (room.assignment for room in reservation.rooms.values())
            vfs[reservation.cause] += sum(len(assignment.vfs) for assignment in assignments if assignment)
        yield _gauge("mooring_reserved_vfs", "Number of VFs for which room is reserved, by cause", "cause", vfs)
        yield _gauge("mooring_waiting_groups", "Number of groups with waiting members, by state", "state", states)
        decisions = CounterMetricFamily(
            "mooring_group_decisions", "Number of decisions about groups, by result", labels=["result"]
        )
        for result, count in scheduling.decisions.items():
            decisions.add_metric([result], count)
        yield decisions
        yield CounterMetricFamily(
            "mooring_group_members_placed", "Number of group members placed", scheduling.placement_count
        )

    def _networks(self) -> Iterable[GaugeMetricFamily]:
        vfs, rates = collections.Counter[str](), collections.Counter[str]()
        nodes = self._machine.cache.nodes
        for row in nodes.all_rows():
            fault, free_vfs = nodes.models[row][0], nodes.free_vfs_of_row[row]
            for pf, capacity in zip(free_vfs.pfs, free_vfs.capacities, strict=True) if fault is None else ():
                vfs[pf.network] += capacity.vfs
                rates[pf.network] += max(capacity.mbps, 0) * 1_000_000
        yield _gauge("mooring_free_vfs", "Number of free VFs, by network", "network", vfs)
        yield _gauge("mooring_free_bits_per_second", "Unreserved rate in bits per second, by network", "network", rates)


def _gauge(name: str, text: str, label: str, values: Mapping[LabelT, int]) -> GaugeMetricFamily:
    family = GaugeMetricFamily(name, text, labels=[label])
    for value, count in values.items():
        family.add_metric([value], count)
    return family


def expose(machine: Machine) -> None:
    """Register the gauges of the machine's state; once for each process."""
    REGISTRY.register(_MachineCollector(machine))

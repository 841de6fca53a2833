"""The machine's instructions, as values that the server carries out."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Literal

import msgspec

from mooring.annotations.rates import PodRates
from scheduler.cache.assigned_pod import AssignedPod
from scheduler.cache.volumes.plan import VolumePlan
from scheduler.cycle.decisions import Bind, Why
from scheduler.kube.objects import Pod
from scheduler.kube.outcomes import Outcome
from scheduler.kube.workload_objects import PodGroup

Subject = Literal["pod", "node", "inventory", "assignment", "dispute", "cluster_objects", "constraint", "storage"]
EvictionCause = Literal["NeverStarts", "HalfGroup", "Preempted", "LostVfs"]
_RequestReason = Literal["Scheduled", "Unschedulable", "InvalidRequest", "DisputedVf", "DisputedUnit", "NoAssignment"]
_RatesReason = Literal["RatesRefused", "RatesDeferred", "RatesInfeasible", "RatesAllocated", "RatesInForce"]
ReportReason = Literal[_RequestReason, EvictionCause, _RatesReason]


class Report(msgspec.Struct, frozen=True):
    """Report to a pod's owner by an event and, while the pod waits, by its PodScheduled condition."""

    pod: Pod
    reason: ReportReason
    message: str
    why: Why = msgspec.field(default_factory=lambda: {"v": 1})
    # The node to write as the pod's nominated node; empty removes it, None leaves it unchanged.
    nominated: str | None = None
    # The preemptor.
    related: Pod | None = None


@dataclass(frozen=True, slots=True)
class ReportGroup:
    """Write the condition of a PodGroup: whether enough of its members have a node, or why not."""

    pod_group: PodGroup
    status: Literal["True", "False"]
    reason: Literal["Scheduled", "Unschedulable", "SchedulerError"]
    message: str


RatesReason = Literal["Refused", "Deferred", "Infeasible", "Allocated", "InForce"]


@dataclass(frozen=True, slots=True)
class ReportRates:
    """Write a pod's condition MooringRates: the state of the rates that it requests now. Status True is InForce."""

    pod: Pod
    reason: RatesReason
    message: str


@dataclass(frozen=True, slots=True)
class WriteRates:
    """Allocate changed rates to a running pod; ``pod`` has the resourceVersion for which this was decided.

    The same write sets the condition MooringRates to Allocated, with this message.
    """

    pod: Pod
    rates: PodRates
    annotations: Mapping[str, str]
    message: str


@dataclass(frozen=True, slots=True)
class WriteRatesResult:
    """The definite result. changed: the pod has another version, and nothing was written.

    gone: the pod no longer exists. refused: the API server rejects this write; ``reason`` is its text.
    """

    kind: Literal["written", "changed", "gone", "refused"]
    reason: str = ""


@dataclass(frozen=True, slots=True)
class Notice:
    """Something to log and count: an ignored object, an invalid assignment, a VF that is claimed twice."""

    subject: Subject
    event: str
    fields: Mapping[str, str] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Evict:
    """Evict a pod; its controller creates a new one. ``reason`` is for its owner, in an event named ``cause``.

    NeverStarts: it can never start on its node. HalfGroup: too few members of its group have been placed for too long.
    Preempted: other members of its group were preempted, and the group may only be disrupted as a whole. LostVfs: its
    VFs, or those of another member of its group, have been lost for too long.
    """

    pod: Pod
    reason: str
    cause: EvictionCause = "NeverStarts"


@dataclass(frozen=True, slots=True)
class PreBind:
    """Write what the pod's volumes need; the pod is bound after its volumes are bound."""

    decision: Bind
    plan: VolumePlan


@dataclass(frozen=True, slots=True)
class PreBindResult:
    """The result of these writes: the objects' new versions, or why one was rejected."""

    versions: Mapping[str, str] = field(default_factory=dict)
    fault: str = ""


@dataclass(frozen=True, slots=True)
class DeleteVictims:
    """Delete these pods on a node for a pod with higher priority."""

    pod: Pod
    node: str
    victims: tuple[AssignedPod, ...]


@dataclass(frozen=True, slots=True)
class DeleteVictimsResult:
    """The result: the deleted victims, and why the API server rejected the others; empty if it rejected none."""

    deleted: tuple[AssignedPod, ...]
    refused: str = ""


# Writes to the API server whose results the machine waits for.
Order = Bind | PreBind | Evict | DeleteVictims | WriteRates
Instruction = Order | Report | ReportGroup | ReportRates | Notice
# The result of an eviction. gone: the pod no longer exists, or another pod has its name.
EvictionResult = Literal["evicted", "gone", "refused"]
# Seconds after which an eviction is ordered again that the API server rejected (a disruption budget, an outage).
EVICTION_RETRY_S = 60.0
# The result types, in the same order as the writes above.
Result = Outcome | PreBindResult | EvictionResult | DeleteVictimsResult | WriteRatesResult

"""The condition ``MooringRates`` of a pod: the state of the last edit of its rates. Pure."""

from collections.abc import Mapping
from typing import Literal, get_args

from mooring.annotations.rates import PodRates
from scheduler.cache.assigned_pod import AssignedPod
from scheduler.cycle.instructions import RatesReason
from scheduler.kube.objects import Condition, OwnedMetadata, Pod, PodStatus

CONDITION = "MooringRates"
EVENTS: Mapping[
    RatesReason, Literal["RatesRefused", "RatesDeferred", "RatesInfeasible", "RatesAllocated", "RatesInForce"]
] = {
    "Refused": "RatesRefused",
    "Deferred": "RatesDeferred",
    "Infeasible": "RatesInfeasible",
    "Allocated": "RatesAllocated",
    "InForce": "RatesInForce",
}
# A reason and a message.
RatesReport = tuple[RatesReason, str]


def allocation_message(rates: PodRates) -> str:
    return f"allocated as generation {rates.generation}: not yet in force on node {rates.node}"


def in_force_report(node: str) -> RatesReport:
    return "InForce", f"in force on node {node}: set, and read back from the PF"


def no_change_message(node: str) -> str:
    return f"node {node} does not support rate changes of running pods"


def no_change_report(rates: PodRates) -> RatesReport:
    """Report allocated rates on a node that does not support rate changes: an earlier version may set the assigned
    ones.
    """
    rule = f"the largest of generation {rates.generation}, the previous rates and the assigned rates stays reserved"
    return "Infeasible", f"{no_change_message(rates.node)}: {rule}"


def says_in_force(condition: Condition | None) -> bool:
    return condition is not None and condition.reason == "InForce"


def is_open(condition: Condition | None) -> bool:
    """Return whether a condition reports that the previously requested rates are not in force."""
    return condition is not None and condition.reason != "InForce"


def report_of(condition: Condition | None) -> RatesReport | None:
    """Return the reason and message of a condition."""
    reason = next(
        (value for value in get_args(RatesReason) if condition is not None and value == condition.reason), None
    )
    return None if condition is None or reason is None else (reason, condition.message or "")


def transition_time(condition: Condition | None, reason: RatesReason) -> str:
    """Return since when the API server shows a reason, as an RFC 3339 time; empty if it shows another or none."""
    return (condition.last_transition_time or "") if condition is not None and condition.reason == reason else ""


def reference(pod: Pod, condition: Condition | None) -> Pod:
    """Return the part of a pod that writes about it need: the pod object itself is not kept."""
    source = pod.metadata
    metadata = OwnedMetadata(source.name, source.namespace, source.uid, source.resource_version)
    return Pod(metadata, status=PodStatus(conditions=[condition] if condition is not None else None))


def pod_of(assigned_pod: AssignedPod) -> Pod:
    """Return the same without the pod's object, and so without its condition."""
    namespace, _, name = assigned_pod.pod.partition("/")
    return Pod(OwnedMetadata(name, namespace, assigned_pod.uid, assigned_pod.version))

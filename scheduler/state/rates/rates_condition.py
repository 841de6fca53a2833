"""The condition ``MooringRates`` of a pod: what became of the last edit of its rates. Pure."""

from collections.abc import Mapping
from typing import Literal, get_args

from mooring.annotations.rates import PodRates
from scheduler.cache.cache import AssignedPod
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
Told = tuple[RatesReason, str]


def allocated(rates: PodRates) -> str:
    return f"allocated as generation {rates.generation}: node {rates.node} has not put it in force yet"


def in_force(node: str) -> Told:
    return "InForce", f"in force on node {node}"


def changes_none(node: str) -> str:
    return f"node {node} changes no rates of running pods"


def not_known(rates: PodRates) -> Told:
    """Return what is told of allocated rates whose node changes none: an earlier version may set the assignment's."""
    rule = f"the largest of generation {rates.generation}, the rates before it and the assignment's stays reserved"
    return "Infeasible", f"{changes_none(rates.node)}: {rule}"


def is_told(shown: Condition | None) -> bool:
    """Return whether a condition says that what the pod asks for is in force."""
    return shown is not None and shown.reason == "InForce"


def is_open(shown: Condition | None) -> bool:
    """Return whether a condition says of what the pod asked for before that it is not in force."""
    return shown is not None and shown.reason != "InForce"


def told(shown: Condition | None) -> Told | None:
    """Return what a condition says."""
    reason = next((one for one in get_args(RatesReason) if shown is not None and one == shown.reason), None)
    return None if shown is None or reason is None else (reason, shown.message or "")


def shown_since(shown: Condition | None, reason: RatesReason) -> str:
    """Return since when the API server shows a reason, as an RFC 3339 time; empty if it shows another or none."""
    return (shown.last_transition_time or "") if shown is not None and shown.reason == reason else ""


def reference(pod: Pod, shown: Condition | None) -> Pod:
    """Return as much of a pod as writes about it need: the pod object itself is not kept."""
    known = pod.metadata
    metadata = OwnedMetadata(known.name, known.namespace, known.uid, known.resource_version)
    return Pod(metadata, status=PodStatus(conditions=[shown] if shown is not None else None))


def pod_of(assigned: AssignedPod) -> Pod:
    """Return the same of a pod whose object is not at hand; its condition is not known."""
    namespace, _, name = assigned.pod.partition("/")
    return Pod(OwnedMetadata(name, namespace, assigned.uid, assigned.version))

"""The rates of one pod: what it requests, whether it can have that now, whether its node has put it in force, and the
condition ``MooringRates`` that reports it. Pure.
"""

from collections.abc import Mapping
from typing import Literal

from mooring import names
from mooring.annotations.rates import LAST_GENERATION, PodRates, VfRates, assigned_rates
from mooring.annotations.request import read_request
from mooring.errors import AnnotationError
from scheduler.cache.assigned_pod import AssignedPod
from scheduler.cache.cache import Cache
from scheduler.cycle.instructions import RatesReason
from scheduler.kube.objects import Condition, OwnedMetadata, Pod, PodStatus
from scheduler.kube.outcomes import Refused
from scheduler.pending.reservations import Reservations
from scheduler.placement import rate_change
from scheduler.placement.rate_change import Fits, Misfit
from scheduler.placement.vf_accounting import FreeVfs
from scheduler.plugins.device_rules.rdma_vfs import FAULTS

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


def _no_change_message(node: str) -> str:
    return f"node {node} does not support rate changes of running pods"


def allocation_report(assigned_pod: AssignedPod, cache: Cache) -> RatesReport:
    rates = assigned_pod.rates
    if rates is not None and not supports_changes(rates.node, cache):
        # An earlier version may set the assigned rates there.
        rule = f"the largest of generation {rates.generation}, the previous rates and the assigned rates stays reserved"
        return "Infeasible", f"{_no_change_message(rates.node)}: {rule}"
    if rates is not None and not is_in_force(assigned_pod, cache):
        return "Allocated", allocation_message(rates)
    return in_force_report(assigned_pod.node)


def read_report(condition: Condition) -> RatesReport | None:
    return next(((reason, condition.message or "") for reason in EVENTS if reason == condition.reason), None)


def transition_time(condition: Condition | None, reason: RatesReason) -> str:
    """Return since when the API server shows a reason, as an RFC 3339 time; empty if it shows another or none."""
    return (condition.last_transition_time or "") if condition is not None and condition.reason == reason else ""


def reference(pod: Pod, condition: Condition | None) -> Pod:
    """Return the part of a pod that writes about it need: the pod object itself is not kept."""
    source = pod.metadata
    metadata = OwnedMetadata(source.name, source.namespace, source.uid, source.resource_version)
    return Pod(metadata, status=PodStatus(conditions=[condition] if condition is not None else None))


def read_new_rates(pod: Pod, assigned_pod: AssignedPod, cache: Cache) -> tuple[VfRates, ...] | Refused | None:
    """Return the rates that a pod requests, or why they are rejected; None if nothing is to be done or reported."""
    assignment, text = assigned_pod.assignment, pod.annotations.get(names.REQUEST)
    if assignment is None or pod.metadata.deletion_timestamp is not None or not (assignment.vfs or text):
        return None
    allocation = assigned_pod.rates.rates if assigned_pod.rates is not None else None
    condition = pod.condition(CONDITION)
    shows_in_force = condition is not None and condition.reason == "InForce"
    try:
        if text is None and names.RIT_REQUEST not in pod.annotations:
            return rate_change.wanted_rates(None, assignment)
        request = read_request({names.REQUEST: text}) if text is not None else None
        if allocation is None and (request is None or rate_change.is_as_assigned(request.interfaces, assignment.vfs)):
            return assigned_rates(assignment) if condition is not None and not shows_in_force else None
        new_rates = rate_change.wanted_rates(request, assignment) if request is not None else allocation
    except AnnotationError as error:
        return Refused(str(error))
    is_settled = new_rates == allocation and is_in_force(assigned_pod, cache) and shows_in_force
    return None if is_settled else new_rates


def judge(
    assigned_pod: AssignedPod,
    allocation: tuple[VfRates, ...],
    new_rates: tuple[VfRates, ...],
    cache: Cache,
    reservations: Reservations,
) -> Fits | Misfit:
    """Return whether a pod's VFs can have these rates in place of the allocated ones."""
    assert assigned_pod.assignment is not None, "only a pod with VFs has rates"
    if not supports_changes(assigned_pod.node, cache):
        return Misfit("Infeasible", _no_change_message(assigned_pod.node))
    if newest_generation(assigned_pod, cache) >= LAST_GENERATION:
        return Misfit("Infeasible", f"node {assigned_pod.node} reports that the last generation is in force")
    limit = assigned_pod.resources.get(names.RESERVED_MBPS)
    if limit is not None and (reason := rate_change.contradicts_limit(limit, new_rates)):
        return Misfit("Infeasible", reason)
    reserved = assigned_pod.reserved
    free_vfs = _beside_nominated_pods(assigned_pod, cache, reservations)
    outcome = rate_change.judge_rates(assigned_pod.assignment, allocation, new_rates, reserved, free_vfs)
    fault = cache.nodes.models[cache.nodes.row_of[assigned_pod.node]][0]
    if isinstance(outcome, Fits) and outcome.reserved != reserved and fault is not None:
        return Misfit("Deferred", f"node {assigned_pod.node}: {FAULTS[fault]}")
    return outcome


def _beside_nominated_pods(assigned_pod: AssignedPod, cache: Cache, reservations: Reservations) -> FreeVfs:
    accounting = cache.vf_accounting(assigned_pod.node).copy()
    for nominated_pod in reservations.on(assigned_pod.node) if reservations else []:
        if nominated_pod.priority >= assigned_pod.priority and (claim := nominated_pod.claim) is not None:
            accounting.add(claim)
    return accounting.free_vfs


def supports_changes(node: str, cache: Cache) -> bool:
    node_info = cache.node(node)
    return node_info is not None and node_info.rates_in_force is not None


def is_in_force(assigned_pod: AssignedPod, cache: Cache) -> bool:
    return assigned_pod.rates is None or _generation_in_force(assigned_pod, cache) == assigned_pod.rates.generation


def may_apply(assigned_pod: AssignedPod, cache: Cache) -> bool:
    """Return whether a pod's node has not put the allocated rates in force, but still may."""
    return supports_changes(assigned_pod.node, cache) and not is_in_force(assigned_pod, cache)


def newest_generation(assigned_pod: AssignedPod, cache: Cache) -> int:
    """Return the generation that is allocated, or in force if that is newer; 0 for none."""
    generation = assigned_pod.rates.generation if assigned_pod.rates is not None else 0
    return max(generation, _generation_in_force(assigned_pod, cache) or 0)


def _generation_in_force(assigned_pod: AssignedPod, cache: Cache) -> int | None:
    node = cache.node(assigned_pod.node)
    return (node.rates_in_force or {}).get(assigned_pod.uid) if node is not None else None

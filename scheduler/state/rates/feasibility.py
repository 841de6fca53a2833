"""Whether a running pod can have changed rates now, given the pods that are nominated on its node, and whether its node
has put the allocated ones in force. Pure.
"""

from mooring import names
from mooring.annotations.rates import LAST_GENERATION, VfRates
from scheduler.cache.assigned_pod import AssignedPod
from scheduler.cache.cache import Cache
from scheduler.pending.reservations import Reservations
from scheduler.placement.rate_change import Fits, Misfit, contradicts_limit, judge_rates
from scheduler.placement.vf_accounting import FreeVfs
from scheduler.plugins.device_rules.rdma_vfs import FAULTS
from scheduler.state.rates.rates_condition import no_change_message


def judge(
    assigned_pod: AssignedPod,
    allocated: tuple[VfRates, ...],
    new_rates: tuple[VfRates, ...],
    cache: Cache,
    reservations: Reservations,
) -> Fits | Misfit:
    """Return whether a pod's VFs can have these rates in place of the allocated ones."""
    assert assigned_pod.assignment is not None, "only a pod with VFs has rates"
    if not changes_rates(assigned_pod.node, cache):
        return Misfit("Infeasible", no_change_message(assigned_pod.node))
    if newest_generation(assigned_pod, cache) >= LAST_GENERATION:
        return Misfit("Infeasible", f"node {assigned_pod.node} reports that the last generation is in force")
    limit = assigned_pod.resources.get(names.RESERVED_MBPS)
    if limit is not None and (reason := contradicts_limit(limit, new_rates)):
        return Misfit("Infeasible", reason)
    reserved = assigned_pod.reserved
    free_vfs = _beside_nominated_pods(assigned_pod, cache, reservations)
    outcome = judge_rates(assigned_pod.assignment, allocated, new_rates, reserved, free_vfs)
    fault = cache.nodes.models[cache.nodes.row_of[assigned_pod.node]][0]
    if isinstance(outcome, Fits) and outcome.reserved != reserved and fault is not None:
        return Misfit("Deferred", f"node {assigned_pod.node}: {FAULTS[fault]}")
    return outcome


def _beside_nominated_pods(assigned_pod: AssignedPod, cache: Cache, reservations: Reservations) -> FreeVfs:
    """Return what remains on a pod's node beside the nominated pods there of the same or a higher priority."""
    accounting = cache.vf_accounting(assigned_pod.node).copy()
    for nominated_pod in reservations.on(assigned_pod.node) if reservations else []:
        if nominated_pod.priority >= assigned_pod.priority and (claim := nominated_pod.claim) is not None:
            accounting.add(claim)
    return accounting.free_vfs


def changes_rates(node: str, cache: Cache) -> bool:
    node_info = cache.node(node)
    return node_info is not None and node_info.rates_in_force is not None


def is_in_force(assigned_pod: AssignedPod, cache: Cache) -> bool:
    return assigned_pod.rates is None or _generation_in_force(assigned_pod, cache) == assigned_pod.rates.generation


def may_apply(assigned_pod: AssignedPod, cache: Cache) -> bool:
    """Return whether a pod's node has not put the allocated rates in force, but still may."""
    return changes_rates(assigned_pod.node, cache) and not is_in_force(assigned_pod, cache)


def newest_generation(assigned_pod: AssignedPod, cache: Cache) -> int:
    """Return the generation that is allocated, or in force if that is newer; 0 for none."""
    generation = assigned_pod.rates.generation if assigned_pod.rates is not None else 0
    return max(generation, _generation_in_force(assigned_pod, cache) or 0)


def _generation_in_force(assigned_pod: AssignedPod, cache: Cache) -> int | None:
    node = cache.node(assigned_pod.node)
    return (node.rates_in_force or {}).get(assigned_pod.uid) if node is not None else None

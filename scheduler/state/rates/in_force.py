"""Which of a pod's allocated rates its node has put in force. Pure."""

from scheduler.cache.assigned_pod import AssignedPod
from scheduler.cache.cache import Cache


def changes_rates(node: str, cache: Cache) -> bool:
    """Return whether a node supports rate changes of running pods."""
    node_info = cache.node(node)
    return node_info is not None and node_info.rates_in_force is not None


def is_in_force(assigned_pod: AssignedPod, cache: Cache) -> bool:
    """Return whether a pod's node has put the allocated rates in force."""
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

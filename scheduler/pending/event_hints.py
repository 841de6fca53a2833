"""Derive from a change of the cluster which events requeue unschedulable pods. Pure."""

from functools import reduce
from operator import gt, or_

from scheduler.cache.assigned_pod import AssignedPod, Difference
from scheduler.cache.node_info import NodeInfo
from scheduler.kube.cluster_event import NO_EVENT, ClusterEvent


def of_node(previous: NodeInfo | None, node_info: NodeInfo) -> ClusterEvent:
    """Return which relevant properties of a node changed; a heartbeat changes none."""
    if previous is None:
        return ClusterEvent.NODE_ADDED
    old_values, new_values = _values_by_event(previous), _values_by_event(node_info)
    return reduce(or_, (event for event in old_values if old_values[event] != new_values[event]), NO_EVENT)


def _values_by_event(node_info: NodeInfo) -> dict[ClusterEvent, object]:
    """Return by event the properties whose change is that event."""
    pfs = node_info.inventory.pfs if node_info.inventory else ()
    return {
        ClusterEvent.NODE_LABELS: node_info.labels,
        ClusterEvent.NODE_TAINTS: (node_info.taints, node_info.unschedulable),
        ClusterEvent.NODE_ALLOCATABLE: node_info.allocatable,
        ClusterEvent.NODE_INVENTORY: (pfs, node_info.fault, node_info.unready_since is None),
        ClusterEvent.NODE_UNITS: node_info.others,
        ClusterEvent.NODE_PROGRAMS: (node_info.programs, node_info.handlers),
        # Lowered rates reserve less once they are in force.
        ClusterEvent.VFS_FREED: node_info.rates_in_force,
    }


def of_assigned_pod(previous: AssignedPod | None, assigned_pod: AssignedPod, difference: Difference) -> ClusterEvent:
    """Return what changed about a bound pod that can help others; our own Binding or a status change helps none."""
    if previous is None:
        return ClusterEvent.POD_ASSIGNED
    if difference == "use" or (difference and _is_terminating(assigned_pod) and not _is_terminating(previous)):
        return of_departure(previous) | ClusterEvent.POD_LABELS | ClusterEvent.POD_ASSIGNED
    # The node may have reported lowered rates as in force before the pod's annotation was updated here.
    is_new = assigned_pod.claim_assignment is not previous.claim_assignment
    is_lower = is_new and any(map(gt, previous.reserved, assigned_pod.reserved))
    events = ClusterEvent.VFS_FREED if is_lower else NO_EVENT
    return events | ClusterEvent.POD_LABELS if difference else events


def _is_terminating(assigned_pod: AssignedPod) -> bool:
    """Return whether a pod no longer counts for spreading, because it terminates."""
    return assigned_pod.affinity_info is not None and assigned_pod.affinity_info.is_terminating


def of_departure(assigned_pod: AssignedPod) -> ClusterEvent:
    """Return what a pod releases that has left its node."""
    events, assignment = ClusterEvent.POD_GONE, assigned_pod.assignment
    events |= ClusterEvent.PORTS_FREED if assigned_pod.ports else NO_EVENT
    events |= ClusterEvent.VOLUMES_FREED if assigned_pod.volumes else NO_EVENT
    events |= ClusterEvent.VFS_FREED if assignment is not None and assignment.vfs else NO_EVENT
    return events | (ClusterEvent.UNITS_FREED if assignment is not None and assignment.ext else NO_EVENT)

"""Derive from a change of the cluster which events requeue unschedulable pods. Pure."""

from operator import gt

from scheduler.cache.assigned_pod import AssignedPod, Difference
from scheduler.cache.node_info import NodeInfo
from scheduler.kube.cluster_event import NO_EVENT, ClusterEvent


def of_node(previous: NodeInfo | None, node_info: NodeInfo) -> ClusterEvent:
    """Return which relevant properties of a node changed; a heartbeat changes none."""
    if previous is None:
        return ClusterEvent.NODE_ADDED
    events = NO_EVENT
    for cluster_event, old_value, new_value in (
        (ClusterEvent.NODE_LABELS, previous.labels, node_info.labels),
        (
            ClusterEvent.NODE_TAINTS,
            (previous.taints, previous.unschedulable),
            (node_info.taints, node_info.unschedulable),
        ),
        (ClusterEvent.NODE_ALLOCATABLE, previous.allocatable, node_info.allocatable),
        (ClusterEvent.NODE_INVENTORY, _offer(previous), _offer(node_info)),
        (ClusterEvent.NODE_UNITS, previous.others, node_info.others),
        # Lowered rates reserve less once they are in force.
        (ClusterEvent.VFS_FREED, previous.rates_in_force, node_info.rates_in_force),
    ):
        events |= cluster_event if old_value != new_value else NO_EVENT
    return events


def _offer(node_info: NodeInfo) -> tuple[object, ...]:
    # The versions of a node's programs are in its inventory too. No plugin reads them; a missing shim is a fault.
    pfs = node_info.inventory.pfs if node_info.inventory else ()
    return pfs, node_info.fault, node_info.unready_since is None


def of_assigned_pod(previous: AssignedPod | None, assigned_pod: AssignedPod, difference: Difference) -> ClusterEvent:
    """Return what changed about a bound pod that can help others; our own Binding or a status change helps none."""
    if previous is None:
        return ClusterEvent.POD_ASSIGNED
    if difference == "use" or (difference and _ends(previous, assigned_pod)):
        return of_leaving(previous) | ClusterEvent.POD_LABELS | ClusterEvent.POD_ASSIGNED
    # The node may have reported lowered rates as in force before the pod's annotation was updated here.
    events = ClusterEvent.VFS_FREED if _reserves_less(previous, assigned_pod) else NO_EVENT
    return events | (ClusterEvent.POD_LABELS if difference else NO_EVENT)


def _reserves_less(previous: AssignedPod, assigned_pod: AssignedPod) -> bool:
    """Return whether a VF of a pod reserves less than before, with all other use being equal."""
    return assigned_pod.reservation is not previous.reservation and any(
        map(gt, previous.reserved, assigned_pod.reserved)
    )


def _ends(previous: AssignedPod, assigned_pod: AssignedPod) -> bool:
    """Return whether a pod has started to terminate, so that it no longer counts for spreading."""
    return (
        assigned_pod.affinity_info is not None
        and assigned_pod.affinity_info.is_terminating
        and not (previous.affinity_info is not None and previous.affinity_info.is_terminating)
    )


def of_leaving(assigned_pod: AssignedPod) -> ClusterEvent:
    """Return what a pod releases that has left its node."""
    events, assignment = ClusterEvent.POD_GONE, assigned_pod.assignment
    events |= ClusterEvent.PORTS_FREED if assigned_pod.ports else NO_EVENT
    events |= ClusterEvent.VOLUMES_FREED if assigned_pod.volumes else NO_EVENT
    events |= ClusterEvent.VFS_FREED if assignment is not None and assignment.vfs else NO_EVENT
    return events | (ClusterEvent.UNITS_FREED if assignment is not None and assignment.ext else NO_EVENT)

"""What a change of the cluster can help with: the events that the queue requeues unschedulable pods by. Pure."""

from operator import gt

from scheduler.cache.cache import AssignedPod, Difference
from scheduler.cache.node_info import NodeInfo
from scheduler.kube.cluster_event import NO_EVENT, ClusterEvent


def of_node(known: NodeInfo | None, node_info: NodeInfo) -> ClusterEvent:
    """Return what changed about a node for the rules; a heartbeat changes nothing."""
    if known is None:
        return ClusterEvent.NODE_ADDED
    changed = NO_EVENT
    for cluster_event, before, after in (
        (ClusterEvent.NODE_LABELS, known.labels, node_info.labels),
        (ClusterEvent.NODE_TAINTS, (known.taints, known.unschedulable), (node_info.taints, node_info.unschedulable)),
        (ClusterEvent.NODE_ALLOCATABLE, known.allocatable, node_info.allocatable),
        (ClusterEvent.NODE_INVENTORY, _offer(known), _offer(node_info)),
        (ClusterEvent.NODE_UNITS, known.others, node_info.others),
        # What was lowered reserves less once it is in force.
        (ClusterEvent.VFS_FREED, known.rates_in_force, node_info.rates_in_force),
    ):
        changed |= cluster_event if before != after else NO_EVENT
    return changed


def _offer(node_info: NodeInfo) -> tuple[object, ...]:
    # The versions of a node's programs are in its inventory too. No plugin reads them; a missing shim is a fault.
    pfs = node_info.inventory.pfs if node_info.inventory else ()
    return pfs, node_info.fault, node_info.unready_since is None


def of_assigned_pod(known: AssignedPod | None, assigned_pod: AssignedPod, new: Difference) -> ClusterEvent:
    """Return what changed about a bound pod for the rules; our own bind or a status change helps no waiting pod."""
    if known is None:
        return ClusterEvent.POD_ASSIGNED
    if new == "use" or (new and _ends(known, assigned_pod)):
        return of_leaving(known) | ClusterEvent.POD_LABELS | ClusterEvent.POD_ASSIGNED
    # The node may have said that lowered rates are in force before the pod has shown them.
    freed = ClusterEvent.VFS_FREED if _reserves_less(known, assigned_pod) else NO_EVENT
    return freed | (ClusterEvent.POD_LABELS if new else NO_EVENT)


def _reserves_less(known: AssignedPod, assigned_pod: AssignedPod) -> bool:
    """Return whether a VF of a pod reserves less than before, its use being the same."""
    return assigned_pod.reservation is not known.reservation and any(map(gt, known.reserved, assigned_pod.reserved))


def _ends(known: AssignedPod, assigned_pod: AssignedPod) -> bool:
    """Return whether a pod has begun to terminate: it no longer counts for spreading."""
    return (
        assigned_pod.affinity_info is not None
        and assigned_pod.affinity_info.terminating
        and not (known.affinity_info is not None and known.affinity_info.terminating)
    )


def of_leaving(assigned_pod: AssignedPod) -> ClusterEvent:
    """Return what a pod frees that has left its node."""
    freed, assignment = ClusterEvent.POD_GONE, assigned_pod.assignment
    freed |= ClusterEvent.PORTS_FREED if assigned_pod.ports else NO_EVENT
    freed |= ClusterEvent.VOLUMES_FREED if assigned_pod.volumes else NO_EVENT
    freed |= ClusterEvent.VFS_FREED if assignment is not None and assignment.vfs else NO_EVENT
    return freed | (ClusterEvent.UNITS_FREED if assignment is not None and assignment.ext else NO_EVENT)

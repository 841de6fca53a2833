"""ClusterEvents: what happens to objects that can help a pod which fits nowhere."""

import enum


class ClusterEvent(enum.Flag):
    """What can help an unschedulable pod; kube-scheduler's ClusterEvents, as far as a plugin of ours asks for them."""

    NODE_ADDED = enum.auto()
    NODE_REMOVED = enum.auto()  # its pods no longer count: skew and objections may be gone with it
    NODE_LABELS = enum.auto()
    NODE_TAINTS = enum.auto()  # or it was made schedulable again
    NODE_ALLOCATABLE = enum.auto()
    NODE_INVENTORY = enum.auto()  # its VFs, or that they may be given: boot, readiness
    NODE_UNITS = enum.auto()  # its units of another kind
    POD_GONE = enum.auto()  # a pod left its node: cpu, memory and its place among the pods are free, its labels gone
    PORTS_FREED = enum.auto()  # and so are host ports
    VFS_FREED = enum.auto()  # and so are VFs and their rates
    UNITS_FREED = enum.auto()  # and so are units of another kind
    POD_ASSIGNED = enum.auto()  # a pod is on a node that was not there before: affinity, spread
    POD_LABELS = enum.auto()  # the labels of a pod on a node changed: affinity, spread
    NAMESPACE = enum.auto()  # a namespace is new or its labels changed: a namespaceSelector may take it
    CLAIM = enum.auto()  # one of the pod's own volume claims is new or changed
    VOLUME = enum.auto()  # a volume is new or changed
    STORAGE_CLASS = enum.auto()  # a storage class is new, or makes volumes for other nodes, or larger ones
    ATTACHMENTS = enum.auto()  # a volume was detached, or a node can attach more of them
    VOLUMES_FREED = enum.auto()  # a pod left its node that used claims or disks
    # Whatever a node can bring.
    NODE = NODE_ADDED | NODE_LABELS | NODE_TAINTS | NODE_ALLOCATABLE | NODE_INVENTORY | NODE_UNITS


NO_EVENT = ClusterEvent(0)
ANY_EVENT = ~NO_EVENT
# Room may become free when a pod leaves, when it is no longer kept for a nominated pod, and when more pods may go.
LEAVING = (
    ClusterEvent.POD_GONE
    | ClusterEvent.PORTS_FREED
    | ClusterEvent.VFS_FREED
    | ClusterEvent.UNITS_FREED
    | ClusterEvent.VOLUMES_FREED
)

"""Changes of objects that can help an unschedulable pod."""

import enum


class ClusterEvent(enum.Flag):
    """kube-scheduler's ClusterEvents, as far as a plugin here uses them."""

    NODE_ADDED = enum.auto()
    NODE_REMOVED = enum.auto()  # its pods no longer count, so skew and anti-affinity may change
    NODE_LABELS = enum.auto()
    NODE_TAINTS = enum.auto()  # or the node was made schedulable again
    NODE_ALLOCATABLE = enum.auto()
    NODE_INVENTORY = enum.auto()  # its VFs, or whether they may be assigned: boot, readiness
    NODE_UNITS = enum.auto()  # its units of another kind
    NODE_PROGRAMS = enum.auto()  # its programs or runtime handlers, or a RuntimeClass
    POD_GONE = enum.auto()  # a pod left its node: its cpu, memory and pod slot are free, its labels are gone
    PORTS_FREED = enum.auto()  # its host ports are free, too
    VFS_FREED = enum.auto()  # its VFs and their rates are free, too
    UNITS_FREED = enum.auto()  # its units of another kind are free, too
    POD_ASSIGNED = enum.auto()  # a pod is new on a node: affinity, spread
    POD_LABELS = enum.auto()  # the labels of a pod on a node changed: affinity, spread
    NAMESPACE = enum.auto()  # a namespace is new or its labels changed: a namespaceSelector may match it
    CLAIM = enum.auto()  # one of the pod's own volume claims is new or changed
    VOLUME = enum.auto()  # a volume is new or changed
    STORAGE_CLASS = enum.auto()  # a storage class is new, or allows volumes on other nodes, or larger ones
    ATTACHMENTS = enum.auto()  # a volume was detached, or a node can attach more of them
    VOLUMES_FREED = enum.auto()  # a pod left its node that used claims or disks
    # All changes of a node that can help.
    NODE = NODE_ADDED | NODE_LABELS | NODE_TAINTS | NODE_ALLOCATABLE | NODE_INVENTORY | NODE_UNITS | NODE_PROGRAMS
    # Room may become free when a pod leaves, when it is no longer reserved for a nominated pod, and when more pods may
    # be preempted.
    ROOM = POD_GONE | PORTS_FREED | VFS_FREED | UNITS_FREED | VOLUMES_FREED


NO_EVENT = ClusterEvent(0)
ANY_EVENT = ~NO_EVENT

"""NodeUnschedulable: a cordoned node accepts only pods that tolerate it."""

from scheduler.cache.node_columns import NodeColumns
from scheduler.kube.cluster_event import ClusterEvent
from scheduler.kube.pod_info import PodInfo
from scheduler.plugins.interface import FilterPlugin, NodeFilter, refuse_where
from scheduler.plugins.node_rules.taint_toleration import Tolerations

_CORDONED = ("node.kubernetes.io/unschedulable", "", "NoSchedule")


def pre_filter(pod_info: PodInfo, nodes: NodeColumns) -> NodeFilter | None:
    if Tolerations(pod_info.pod.spec.tolerations or ()).cover(_CORDONED):
        return None
    return lambda rows, _: refuse_where(nodes.cordoned[rows], "node(s) were unschedulable")


FILTER = FilterPlugin("NodeUnschedulable", pre_filter, ClusterEvent.NODE_ADDED | ClusterEvent.NODE_TAINTS)

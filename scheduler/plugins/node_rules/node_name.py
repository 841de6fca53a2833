"""NodeName: a pod that names its node is placed only there."""

from scheduler.cache.node_columns import NodeColumns
from scheduler.kube.cluster_event import ClusterEvent
from scheduler.kube.pod_info import PodInfo
from scheduler.plugins.interface import FilterPlugin, NodeFilter, refuse_where


def pre_filter(pod_info: PodInfo, nodes: NodeColumns) -> NodeFilter | None:
    node_name = pod_info.pod.spec.node_name
    if not node_name:
        return None
    reason = "node(s) didn't match the requested node name"
    return lambda rows, _: refuse_where(rows != nodes.row_of.get(node_name, -1), reason)


FILTER = FilterPlugin("NodeName", pre_filter, ClusterEvent.NODE_ADDED)

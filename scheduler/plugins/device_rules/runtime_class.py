"""RuntimeClass: a pod with VFs or GPUs is placed only where the CRI shim gives them to its runtime handler's pods.

The shim rejects pods of other handlers, such as those of virtual machines, whose kernel cannot use a VF's devices. A
RuntimeClass that was not listed, and a node whose inventory names no handlers, reject no pod.
"""

from scheduler.cache.node_columns import NodeColumns
from scheduler.kube.cluster_event import ClusterEvent
from scheduler.kube.pod_info import PodInfo
from scheduler.plugins.interface import FilterPlugin, NodeFilter, refuse_by


def pre_filter(pod_info: PodInfo, nodes: NodeColumns) -> NodeFilter | None:
    handler = nodes.runtime_classes.get(pod_info.pod.spec.runtime_class_name or "")
    if handler is None or not (pod_info.interfaces or pod_info.wishes):
        return None

    def judge(handlers: frozenset[str] | None) -> str:
        is_accepted = handlers is None or handler in handlers
        return "" if is_accepted else f"node(s) gave no VFs to pods of runtime handler {handler!r}"

    return lambda rows, steps: refuse_by(nodes.handlers, judge, rows, ("handler", handler), steps)


FILTER = FilterPlugin("RuntimeClass", pre_filter, ClusterEvent.NODE_ADDED | ClusterEvent.NODE_INVENTORY)

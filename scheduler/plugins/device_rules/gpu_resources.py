"""GpuResources: on nodes where Mooring assigns GPUs, reject pods that request a device plugin's GPUs.

Two programs that assign the same GPUs, each with its own accounting, give one GPU to two pods. These nodes have an
inventory of GPUs; other nodes serve such pods.
"""

from mooring.gpu.assignment import KIND
from mooring.gpu.device_plugins import RESOURCES
from scheduler.cache.node_columns import NodeColumns
from scheduler.cache.unit_pools import UnitFault, UnitPool
from scheduler.kube.cluster_event import ClusterEvent
from scheduler.kube.pod_info import PodInfo
from scheduler.plugins.interface import FilterPlugin, NodeFilter, refuse_by


def pre_filter(pod_info: PodInfo, nodes: NodeColumns) -> NodeFilter | None:
    resource, column = _device_plugin_resource(pod_info), nodes.unit_pools.get(KIND)
    if not resource or column is None:
        return None
    return lambda rows, _: refuse_by(column, lambda unit_pool: _judge(resource, unit_pool), rows)


def refusal(pod_info: PodInfo, nodes: NodeColumns, row: int) -> str:
    """Return why a pod must not go to one node; empty if it may."""
    resource, column = _device_plugin_resource(pod_info), nodes.unit_pools.get(KIND)
    return _judge(resource, column[row]) if resource and column is not None else ""


def _device_plugin_resource(pod_info: PodInfo) -> str:
    return next((name for name in RESOURCES if pod_info.resources.get(name)), "")


def _judge(resource: str, unit_pool: UnitPool) -> str:
    gives = unit_pool.fault not in (UnitFault.NO_INVENTORY, UnitFault.NOT_READY)
    return f"node(s) offered GPUs as 'mooring.dev/gpu', not as {resource!r}" if gives else ""


FILTER = FilterPlugin("GpuResources", pre_filter, ClusterEvent.NODE_ADDED | ClusterEvent.NODE_UNITS)

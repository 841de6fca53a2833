"""Which pods a node's programs serve.

RuntimeClass: a pod with VFs or GPUs is placed only where the CRI shim gives them to its runtime handler's pods. The
shim rejects pods of other handlers, such as those of virtual machines, whose kernel cannot use a VF's devices. A
RuntimeClass that was not listed, and a node whose inventory names no handlers, reject no pod.

NodeRelease: a pod is placed only where the node's programs read every field that its assignment would have, because
they reject an assignment with any other. A field of the oldest supported release is read everywhere.

GpuResources: on nodes where Mooring assigns GPUs, reject pods that request a device plugin's GPUs. Two programs that
assign the same GPUs, each with its own accounting, give one GPU to two pods.
"""

import re
from collections.abc import Iterable

from mooring.annotations.assignment import FIRST_RELEASE, OLDEST_RELEASE
from mooring.annotations.inventory import CNI, CRI_SHIM
from mooring.annotations.request import VfRequest
from mooring.gpu.assignment import KIND
from mooring.gpu.device_plugins import RESOURCES
from scheduler.cache.node_columns import NodeColumns
from scheduler.cache.unit_pools import UnitFault, UnitPool
from scheduler.kube.cluster_event import ClusterEvent
from scheduler.kube.pod_info import PodInfo
from scheduler.plugins.interface import FilterPlugin, NodeFilter, refuse_by

_NUMBERS = re.compile(r"(\d{1,9})\.(\d{1,9})\.(\d{1,9})", re.ASCII)


def pre_filter_handler(pod_info: PodInfo, nodes: NodeColumns) -> NodeFilter | None:
    handler = nodes.runtime_classes.get(pod_info.pod.spec.runtime_class_name or "")
    if handler is None or not (pod_info.interfaces or pod_info.wishes):
        return None

    def judge(handlers: frozenset[str] | None) -> str:
        is_accepted = handlers is None or handler in handlers
        return "" if is_accepted else f"node(s) gave no VFs to pods of runtime handler {handler!r}"

    return lambda rows, steps: refuse_by(nodes.handlers, judge, rows, ("handler", handler), steps)


def pre_filter_release(pod_info: PodInfo, nodes: NodeColumns) -> NodeFilter | None:
    first_releases = ((FIRST_RELEASE[name], name) for name in _fields(pod_info.interfaces))
    newer_fields = [(_release(first), name, first) for first, name in first_releases if first != OLDEST_RELEASE]
    if not newer_fields:
        return None
    release, field, first = max(newer_fields)

    def judge(programs: tuple[tuple[str, str], ...]) -> str:
        versions = dict(programs)
        for program in (CNI, CRI_SHIM):
            if _release(versions.get(program, "")) < release:
                version = versions.get(program, "unknown")
                return f"node(s) ran {program} {version}, which does not understand {field!r} (since {first})"
        return ""

    return lambda rows, steps: refuse_by(nodes.programs, judge, rows, ("release", field, first), steps)


def _fields(interfaces: Iterable[VfRequest]) -> set[str]:
    """Return the fields of an assignment that are there only because the pod requests them."""
    fields = {name for interface in interfaces for name in interface.settings.to_fields()}
    for name in ("name", "containers", "netdev"):
        if any(getattr(interface, name) is not None for interface in interfaces):
            fields.add(name)
    return fields


def _release(version: str) -> tuple[int, ...]:
    """Return the numbers of a version; () for one without, which is older than all others."""
    numbers = _NUMBERS.match(version)
    return tuple(map(int, numbers.groups())) if numbers else ()


def pre_filter_gpus(pod_info: PodInfo, nodes: NodeColumns) -> NodeFilter | None:
    resource, column = _device_plugin_resource(pod_info), nodes.unit_pools.get(KIND)
    if not resource or column is None:
        return None
    return lambda rows, _: refuse_by(column, lambda unit_pool: _judge_gpus(resource, unit_pool), rows)


def gpu_refusal(pod_info: PodInfo, nodes: NodeColumns, row: int) -> str:
    """Return why a pod that requests a device plugin's GPUs must not go to one node; empty if it may."""
    resource, column = _device_plugin_resource(pod_info), nodes.unit_pools.get(KIND)
    return _judge_gpus(resource, column[row]) if resource and column is not None else ""


def _device_plugin_resource(pod_info: PodInfo) -> str:
    return next((name for name in RESOURCES if pod_info.resources.get(name)), "")


def _judge_gpus(resource: str, unit_pool: UnitPool) -> str:
    # A node that is not Ready, or whose inventory cannot be read, still has assigned GPUs.
    gives = unit_pool.fault is not UnitFault.NO_INVENTORY
    return f"node(s) offered GPUs as 'mooring.dev/gpu', not as {resource!r}" if gives else ""


_REQUEUE_ON = ClusterEvent.NODE_PROGRAMS
RUNTIME_CLASS = FilterPlugin("RuntimeClass", pre_filter_handler, _REQUEUE_ON)
NODE_RELEASE = FilterPlugin("NodeRelease", pre_filter_release, _REQUEUE_ON)
GPU_RESOURCES = FilterPlugin("GpuResources", pre_filter_gpus, ClusterEvent.NODE_UNITS)

"""NodeRelease: a pod is placed only where the node's programs read every field that its assignment would have.

Node programs reject an assignment with a field that they do not know. A field of the oldest supported release is read
everywhere. Of a later one the node's inventory must show that CNI plugin and CRI shim have that release.
"""

import re
from collections.abc import Iterable

from mooring.annotations.assignment import FIRST_RELEASE, OLDEST_RELEASE
from mooring.annotations.inventory import CNI, CRI_SHIM
from mooring.annotations.request import VfRequest
from scheduler.cache.node_columns import NodeColumns
from scheduler.kube.cluster_event import ClusterEvent
from scheduler.kube.pod_info import PodInfo
from scheduler.plugins.interface import FilterPlugin, NodeFilter, refuse_by

_NUMBERS = re.compile(r"(\d{1,9})\.(\d{1,9})\.(\d{1,9})", re.ASCII)


def pre_filter(pod_info: PodInfo, nodes: NodeColumns) -> NodeFilter | None:
    late_fields = {
        name: FIRST_RELEASE[name] for name in _fields(pod_info.interfaces) if FIRST_RELEASE[name] != OLDEST_RELEASE
    }
    if not late_fields:
        return None
    field, first = max(late_fields.items(), key=lambda item: (_release(item[1]), item[0]))

    def judge(programs: tuple[tuple[str, str], ...]) -> str:
        versions = dict(programs)
        for program in (CNI, CRI_SHIM):
            if _release(versions.get(program, "")) < _release(first):
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


FILTER = FilterPlugin("NodeRelease", pre_filter, ClusterEvent.NODE_ADDED | ClusterEvent.NODE_INVENTORY)

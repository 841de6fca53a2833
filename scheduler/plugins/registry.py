"""All plugins: their extension points, and the weights of their scores.

They have the order and weights of kube-scheduler's default profile (apis/config/v1/default_plugins.go); Mooring's own
plugins are last. To add a plugin, add a file below this folder and a line here. Plugins of one kind run in this order.
Filters of a node's properties run first, then those of its use, of volumes, and of other pods.
"""

from collections.abc import Mapping
from importlib import import_module
from types import ModuleType
from typing import Any, TypeVar

from scheduler.plugins.interface import (
    ClusterFilterPlugin,
    DryRunPlugin,
    ExtensionPoint,
    FilterPlugin,
    ReservePlugin,
    ScorePlugin,
    UsageFilterPlugin,
    UsageScorePlugin,
    VolumeFilterPlugin,
)

_Point = TypeVar("_Point", bound=ExtensionPoint[Any])


class Plugin:
    """A plugin's extension points under one name; its scores count ``weight`` times.

    ``module`` is its file below this folder, as Python names it, and ``points`` are names in it. The file is imported
    here, so that a plugin has one line in this module.
    """

    def __init__(self, module: str, *points: str, weight: int = 0) -> None:
        file = import_module(f"scheduler.plugins.{module}")
        self.points: tuple[ExtensionPoint[Any], ...] = tuple(_extension_point(file, name) for name in points)
        self.name = self.points[0].name
        self.weight = weight


def _extension_point(file: ModuleType, name: str) -> ExtensionPoint[Any]:
    value = getattr(file, name, None)
    assert isinstance(value, ExtensionPoint), f"{file.__name__}: {name} is {value!r}, not an extension point"
    return value


# A filter of other pods scores too.
PLUGINS = (
    Plugin("taint_toleration", "NODE_UNSCHEDULABLE"),
    Plugin("node_affinity", "NODE_NAME"),
    Plugin("taint_toleration", "FILTER", "SCORE", weight=3),
    Plugin("node_affinity", "FILTER", "SCORE", weight=2),
    Plugin("node_ports", "FILTER", "DRY_RUN"),
    Plugin("node_resources", "FILTER", "SCORE", "DRY_RUN", weight=1),
    Plugin("volume_rules.volume_limits", "RESTRICTIONS"),
    Plugin("volume_rules.volume_limits", "NODE_LIMITS"),
    Plugin("volume_rules.volume_binding", "FILTER"),
    Plugin("volume_rules.volume_limits", "ZONE"),
    Plugin("pod_topology_spread", "FILTER", weight=2),
    Plugin("inter_pod_affinity", "FILTER", weight=2),
    Plugin("node_resources", "BALANCED_ALLOCATION", weight=1),
    Plugin("image_locality", "SCORE", weight=1),
    Plugin("device_rules.rdma_vfs", "INVENTORY_FILTER", "FILTER", "SCORE", "RESERVE", "DRY_RUN", weight=2),
    Plugin("device_rules.node_programs", "RUNTIME_CLASS"),
    Plugin("device_rules.node_programs", "NODE_RELEASE"),
    Plugin("device_rules.node_programs", "GPU_RESOURCES"),
    Plugin("device_rules.constraints", "FILTER", "SCORE", "RESERVE", "DRY_RUN", weight=2),
)


def _points(kind: type[_Point]) -> tuple[_Point, ...]:
    return tuple(point for plugin in PLUGINS for point in plugin.points if isinstance(point, kind))


WEIGHT_OF: Mapping[str, int] = {plugin.name: plugin.weight for plugin in PLUGINS}
NODE_FILTERS = _points(FilterPlugin)
USAGE_FILTERS = _points(UsageFilterPlugin)
VOLUME_FILTERS = _points(VolumeFilterPlugin)
CLUSTER_FILTERS = _points(ClusterFilterPlugin)
NODE_SCORES = _points(ScorePlugin)
USAGE_SCORES = _points(UsageScorePlugin)
RESERVES = _points(ReservePlugin)
DRY_RUNS = _points(DryRunPlugin)

"""All plugins: their extension points, and the weights of their scores.

They have the order and weights of kube-scheduler's default profile (apis/config/v1/default_plugins.go); Mooring's own
are last. A new plugin is a file beside this one, and its import and entry here. Plugins of one kind run in this order.
Filters of a node's properties run first, then those of its use, of volumes, and of other pods.
"""

from typing import TypeVar

from scheduler.plugins import (
    balanced_allocation,
    constraints,
    gpu_resources,
    image_locality,
    inter_pod_affinity,
    node_affinity,
    node_name,
    node_ports,
    node_resources_fit,
    node_unschedulable,
    node_volume_limits,
    pod_topology_spread,
    rdma_vfs,
    taint_toleration,
    volume_binding,
    volume_restrictions,
    volume_zone,
)
from scheduler.plugins.interface import (
    ClusterFilterPlugin,
    DryRunPlugin,
    FilterPlugin,
    ReservePlugin,
    ScorePlugin,
    UsageFilterPlugin,
    UsageScorePlugin,
    VolumeFilterPlugin,
)

ExtensionPoint = (
    FilterPlugin
    | UsageFilterPlugin
    | VolumeFilterPlugin
    | ClusterFilterPlugin
    | ScorePlugin
    | UsageScorePlugin
    | ReservePlugin
    | DryRunPlugin
)
_Point = TypeVar("_Point", bound=ExtensionPoint)


class Plugin:
    """A plugin's extension points under one name; its scores count ``weight`` times."""

    def __init__(self, *points: ExtensionPoint, weight: int = 0) -> None:
        self.name = points[0].name
        self.points = points
        self.weight = weight


# A filter of other pods scores too.
PLUGINS = (
    Plugin(node_unschedulable.FILTER),
    Plugin(node_name.FILTER),
    Plugin(taint_toleration.FILTER, taint_toleration.SCORE, weight=3),
    Plugin(node_affinity.FILTER, node_affinity.SCORE, weight=2),
    Plugin(node_ports.FILTER, node_ports.DRY_RUN),
    Plugin(node_resources_fit.FILTER, node_resources_fit.SCORE, node_resources_fit.DRY_RUN, weight=1),
    Plugin(volume_restrictions.FILTER),
    Plugin(node_volume_limits.FILTER),
    Plugin(volume_binding.FREE_FILTER, volume_binding.FILTER),
    Plugin(volume_zone.FILTER),
    Plugin(pod_topology_spread.FILTER, weight=2),
    Plugin(inter_pod_affinity.FILTER, weight=2),
    Plugin(balanced_allocation.SCORE, weight=1),
    Plugin(image_locality.SCORE, weight=1),
    Plugin(rdma_vfs.INVENTORY_FILTER, rdma_vfs.FILTER, rdma_vfs.SCORE, rdma_vfs.RESERVE, rdma_vfs.DRY_RUN, weight=2),
    Plugin(gpu_resources.FILTER),
    Plugin(constraints.FILTER, constraints.SCORE, constraints.RESERVE, constraints.DRY_RUN, weight=2),
)


def _points(kind: type[_Point]) -> tuple[_Point, ...]:
    return tuple(point for plugin in PLUGINS for point in plugin.points if isinstance(point, kind))


WEIGHT_OF = {plugin.name: plugin.weight for plugin in PLUGINS}
NODE_FILTERS = _points(FilterPlugin)
USAGE_FILTERS = _points(UsageFilterPlugin)
VOLUME_FILTERS = _points(VolumeFilterPlugin)
CLUSTER_FILTERS = _points(ClusterFilterPlugin)
NODE_SCORES = _points(ScorePlugin)
USAGE_SCORES = _points(UsageScorePlugin)
RESERVES = _points(ReservePlugin)
DRY_RUNS = _points(DryRunPlugin)

"""NodeResourcesBalancedAllocation: prefer nodes where cpu and memory will be used to similar shares.

The score is 100 minus the standard deviation of the shares. The plugin does not score a pod that requests neither.
Source: kube-scheduler's noderesources/balanced_allocation.go.
"""

from scheduler.cache.node_columns import CPU, MEMORY, NodeColumns
from scheduler.cache.node_view import Measure, NodeView
from scheduler.kube.pod_info import PodInfo
from scheduler.plugins.interface import UsageScorePlugin, UsageScorer


def balance(pod_info: PodInfo, nodes: NodeColumns) -> UsageScorer | None:
    cpu, memory = pod_info.resources.get("cpu", 0), pod_info.resources.get("memory", 0)
    if not cpu and not memory:
        return None

    def evenness(view: NodeView) -> Measure:
        # The standard deviation of two shares is half of their difference; of a single one it is 0.
        differ = abs(_share(view, CPU, cpu) - _share(view, MEMORY, memory))
        is_offered = (view.allocatable[CPU] > 0) & (view.allocatable[MEMORY] > 0)
        return view.truncate(100 - differ * 50 * is_offered)

    return evenness


def _share(view: NodeView, line: int, amount: int) -> Measure:
    allocatable = view.allocatable[line]
    return view.minimum((allocatable - view.free[line] + amount) / view.maximum(allocatable, 1), 1.0)


SCORE = UsageScorePlugin("NodeResourcesBalancedAllocation", balance)

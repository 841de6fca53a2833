"""NodeResourcesBalancedAllocation: prefer nodes where cpu and memory will be used to a similar share.

100 less the standard deviation of the shares. A pod that requests neither has no say. Source: kube-scheduler's
noderesources/balanced_allocation.go.
"""

from scheduler.cache.node_columns import CPU, MEMORY, Nodes
from scheduler.cache.node_view import Look, Measure
from scheduler.kube.pod_info import Task
from scheduler.plugins.interface import UsePreference, UseScorer


def balance(task: Task, nodes: Nodes) -> UseScorer | None:
    cpu, memory = task.resources.get("cpu", 0), task.resources.get("memory", 0)
    if not cpu and not memory:
        return None

    def evenness(look: Look) -> Measure:
        # The standard deviation of two shares is half of what they differ by; of a single one it is 0.
        differ = abs(_share(look, CPU, cpu) - _share(look, MEMORY, memory))
        both = (look.allocatable[CPU] > 0) & (look.allocatable[MEMORY] > 0)
        return look.whole(100 - differ * 50 * both)

    return evenness


def _share(look: Look, line: int, amount: int) -> Measure:
    allocatable = look.allocatable[line]
    return look.least((allocatable - look.left[line] + amount) / look.most(allocatable, 1), 1.0)


PREFERENCE = UsePreference("NodeResourcesBalancedAllocation", 1, balance)

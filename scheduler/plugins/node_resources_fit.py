"""NodeResourcesFit: cpu, memory, ephemeral storage, extended resources, and the number of pods.

The seeds' ``rdma-sriov/*`` resources count only on nodes that publish them: elsewhere the inventory says it better.
Scored as kube-scheduler's LeastAllocated does, over cpu and memory.
"""

from scheduler.cluster import NodeView
from scheduler.plugins.rule import PASSES, Filter, Preference, Rule
from scheduler.queue import Happening
from scheduler.task import Task

_SEEDS = "rdma-sriov/"
_SCORED = ("cpu", "memory")


def prepare(task: Task, _now: float) -> Filter | None:
    wanted = [(name, amount) for name, amount in sorted(task.resources.items()) if amount > 0]

    def refuse(node: NodeView) -> tuple[str, ...]:
        allocatable, used = node.facts.allocatable, node.used
        reasons = []
        if node.pods + 1 > allocatable.get("pods", 0):
            reasons.append("Too many pods")
        for name, amount in wanted:
            if name.startswith(_SEEDS) and name not in allocatable:
                continue
            if amount > allocatable.get(name, 0) - used.get(name, 0):
                reasons.append(f"Insufficient {name}")
        return tuple(reasons) if reasons else PASSES

    return refuse


def least_allocated(task: Task, node: NodeView) -> float:
    """Prefer nodes with the larger share of cpu and memory left, this pod included."""
    shares = []
    for name in _SCORED:
        allocatable = node.facts.allocatable.get(name, 0)
        left = allocatable - node.used.get(name, 0) - task.resources.get(name, 0)
        shares.append(100 * max(left, 0) / allocatable if allocatable > 0 else 0.0)
    return sum(shares) / len(shares)


RULE = Rule("NodeResourcesFit", prepare, Happening.NODE | Happening.POD_GONE)
PREFERENCE = Preference("NodeResourcesFit", 1, least_allocated)

"""NodeResourcesBalancedAllocation: prefer nodes where cpu and memory will be used to a similar share.

100 less the standard deviation of the shares. A pod that requests neither has no say. Source: kube-scheduler's
noderesources/balanced_allocation.go.
"""

import numpy as np

from scheduler.columns import Amounts, Lines, Nodes, Rows
from scheduler.plugins.rule import Preference, Scorer
from scheduler.task import Task


def balance(task: Task, nodes: Nodes) -> Scorer | None:
    cpu, memory = task.resources.get("cpu", 0), task.resources.get("memory", 0)
    if not cpu and not memory:
        return None
    amounts, lines = np.array([[cpu], [memory]], np.int64), Lines(nodes, ("cpu", "memory"))

    def evenness(rows: Rows) -> Amounts:
        at = lines()
        allocatable = nodes.allocatable[at, rows]
        shares = np.minimum((allocatable - nodes.left[at, rows] + amounts) / np.maximum(allocatable, 1), 1.0)
        # The standard deviation of two shares is half of what they differ by; of a single one it is 0.
        deviation = np.abs(shares[0] - shares[1]) * 50
        if np.count_nonzero(allocatable) < allocatable.size:
            deviation *= (allocatable > 0).all(0)
        score: Amounts = (100 - deviation).astype(np.int64)
        return score

    return evenness


PREFERENCE = Preference("NodeResourcesBalancedAllocation", 1, balance)

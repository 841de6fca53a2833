"""NodeResourcesFit: cpu, memory, ephemeral storage, extended resources, and the number of pods.

The seeds' ``rdma-sriov/*`` resources count only on nodes that publish them: elsewhere the inventory says it better.
Scored by LeastAllocated over cpu and memory. Source: kube-scheduler's noderesources.
"""

import numpy as np

from scheduler.columns import Amounts, Flags, Lines, Nodes, Rows
from scheduler.plugins.rule import Filter, Preference, Refusals, Rule, Scorer
from scheduler.queue import Happening
from scheduler.resources import SCORED
from scheduler.task import Task

_SEEDS = "rdma-sriov/"
# One bit of an integer each; nobody asks for as many.
_MOST_RESOURCES = 61


def prepare(task: Task, nodes: Nodes) -> Filter:
    wanted = [("pods", 1), *((name, amount) for name, amount in sorted(task.resources.items()) if amount > 0)]
    del wanted[_MOST_RESOURCES:]
    texts = ["Too many pods", *(f"Insufficient {name}" for name, _ in wanted[1:])]
    amounts = np.array([[amount] for _, amount in wanted], np.int64)
    seeds = [(line, name) for line, (name, _) in enumerate(wanted) if name.startswith(_SEEDS)]
    lines = Lines(nodes, (name for name, _ in wanted))

    def refuse(rows: Rows) -> Refusals | None:
        lacks: Flags = nodes.left[lines(), rows] < amounts
        for line, name in seeds:
            lacks[line] &= _publish(name, nodes, rows)
        return _tell(lacks, texts) if np.count_nonzero(lacks) else None

    return refuse


def _publish(name: str, nodes: Nodes, rows: Rows) -> Flags:
    found: Flags = nodes.published.spread(lambda published: name in published, rows) != 0
    return found


def _tell(lacks: Flags, texts: list[str]) -> Refusals:
    """Name for each row all that it lacks."""
    bits = np.left_shift(1, np.arange(len(lacks), dtype=np.int64))
    kinds, codes = np.unique(bits @ lacks, return_inverse=True)
    reasons = [tuple(text for bit, text in enumerate(texts) if int(kind) >> bit & 1) for kind in kinds]
    # The kinds are sorted: nothing lacking, if there is such a node, comes first.
    return Refusals(codes, tuple(reasons[1:])) if kinds[0] == 0 else Refusals(codes + 1, tuple(reasons))


def least_allocated(task: Task, nodes: Nodes) -> Scorer:
    """Prefer nodes with the larger share of cpu and memory left, this pod included."""
    amounts = np.array([[task.scored[name]] for name in SCORED], np.int64)
    lines = Lines(nodes, SCORED.values())

    def share(rows: Rows) -> Amounts:
        at = lines()
        allocatable = nodes.allocatable[at, rows]
        shares = np.maximum(nodes.left[at, rows] - amounts, 0) * 100 // np.maximum(allocatable, 1)
        if np.count_nonzero(allocatable) == allocatable.size:
            score: Amounts = (shares[0] + shares[1]) >> 1
        else:
            score = (shares[0] + shares[1]) // np.maximum((allocatable > 0).sum(0), 1)
        return score

    return share


RULE = Rule("NodeResourcesFit", prepare, Happening.NODE_ADDED | Happening.NODE_ALLOCATABLE | Happening.POD_GONE)
PREFERENCE = Preference("NodeResourcesFit", 1, least_allocated)

"""NodeResourcesFit: cpu, memory, ephemeral storage, extended resources, and the number of pods.

The seeds' ``rdma-sriov/*`` resources count only on nodes that publish them: elsewhere the inventory says it better.
Scored by LeastAllocated over cpu and memory. Source: kube-scheduler's noderesources.
"""

from collections.abc import Container
from functools import partial

from scheduler.cache.node_columns import CPU, MEMORY, SCORED_CPU, SCORED_MEMORY, Nodes
from scheduler.cache.node_view import Look, Measure
from scheduler.kube.pod_info import Task
from scheduler.plugins.interface import Texts, UseFilter, UsePreference, UseRule, UseScorer
from scheduler.queue import Happening

_SEEDS = "rdma-sriov/"
# One bit of a mark each; nobody asks for as many.
_MOST_RESOURCES = 61


def counts_on(resource: str, published: Container[str]) -> bool:
    """Say whether a resource counts on a node that publishes these."""
    return not resource.startswith(_SEEDS) or resource in published


def prepare(task: Task, nodes: Nodes) -> UseFilter:
    wanted = [("pods", 1), *((name, amount) for name, amount in sorted(task.resources.items()) if amount > 0)]
    del wanted[_MOST_RESOURCES:]
    seeds = {name for name, _ in wanted if name.startswith(_SEEDS)}
    known, asked = -1, list[tuple[int, str, int]]()

    def lacks(look: Look) -> Measure:
        nonlocal known, asked
        if known != nodes.width:
            known, asked = nodes.width, [(nodes.line(name), name, amount) for name, amount in wanted]
        marks, left = 0, look.left
        for bit, (line, name, amount) in enumerate(asked):
            lack = left[line] < amount
            if name in seeds:
                lack = lack & look.judged(nodes.published, partial(counts_on, name))
            marks = marks | lack << bit
        return marks

    def tell(mark: int) -> Texts:
        texts = ["Too many pods", *(f"Insufficient {name}" for name, _ in wanted[1:])]
        return tuple(text for bit, text in enumerate(texts) if mark >> bit & 1)

    return UseFilter(lacks, tell)


def least_allocated(task: Task, nodes: Nodes) -> UseScorer:
    """Prefer nodes with the larger share of cpu and memory left, this pod included."""
    cpu, memory = task.scored["cpu"], task.scored["memory"]

    def share(look: Look) -> Measure:
        shares = _share(look, SCORED_CPU, cpu) + _share(look, SCORED_MEMORY, memory)
        return shares // look.most((look.allocatable[CPU] > 0) * 1 + (look.allocatable[MEMORY] > 0), 1)

    return share


def _share(look: Look, line: int, amount: int) -> Measure:
    return look.most(look.left[line] - amount, 0) * 100 // look.most(look.allocatable[line], 1)


RULE = UseRule("NodeResourcesFit", prepare, Happening.NODE_ADDED | Happening.NODE_ALLOCATABLE | Happening.POD_GONE)
PREFERENCE = UsePreference("NodeResourcesFit", 1, least_allocated)

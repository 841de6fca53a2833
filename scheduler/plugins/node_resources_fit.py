"""NodeResourcesFit: cpu, memory, ephemeral storage, extended resources, and the number of pods.

The seeds' ``rdma-sriov/*`` resources count only on nodes that publish them: elsewhere the inventory says it better.
Scored by LeastAllocated over cpu and memory. Source: kube-scheduler's noderesources.
"""

from collections.abc import Container
from functools import partial

from scheduler.cache.node_columns import CPU, MEMORY, SCORED_CPU, SCORED_MEMORY, NodeColumns
from scheduler.cache.node_view import Measure, NodeView
from scheduler.kube.pod_info import PodInfo
from scheduler.plugins.interface import Texts, UsageFilter, UsageFilterPlugin, UsageScorePlugin, UsageScorer
from scheduler.queue import ClusterEvent

_SEEDS = "rdma-sriov/"
# One bit of a mark each; nobody asks for as many.
_MOST_RESOURCES = 61


def counts_on(resource: str, published: Container[str]) -> bool:
    """Return whether a resource counts on a node that publishes these."""
    return not resource.startswith(_SEEDS) or resource in published


def pre_filter(pod_info: PodInfo, nodes: NodeColumns) -> UsageFilter:
    wanted = [("pods", 1), *((name, amount) for name, amount in sorted(pod_info.resources.items()) if amount > 0)]
    del wanted[_MOST_RESOURCES:]
    seeds = {name for name, _ in wanted if name.startswith(_SEEDS)}
    known, asked = -1, list[tuple[int, str, int]]()

    def lacks(view: NodeView) -> Measure:
        nonlocal known, asked
        if known != nodes.width:
            known, asked = nodes.width, [(nodes.line(name), name, amount) for name, amount in wanted]
        marks, left = 0, view.left
        for bit, (line, name, amount) in enumerate(asked):
            lack = left[line] < amount
            if name in seeds:
                lack = lack & view.judged(nodes.published, partial(counts_on, name))
            marks = marks | lack << bit
        return marks

    def tell(mark: int) -> Texts:
        texts = ["Too many pods", *(f"Insufficient {name}" for name, _ in wanted[1:])]
        return tuple(text for bit, text in enumerate(texts) if mark >> bit & 1)

    return UsageFilter(lacks, tell)


def least_allocated(pod_info: PodInfo, nodes: NodeColumns) -> UsageScorer:
    """Prefer nodes with the larger share of cpu and memory left, this pod included."""
    cpu, memory = pod_info.scored["cpu"], pod_info.scored["memory"]

    def share(view: NodeView) -> Measure:
        shares = _share(view, SCORED_CPU, cpu) + _share(view, SCORED_MEMORY, memory)
        return shares // view.most((view.allocatable[CPU] > 0) * 1 + (view.allocatable[MEMORY] > 0), 1)

    return share


def _share(view: NodeView, line: int, amount: int) -> Measure:
    return view.most(view.left[line] - amount, 0) * 100 // view.most(view.allocatable[line], 1)


FILTER = UsageFilterPlugin(
    "NodeResourcesFit", pre_filter, ClusterEvent.NODE_ADDED | ClusterEvent.NODE_ALLOCATABLE | ClusterEvent.POD_GONE
)
SCORE = UsageScorePlugin("NodeResourcesFit", 1, least_allocated)

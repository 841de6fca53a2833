"""NodeResourcesFit: cpu, memory, ephemeral storage, extended resources, and the number of pods.

It is scored by LeastAllocated over cpu and memory. NodeResourcesBalancedAllocation: prefer nodes where these two will
be used to similar shares.

rit-k8s-rdma's ``rdma-sriov/*`` resources count only on nodes that publish them, because on others the inventory is more
exact. Source: kube-scheduler's noderesources.
"""

from collections.abc import Container, Sequence
from functools import partial

from scheduler.cache.assigned_pod import AssignedPod
from scheduler.cache.cache import Cache
from scheduler.cache.column import Measure, NodeView
from scheduler.cache.node_columns import CPU, LINES, MEMORY, PODS, SCORED_CPU, SCORED_MEMORY, NodeColumns
from scheduler.kube.cluster_event import ClusterEvent
from scheduler.kube.pod_info import PodInfo
from scheduler.placement.steps import Steps
from scheduler.plugins.interface import (
    DryRun,
    DryRunPlugin,
    PreFilterExtensions,
    Texts,
    UsageFilter,
    UsageFilterPlugin,
    UsageScorePlugin,
    UsageScorer,
)

_NAME = "NodeResourcesFit"
_TOO_MANY_PODS = "Too many pods"
_SEEDS = "rdma-sriov/"


def _counts_on(resource: str, resources: Container[str]) -> bool:
    return not resource.startswith(_SEEDS) or resource in resources


def _insufficient(resource: str) -> str:
    return f"Insufficient {resource}"


def pre_filter(pod_info: PodInfo, nodes: NodeColumns) -> UsageFilter:
    requests = [("pods", 1), *_requests(pod_info)]
    # One bit for each resource: `MOST_RESOURCES` and the number of pods fit.
    lines = [(bit, LINES[name], amount) for bit, (name, amount) in enumerate(requests) if name in LINES]
    other_requests = [(bit, name, amount) for bit, (name, amount) in enumerate(requests) if name not in LINES]

    def lacks(view: NodeView) -> Measure:
        marks, free = 0, view.free
        for bit, line, amount in lines:
            marks = marks | (free[line] < amount) << bit
        for bit, name, amount in other_requests:
            lack = _free(nodes, view, name) < amount
            if name.startswith(_SEEDS):
                lack = lack & view.judge(nodes.published, partial(_counts_on, name))
            marks = marks | lack << bit
        return marks

    def reasons(mark: int) -> Texts:
        texts = [_TOO_MANY_PODS, *(_insufficient(name) for name, _ in requests[1:])]
        return tuple(text for bit, text in enumerate(texts) if mark >> bit & 1)

    return UsageFilter(lacks, reasons)


def least_allocated(pod_info: PodInfo, nodes: NodeColumns) -> UsageScorer:
    """Prefer nodes with the larger share of cpu and memory left, this pod included."""
    cpu, memory = pod_info.scored["cpu"], pod_info.scored["memory"]

    def score(view: NodeView) -> Measure:
        shares = _free_share(view, SCORED_CPU, cpu) + _free_share(view, SCORED_MEMORY, memory)
        return shares // view.maximum((view.allocatable[CPU] > 0) * 1 + (view.allocatable[MEMORY] > 0), 1)

    return score


def _free_share(view: NodeView, line: int, amount: int) -> Measure:
    return view.maximum(view.free[line] - amount, 0) * 100 // view.maximum(view.allocatable[line], 1)


def balanced_allocation(pod_info: PodInfo, nodes: NodeColumns) -> UsageScorer | None:
    """Return 100 minus the standard deviation of the shares that will be used; None for a pod that requests neither."""
    cpu, memory = pod_info.resources.get("cpu", 0), pod_info.resources.get("memory", 0)
    if not cpu and not memory:
        return None

    def score(view: NodeView) -> Measure:
        # The standard deviation of two shares is half of their difference; of a single one it is 0.
        difference = abs(_usage_share(view, CPU, cpu) - _usage_share(view, MEMORY, memory))
        is_offered = (view.allocatable[CPU] > 0) & (view.allocatable[MEMORY] > 0)
        return view.truncate(100 - difference * 50 * is_offered)

    return score


def _usage_share(view: NodeView, line: int, amount: int) -> Measure:
    allocatable = view.allocatable[line]
    return view.minimum((allocatable - view.free[line] + amount) / view.maximum(allocatable, 1), 1.0)


def _requests(pod_info: PodInfo) -> list[tuple[str, int]]:
    return [(name, amount) for name, amount in sorted(pod_info.resources.items()) if amount > 0]


def _free(nodes: NodeColumns, view: NodeView, resource: str) -> Measure:
    """Return what pods leave of a resource without a line; 0 if no node has it."""
    scalar = nodes.scalar(resource)
    return 0 if scalar is None else view.amount(scalar.free)


def _allocatable(nodes: NodeColumns, view: NodeView, resource: str) -> Measure:
    line = LINES.get(resource)
    if line is not None:
        return view.allocatable[line]
    scalar = nodes.scalar(resource)
    return 0 if scalar is None else view.amount(scalar.allocatable)


class _SpareAmounts(PreFilterExtensions):
    """By how much the number of pods, and each amount that counts on a node, exceeds what the pod needs."""

    def __init__(self, pods: int, spare: dict[str, int]) -> None:
        self._pods, self._spare = pods, spare

    def move_pods(self, assigned_pods: Sequence[AssignedPod], sign: int) -> None:
        self._pods -= sign * len(assigned_pods)
        for name in self._spare:
            self._spare[name] -= sign * sum([assigned_pod.resources.get(name, 0) for assigned_pod in assigned_pods])

    def has_room_for(self, assigned_pods: Sequence[AssignedPod]) -> bool:
        if self._pods < len(assigned_pods):
            return False
        for name, spare in self._spare.items():
            if spare < sum([assigned_pod.resources.get(name, 0) for assigned_pod in assigned_pods]):
                return False
        return True

    def filter(self) -> Texts:
        reasons = tuple([_insufficient(name) for name, spare in self._spare.items() if spare < 0])
        return (_TOO_MANY_PODS, *reasons) if self._pods < 0 else reasons


def dry_run(pod_info: PodInfo, cache: Cache, _: Steps) -> DryRun:
    nodes, requests = cache.nodes, _requests(pod_info)
    lines = [(name, LINES[name], amount) for name, amount in requests if name in LINES]
    other_requests = [(name, amount) for name, amount in requests if name not in LINES]

    def on(row: int, _: bool) -> PreFilterExtensions:
        view = nodes.row_view(row)
        spare = {name: view.free[line] - amount for name, line, amount in lines}
        for name, amount in other_requests:
            if _counts_on(name, nodes.published[row]):
                spare[name] = _free(nodes, view, name) - amount
        return _SpareAmounts(view.free[PODS] - 1, spare)

    def fits_empty(view: NodeView) -> Measure:
        fits = view.allocatable[PODS] > 0
        for name, amount in requests:
            lacks = (_allocatable(nodes, view, name) < amount) & (view.allocatable[PODS] > 0)
            if lacks.any():
                fits &= ~(lacks & view.judge(nodes.published, partial(_counts_on, name)).astype(bool))
        return fits

    return DryRun(on, fits_empty, has_exact_room=True)


FILTER = UsageFilterPlugin(_NAME, pre_filter, ClusterEvent.NODE_ALLOCATABLE | ClusterEvent.POD_GONE)
SCORE = UsageScorePlugin(_NAME, least_allocated)
DRY_RUN = DryRunPlugin(_NAME, dry_run)
BALANCED_ALLOCATION = UsageScorePlugin("NodeResourcesBalancedAllocation", balanced_allocation)

"""Constraints: a node must have the units of each other kind that a pod requests; the kind's constraint decides.

The constraint runs once for each distinct state of the nodes' free units. `scheduler.placement.joint` checks whether
everything fits together on one node, VFs included, when that node is about to be chosen.
"""

from collections.abc import Callable, Sequence

from scheduler.cache.assigned_pod import AssignedPod
from scheduler.cache.cache import Cache
from scheduler.cache.column import Measure, NodeView
from scheduler.cache.node_columns import NodeColumns
from scheduler.cache.node_info import InventoryFault
from scheduler.cache.unit_pools import UnitFault, UnitPool
from scheduler.constraints.kinds import Wish
from scheduler.kube.cluster_event import ClusterEvent
from scheduler.kube.outcomes import Refused
from scheduler.kube.pod_info import PodInfo
from scheduler.placement.assign import Placement, share_refusal
from scheduler.placement.joint import KindPart, Part, VfPart, place_kinds
from scheduler.placement.steps import Steps
from scheduler.plugins.device_rules.rdma_vfs import FAULTS, ExactDevices, fits_empty, vf_request
from scheduler.plugins.interface import (
    DryRun,
    DryRunPlugin,
    Reserve,
    ReservePlugin,
    UsageFilter,
    UsageFilterPlugin,
    UsageScorePlugin,
    UsageScorer,
)

_NAME = "Constraints"
# Number of distinct reasons kept for one constraint and shape of pod; all further ones share one text.
_MOST_REASONS = 256


def pre_filter(pod_info: PodInfo, nodes: NodeColumns) -> UsageFilter | None:
    if not pod_info.wishes:
        return None
    # The reasons, with their numbers from 1.
    reasons: dict[str, int] = {}
    judges = [(nodes.unit_pools[wish.kind.name], _refusal_mark(wish, reasons)) for wish in pod_info.wishes]

    def filter_rows(view: NodeView) -> Measure:
        marks: Measure = 0
        for column, judge in judges:
            # The first kind that rejects a node gives the reason.
            marks = marks + (marks == 0) * view.judge(column, judge)
        return marks

    return UsageFilter(filter_rows, lambda mark: (list(reasons)[mark - 1],))


def suit(pod_info: PodInfo, nodes: NodeColumns) -> UsageScorer | None:
    """Prefer the nodes that the constraints prefer: the mean of their scores."""
    if not pod_info.wishes:
        return None
    judges = [(nodes.unit_pools[wish.kind.name], _score(wish)) for wish in pod_info.wishes]
    return lambda view: sum(view.judge(column, judge) for column, judge in judges) // len(judges)


def reserve(pod_info: PodInfo, nodes: NodeColumns) -> Reserve | None:
    return (lambda row, steps: _place(pod_info, nodes, row, steps)) if pod_info.wishes else None


def _place(pod_info: PodInfo, nodes: NodeColumns, row: int, steps: Steps) -> Placement | Refused:
    request, free_vfs = vf_request(pod_info), nodes.free_vfs_of_row[row]
    if request is not None and (refusal := share_refusal(request, free_vfs)):
        return refusal
    parts: list[Part] = [
        KindPart(wish, nodes.unit_pools[wish.kind.name][row].units, request, free_vfs.pfs) for wish in pod_info.wishes
    ]
    if request is not None:
        parts.append(VfPart(request, free_vfs))
    return place_kinds(parts, free_vfs, steps=steps)


def _judge(wish: Wish, unit_pool: UnitPool) -> int | str:
    if unit_pool.fault is not None:
        return _why(unit_pool.fault, wish.kind.name)
    return wish.kind.judge(wish.request, unit_pool.units)


def _why(fault: UnitFault, kind: str) -> str:
    # Reasons are counted over nodes, so the constraint's own text is only in the log.
    match fault:
        case UnitFault.NO_INVENTORY:
            return f"node(s) had no {kind} inventory"
        case UnitFault.UNREADABLE:
            return f"node(s) had an unreadable {kind} inventory"
        case UnitFault.CONSTRAINT_FAILED:
            return f"constraint {kind!r} failed on the node(s)"
        case UnitFault.NOT_READY:
            return FAULTS[InventoryFault.NOT_READY]


def _refusal_mark(wish: Wish, reasons: dict[str, int]) -> Callable[[UnitPool], int]:
    def mark(unit_pool: UnitPool) -> int:
        judgement = _judge(wish, unit_pool)
        if not isinstance(judgement, str):
            return 0
        text = judgement if len(reasons) < _MOST_REASONS else f"constraint {wish.kind.name!r} rejected the node(s)"
        return reasons.setdefault(text, len(reasons) + 1)

    return mark


def _score(wish: Wish) -> Callable[[UnitPool], int]:
    def score(unit_pool: UnitPool) -> int:
        judgement = _judge(wish, unit_pool)
        return 0 if isinstance(judgement, str) else judgement

    return score


class _Units(ExactDevices):
    """Units of other kinds, together with VFs. The filter and the search read the node's row, so moves rewrite it."""

    def __init__(self, pod_info: PodInfo, cache: Cache, row: int, steps: Steps) -> None:
        super().__init__(pod_info, cache, row, steps)
        self._row = row
        self._filter = pre_filter(pod_info, cache.nodes)
        self._assignments = {
            assigned_pod.uid: assigned_pod.assignment
            for assigned_pod in cache.assigned_pods_on(self._node)
            if assigned_pod.assignment is not None
        }

    def move_pods(self, assigned_pods: Sequence[AssignedPod], sign: int) -> None:
        super().move_pods(assigned_pods, sign)
        for assigned_pod in assigned_pods:
            self._assignments.pop(assigned_pod.uid, None)
            if sign > 0 and assigned_pod.assignment is not None:
                self._assignments[assigned_pod.uid] = assigned_pod.assignment

    def close(self) -> None:
        self._show()

    def _show(self) -> None:
        nodes, unit_pools = self._cache.nodes, self._cache.unit_pools
        nodes.free_vfs_of_row[self._row] = self._vf_accounting.free_vfs
        unit_pools.show(self._row, self._node, list(self._assignments.values()))

    def _place(self) -> Placement | Refused:
        self._show()
        nodes = self._cache.nodes
        if self._filter is not None and (mark := self._filter.judge(nodes.row_view(self._row))):
            return Refused(self._filter.reasons(mark)[0])
        return _place(self._pod_info, nodes, self._row, self._steps)


def dry_run(pod_info: PodInfo, cache: Cache, steps: Steps) -> DryRun | None:
    if not pod_info.wishes:
        return None
    return DryRun(lambda row, _: _Units(pod_info, cache, row, steps), fits_empty(pod_info, cache.nodes))


_REQUEUE_ON = ClusterEvent.NODE_INVENTORY | ClusterEvent.NODE_UNITS
_REQUEUE_ON |= ClusterEvent.VFS_FREED | ClusterEvent.UNITS_FREED
FILTER = UsageFilterPlugin(_NAME, pre_filter, _REQUEUE_ON)
SCORE = UsageScorePlugin(_NAME, suit)
RESERVE = ReservePlugin(_NAME, reserve, _REQUEUE_ON)
DRY_RUN = DryRunPlugin(_NAME, dry_run, reserves=True)

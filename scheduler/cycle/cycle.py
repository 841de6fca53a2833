"""Schedule one pod: filter the nodes, score them, and take exact VFs on the best one. Pure: time is an argument.

`SchedulingCycle.decide` returns `Bind` with everything that the Binding needs, or `Unschedulable` with the reasons,
counted by node in kube-scheduler's words. In both, ``why`` is the content of ``mooring.dev/why``: data for people and
programs.
"""

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace

import msgspec
import numpy as np

from mooring.annotations.assignment import Assignment
from scheduler.cache.cache import Cache
from scheduler.cache.column import Amounts, shallow_copy
from scheduler.cache.node_columns import Rows
from scheduler.cycle.decisions import (
    Bind,
    Decision,
    SignAssignment,
    Unschedulable,
    Why,
    binding_annotations,
    no_node_available,
    none_available,
)
from scheduler.cycle.filters import (
    Among,
    ClusterFilters,
    NoNode,
    RefusedRows,
    VolumeFilters,
    cluster_filters,
    events_that_help,
    refused_rows,
    rows_of,
    sift,
    volume_filters,
)
from scheduler.cycle.kept_scores import KeptSignatureScores
from scheduler.cycle.node_dry_run import DryRuns, assigned_pod_for
from scheduler.cycle.placement_budget import PlacementBudget, TurnSpent
from scheduler.cycle.preemption.preemption import Preemption
from scheduler.cycle.preemption.select_victims import VictimSearch
from scheduler.cycle.refusing_nodes import RefusingNodes
from scheduler.cycle.reserved_room import ReservedRoom, RoomCheck
from scheduler.cycle.signature_scores import SignatureScores
from scheduler.kube.cluster_event import NO_EVENT, ClusterEvent
from scheduler.kube.outcomes import Refused
from scheduler.kube.pod_info import PodInfo
from scheduler.placement.assign import Placement
from scheduler.placement.steps import Steps
from scheduler.plugins.device_rules.rdma_vfs import assign
from scheduler.plugins.registry import WEIGHT_OF
from scheduler.plugins.volume_rules import volume_binding

# Called at the end of each extension point. `Filter` evaluates the changed rows, with filter and score plugins. `Score`
# finds the best row, and the pod's exact VFs there.
RecordPhase = Callable[[str], None]
# Number of node names listed for one reason in `why`; an event is small.
NAME_COUNT = 8
# Number of rows that volume filters check at first; the filters cost little when the best rows pass.
_FIRST_BATCH = 16


def ignore_phase(_: str) -> None:
    """Ignore the end of a phase."""


class _Choice(msgspec.Struct, frozen=True):
    """The chosen node, the PF of each interface there, and the scores that led to the choice."""

    row: int
    placement: Placement | None
    scores: Mapping[str, int]


class SchedulingCycle:
    """Schedules pods and caches results for pods with equal requests. Equal clusters and pods give equal decisions.

    ``max_names`` is the number of nodes listed for each reason in ``why``. ``sign`` signs each assignment.
    """

    def __init__(
        self,
        cache: Cache,
        reserved_room: ReservedRoom,
        preemption: Preemption,
        refusing_nodes: RefusingNodes | None = None,
        max_names: int = NAME_COUNT,
        sign: SignAssignment | None = None,
    ) -> None:
        self.cache, self.reserved_room, self._preemption = cache, reserved_room, preemption
        self._max_names, self._sign = max_names, sign
        self._signature_scores = KeptSignatureScores(cache.nodes)
        self.refusing_nodes, self._avoids_nodes = refusing_nodes or RefusingNodes(), False

    def on(
        self, cache: Cache, reserved_room: ReservedRoom, *, avoids_nodes: bool = False, keeps_few: bool = False
    ) -> "SchedulingCycle":
        """Return a cycle for a snapshot of the cache that was taken just now.

        With ``avoids_nodes``, exclude nodes that have just refused such a pod. With ``keeps_few``, keep the scores of
        the last shapes only: there are many, each of one pod.
        """
        cycle = shallow_copy(self)
        cycle.cache, cycle.reserved_room = cache, reserved_room
        cycle._avoids_nodes = avoids_nodes
        cycle._signature_scores = self._signature_scores.snapshot(cache.nodes, keeps_few=keeps_few)
        return cycle

    @property
    def overruns(self) -> int:
        return self._signature_scores.overruns

    def tick(self, now: float) -> None:
        """Drop scores that no decision has used for a minute, and what the cache no longer needs."""
        self.cache.tick(now)
        self._signature_scores.tick(now)

    def decide(self, pod_info: PodInfo, now: float) -> Decision:
        """Schedule a pod at the monotonic time ``now`` in seconds."""
        decision = self.proceed(pod_info, now, VictimSearch())
        assert decision is not None, "a search without a limit ends in its first turn"
        return decision

    def proceed(
        self, pod_info: PodInfo, now: float, search: VictimSearch, record_phase: RecordPhase = ignore_phase
    ) -> Decision | None:
        """Schedule as `decide` does; return None if nodes, VFs or victims need another turn.

        The caller then processes events, and calls again with the same ``search``.
        """
        self.cache.tick(now)
        search.placement.begin_turn()
        try:
            with search.placement.limit_values():
                outcome = self._choose(pod_info, search.placement, None, record_phase)
            if isinstance(outcome, _Choice):
                return self._make_bind(pod_info, outcome)
            return self._unschedulable(pod_info, outcome, search, now)
        except TurnSpent:
            return None

    def choose_node(
        self,
        pod_info: PodInfo,
        budget: PlacementBudget,
        among: Among | None = None,
        record_phase: RecordPhase = ignore_phase,
    ) -> Decision:
        """Schedule a pod without preemption, on the rows ``among`` only if given.

        Raise TurnSpent if the search for VFs or the evaluation of nodes needs another turn.
        """
        with budget.limit_values():
            outcome = self._choose(pod_info, budget, among, record_phase)
        if isinstance(outcome, _Choice):
            return self._make_bind(pod_info, outcome)
        verdict = self._explain(pod_info, outcome)
        events = NO_EVENT if isinstance(outcome, NoNode) else events_that_help(pod_info, self.cache)
        return replace(verdict, requeue_on=verdict.requeue_on | events)

    def passing_rows(self, pod_info: PodInfo, budget: PlacementBudget) -> Rows:
        """Return the rows that pass all filters that evaluate each node by itself; may raise TurnSpent."""
        with budget.limit_values():
            rows = self._signature_scores.of(pod_info, budget).passing_rows()
        if not self._avoids_nodes:
            return rows
        return rows[~np.isin(rows, self.refusing_nodes.rows(pod_info.pod, self.cache.nodes))]

    def rows_without_pods(self, pod_info: PodInfo, budget: PlacementBudget) -> Rows:
        """Return also the rows that may pass after pods have left; may raise TurnSpent."""
        with budget.limit_values():
            scores = self._signature_scores.of(pod_info, budget)
        helpable = [rows for plugin, _, rows in scores.refusals() if plugin.requeue_on & ClusterEvent.ROOM]
        all_rows: Rows = np.sort(np.concatenate([scores.passing_rows(), *helpable]))
        return all_rows

    def _choose(
        self, pod_info: PodInfo, budget: PlacementBudget, among: Among | None, record_phase: RecordPhase
    ) -> "_Choice | list[RefusedRows] | NoNode":
        """Choose the best node, from the rows ``among`` if given; nodes that have just refused such a pod come last."""
        cache, reserved_room = self.cache, self.reserved_room
        pod_filters, volumes = cluster_filters(pod_info, cache), volume_filters(pod_info, cache)
        record_phase("PreFilter")
        if isinstance(volumes, NoNode):
            return volumes
        scores = self._signature_scores.of(pod_info, budget)
        node, room_check = reserved_room.node_of(pod_info.uid), RoomCheck(pod_info, cache, reserved_room, budget)
        search = _NodeSearch(pod_info, cache, pod_filters, volumes, scores, room_check, node, budget, record_phase)
        preferred_rows = self.refusing_nodes.preferred_rows(pod_info.pod, among, cache.nodes)
        # Victims have left the nominated node for this pod.
        if preferred_rows is not None and not node:
            outcome = search.best(preferred_rows)
            if isinstance(outcome, _Choice) or self._avoids_nodes:
                return outcome
        return search.best(among)

    def _unschedulable(
        self, pod_info: PodInfo, refusals: Sequence[RefusedRows] | NoNode, search: VictimSearch, now: float
    ) -> Unschedulable | None:
        verdict = self._explain(pod_info, refusals)
        if not self.cache.nodes.row_of:
            return verdict
        # Volumes that exclude every node do so whichever pods are removed.
        refusals = () if isinstance(refusals, NoNode) else refusals
        helpable = [
            refusal for refusal in refusals if refusal.requeue_on & ClusterEvent.ROOM and not refusal.is_permanent
        ]
        by_ports = [refusal for refusal in helpable if refusal.requeue_on & ClusterEvent.PORTS_FREED]
        dry_runs = DryRuns(pod_info, self.cache, search.placement)
        proposal = self._preemption.seek(dry_runs, rows_of(helpable), rows_of(by_ports), search, now)
        if proposal is None:
            return None
        reason = f"{verdict.reason} preemption: {proposal.reason}" if proposal.reason else verdict.reason
        verdict = replace(verdict, reason=reason, is_incomplete=search.placement.is_spent)
        if isinstance(proposal, Refused):
            # Whether victims can help may depend on filters that reject no node with the current pods.
            events = events_that_help(pod_info, self.cache) if helpable else NO_EVENT
            return replace(verdict, requeue_on=verdict.requeue_on | events)
        return replace(verdict, nominate=proposal, why={**verdict.why, "preemption": proposal.why})

    def _explain(self, pod_info: PodInfo, refusals: Sequence[RefusedRows] | NoNode) -> Unschedulable:
        """Return the reasons against all nodes, with some node names for each, and the events that can help."""
        nodes, total = self.cache.nodes, len(self.cache.nodes.row_of)
        if isinstance(refusals, NoNode):
            why: Why = {"v": 1, "nodes": total, "counts": {refusals.reason: total}}
            return Unschedulable(pod_info, no_node_available(total, refusals.reason), refusals.requeue_on, why)
        if not total:
            no_nodes = "no nodes available to schedule pods"
            return Unschedulable(pod_info, no_nodes, ClusterEvent.NODE_ADDED, {"v": 1, "nodes": 0})
        counts: dict[str, int] = {}
        names: dict[str, list[str]] = {}
        # A new node can help, whatever the reasons against the existing nodes.
        events = ClusterEvent.NODE_ADDED
        for refusal in refusals:
            events |= refusal.requeue_on
            for text in refusal.texts:
                counts[text] = counts.get(text, 0) + len(refusal.rows)
                node_names = [nodes.names[row] for row in refusal.rows[: self._max_names]]
                names[text] = sorted([*names.get(text, ()), *node_names])[: self._max_names]
        why = {"v": 1, "nodes": total, "counts": counts, "refused": names}
        return Unschedulable(pod_info, none_available(total, counts), events, why)

    def _make_bind(self, pod_info: PodInfo, choice: _Choice) -> Decision:
        nodes, storage = self.cache.nodes, self.cache.volumes
        node, total = nodes.names[choice.row], len(nodes.row_of)
        assignment = self._assign(pod_info, choice, node)
        annotations = binding_annotations(pod_info.pod, assignment, self._sign)
        if isinstance(annotations, Refused):
            return Unschedulable(pod_info, annotations.reason, NO_EVENT, {"v": 1, "nodes": total})
        assigned_pod = assigned_pod_for(pod_info, node, assignment)
        pfs: dict[str, list[int]] = {}
        for vf in assignment.vfs if assignment else ():
            pfs.setdefault(vf.pf, []).append(vf.vf)
        why: dict[str, object] = {"v": 1, "node": node, "nodes": total, "scores": choice.scores, "pfs": pfs}
        if assignment is not None and assignment.ext:
            why["ext"] = assignment.ext
        plan = volume_binding.plan(pod_info, nodes, storage, choice.row) if pod_info.volumes else None
        return Bind(pod_info, assigned_pod, annotations, why, plan)

    def _assign(self, pod_info: PodInfo, choice: _Choice, node: str) -> Assignment | None:
        if choice.placement is None:
            return None
        if self.reserved_room:
            # The exact VFs for which nominated pods wait stay reserved for them.
            room_check = RoomCheck(pod_info, self.cache, self.reserved_room, Steps())
            if (assignment := room_check.assignment(choice.row)) is not None:
                return assignment
        return assign(pod_info, self.cache, node, self.cache.nodes.free_vfs_of_row[choice.row], choice.placement)


@dataclass(slots=True)
class _NodeSearch:
    """Finds the best node for one pod; ``nominated_node`` is where the pod has reserved room, empty if nowhere."""

    pod_info: PodInfo
    cache: Cache
    cluster_filters: ClusterFilters
    volume_filters: VolumeFilters
    scores: SignatureScores
    room_check: RoomCheck
    nominated_node: str
    budget: PlacementBudget
    record_phase: RecordPhase

    def best(self, among: Among | None) -> _Choice | list[RefusedRows]:
        """Choose from the rows ``among`` if given; return the reasons if none passes."""
        if not self.cluster_filters and not self.volume_filters and not self.nominated_node:
            self.record_phase("Filter")
            best = self.scores.best(self.budget, among.flags if among is not None else None)
            self.record_phase("Score")
            if best is None:
                return list(refused_rows(self.scores, among, self.cache.nodes))
            row, placement = best
            if not self.room_check.refusal(row):
                return _Choice(row, placement, self.scores.parts(row))
        outcome = self._best_by_all(among)
        self.record_phase("Score")
        return outcome

    def _best_by_all(self, among: Among | None) -> _Choice | list[RefusedRows]:
        """Filter and score nodes by volumes, affinity and spreading.

        Volumes may give a different result for each node. The best nodes are checked first, unless all have to be
        compared.
        """
        rows, refusals = self.scores.passing_rows(), list[RefusedRows]()
        if among is not None:
            rows = rows[among.flags[rows]]
        best_first = rows[self._in_order(rows, self.scores.scores(rows))]
        for batch in [rows] if self.cluster_filters else _batches(best_first):
            outcome = self._best_of(batch)
            if isinstance(outcome, _Choice):
                return outcome
            refusals += outcome
        return [*refused_rows(self.scores, among, self.cache.nodes), *refusals]

    def _best_of(self, rows: Rows) -> _Choice | list[RefusedRows]:
        """Choose from these rows; if none passes, return the reasons in addition to those of the scores."""
        filters = [(plugin, cluster_filter.filter) for plugin, cluster_filter in self.cluster_filters]
        rows, refusals = sift(rows, [*self.volume_filters, *filters])
        self.record_phase("Filter")
        totals, parts = self.scores.scores(rows), {}
        for plugin, cluster_filter in self.cluster_filters:
            scores = cluster_filter.score(rows)
            if scores is not None:
                totals = totals + WEIGHT_OF[plugin.name] * scores
                parts[plugin.name] = scores
        for place in self._in_order(rows, totals).tolist():
            row = int(rows[place])
            placement = self.scores.exact(row, self.budget)
            if isinstance(placement, Refused):
                continue
            if texts := self.room_check.refusal(row):
                events = ClusterEvent.ROOM | ClusterEvent.NODE_ALLOCATABLE | events_that_help(self.pod_info, self.cache)
                refusals.append(RefusedRows(events, texts, rows[place : place + 1]))
                continue
            own_scores = {name: int(scores[place]) for name, scores in parts.items()}
            return _Choice(row, placement, self.scores.parts(row) | own_scores)
        return refusals

    def _in_order(self, rows: Rows, totals: Amounts) -> Rows:
        """Return the order to try: first the pod's nominated node, which its victims have left, then by score."""
        nominated_row = self.cache.nodes.row_of.get(self.nominated_node, -1)
        return np.lexsort((-totals, rows != nominated_row))


def _batches(rows: Rows) -> Iterator[Rows]:
    start, size = 0, _FIRST_BATCH
    while start < len(rows):
        yield rows[start : start + size]
        start, size = start + size, 2 * size

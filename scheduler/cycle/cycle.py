"""Schedule one pod: filter the nodes, score them, and take exact VFs on the best one. Pure: time is an argument.

`SchedulingCycle.decide` returns `Bind` with everything that the Binding needs, or `Unschedulable` with the reasons,
counted by node in kube-scheduler's words. In both, ``why`` is the content of ``mooring.dev/why``: data for people and
programs.
"""

import copy
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace

import msgspec
import numpy as np

from mooring.annotations.assignment import Assignment, assignment_fields
from scheduler.cache.cache import Cache
from scheduler.cache.column import Amounts
from scheduler.cache.node_columns import Rows
from scheduler.cycle.cluster_filters import (
    ClusterFilters,
    NoNode,
    VolumeFilters,
    cluster_filters,
    requeue_on,
    volume_filters,
)
from scheduler.cycle.decisions import (
    Bind,
    Decision,
    SignAssignment,
    Unschedulable,
    annotations_of,
    validate_annotations,
)
from scheduler.cycle.kept_scores import KeptSignatureScores
from scheduler.cycle.later_room import fits_beside
from scheduler.cycle.node_dry_run import DryRuns, assigned_pod_for
from scheduler.cycle.placement_budget import PlacementBudget, TurnSpent
from scheduler.cycle.preemption.preemption import Futile, Preemption
from scheduler.cycle.preemption.select_victims import VictimSearch
from scheduler.cycle.refusals import Among, RefusedRows, batches, refused_rows, rows_of, sift
from scheduler.cycle.refusing_nodes import RefusingNodes
from scheduler.cycle.reservations import ReservedRoom
from scheduler.cycle.signature_scores import SignatureScores
from scheduler.cycle.unschedulable import on_no_node, unschedulable
from scheduler.kube.cluster_event import LEAVING, NO_EVENT, ClusterEvent
from scheduler.kube.outcomes import Refused
from scheduler.kube.pod_info import PodInfo
from scheduler.placement.assign import Placement
from scheduler.placement.steps import Steps
from scheduler.plugins.device_rules.rdma_vfs import assign
from scheduler.plugins.interface import Texts
from scheduler.plugins.registry import WEIGHT_OF
from scheduler.plugins.volume_rules import volume_binding

# Called at the end of each of kube-scheduler's extension points. `Filter` evaluates the rows that have changed, with
# filter and score plugins. `Score` finds the best row, and the pod's exact VFs there.
RecordPhase = Callable[[str], None]
_encode = msgspec.json.Encoder(order="sorted").encode
# Number of node names listed for one reason in `why`; an event is small.
NAMED = 8


def _no_reasons(_: int) -> Texts:
    return ()


def ignore_phase(_: str) -> None:
    """Ignore the end of a phase."""


class _Choice(msgspec.Struct, frozen=True):
    """The chosen node, the PF of each interface there, and the scores that led to the choice."""

    row: int
    placement: Placement | None
    scores: Mapping[str, int]


class SchedulingCycle:
    """Schedules pods and caches results for pods with equal requests. Equal clusters and pods give equal decisions.

    ``max_named_nodes`` is the number of nodes listed for each reason in ``why``. ``sign`` signs each assignment.
    """

    def __init__(
        self,
        cache: Cache,
        reserved: ReservedRoom,
        preemption: Preemption,
        refusing_nodes: RefusingNodes | None = None,
        max_named_nodes: int = NAMED,
        sign: SignAssignment | None = None,
    ) -> None:
        self._sign = sign
        self._cache = cache
        self._max_named_nodes = max_named_nodes
        self._signature_scores = KeptSignatureScores(cache.nodes)
        self._reserved = reserved
        self._preemption = preemption
        self.refusing_nodes, self._only_elsewhere = refusing_nodes or RefusingNodes(), False

    def on(
        self, cache: Cache, reserved: ReservedRoom, *, only_elsewhere: bool = False, keeps_few: bool = False
    ) -> "SchedulingCycle":
        """Return a cycle for a snapshot of the cache that was taken just now.

        With ``only_elsewhere``, exclude nodes that have just refused such a pod. With ``keeps_few``, keep the scores of
        the last shapes only: there are many, each of one pod.
        """
        cycle = copy.copy(self)
        cycle._cache, cycle._reserved, cycle._only_elsewhere = cache, reserved, only_elsewhere
        cycle._signature_scores = self._signature_scores.snapshot(cache.nodes, keeps_few=keeps_few)
        return cycle

    @property
    def budget_spent(self) -> int:
        return self._signature_scores.budget_spent

    def tick(self, now: float) -> None:
        """Drop scores that no decision has used for a minute, and what the cache no longer needs."""
        self._cache.tick(now)
        self._signature_scores.tick(now)

    def decide(self, pod_info: PodInfo, now: float, record_phase: RecordPhase = ignore_phase) -> Decision:
        """Schedule a pod at the monotonic time ``now`` in seconds; call ``record_phase`` at the end of each phase."""
        decision = self.proceed(pod_info, now, VictimSearch(), record_phase)
        assert decision is not None, "a search without a limit ends in its first turn"
        return decision

    def proceed(
        self, pod_info: PodInfo, now: float, search: VictimSearch, record_phase: RecordPhase = ignore_phase
    ) -> Decision | None:
        """Schedule as `decide` does, on the current state; return None if the search for VFs or victims needs another
        turn.

        The caller then processes events, and calls again with the same ``search``.
        """
        search.placement.begin_turn()
        try:
            return self._proceed(pod_info, now, search, record_phase)
        except TurnSpent:
            return None

    def place(
        self,
        pod_info: PodInfo,
        now: float,
        budget: PlacementBudget,
        among: Among | None = None,
        record_phase: RecordPhase = ignore_phase,
    ) -> Decision:
        """Schedule a pod without preemption, on the rows ``among`` only if given.

        Raise TurnSpent if the search for VFs or the evaluation of nodes needs another turn.
        """
        with budget.judging():
            outcome = self._choose(pod_info, now, budget, among, record_phase)
        if isinstance(outcome, _Choice):
            return self._bind(pod_info, outcome)
        if isinstance(outcome, NoNode):
            return on_no_node(pod_info, outcome, self._cache.nodes)
        verdict = unschedulable(pod_info, outcome, self._cache.nodes, self._max_named_nodes)
        return replace(verdict, requeue_on=verdict.requeue_on | self.events_that_help(pod_info))

    def passing(self, pod_info: PodInfo, budget: PlacementBudget) -> Rows:
        """Return the rows that pass all filters that evaluate each node by itself.

        Raise TurnSpent if the evaluation needs another turn.
        """
        with budget.judging():
            rows = self._signature_scores.of(pod_info, budget).passing()
        avoided = self.refusing_nodes.rows(pod_info.pod, self._cache.nodes) if self._only_elsewhere else ()
        return rows[~np.isin(rows, avoided)] if avoided else rows

    def passing_without_pods(self, pod_info: PodInfo, budget: PlacementBudget) -> Rows:
        """Return the rows that pass for a pod by itself, and the rows that may pass after pods have left.

        Raise TurnSpent if the evaluation needs another turn.
        """
        with budget.judging():
            scores = self._signature_scores.of(pod_info, budget)
        helpable = [rows for plugin, _, rows in scores.refused() if plugin.requeue_on & LEAVING]
        all_rows: Rows = np.sort(np.concatenate([scores.passing(), *helpable]))
        return all_rows

    def _proceed(
        self, pod_info: PodInfo, now: float, search: VictimSearch, record_phase: RecordPhase
    ) -> Decision | None:
        outcome = self._choose(pod_info, now, search.placement, None, record_phase)
        if isinstance(outcome, _Choice):
            return self._bind(pod_info, outcome)
        if isinstance(outcome, NoNode):
            verdict = on_no_node(pod_info, outcome, self._cache.nodes)
            if not self._cache.nodes.row_of:
                return verdict
            return replace(verdict, reason=f"{verdict.reason} preemption: {self._preemption.hopeless(pod_info).reason}")
        return self._unplaced(pod_info, outcome, search, now)

    def _choose(
        self, pod_info: PodInfo, now: float, budget: PlacementBudget, among: Among | None, record_phase: RecordPhase
    ) -> "_Choice | list[RefusedRows] | NoNode":
        """Choose the best node, from the rows ``among`` if given; nodes that have just refused such a pod come last."""
        self._cache.tick(now)
        elsewhere = self.refusing_nodes.elsewhere(pod_info.pod, among, self._cache.nodes)
        # Victims have left the nominated node for this pod.
        if elsewhere is not None and self._reserved.of(pod_info.uid) is None:
            outcome = self._choose_among_rows(pod_info, budget, elsewhere, record_phase)
            if isinstance(outcome, _Choice) or self._only_elsewhere:
                return outcome
        return self._choose_among_rows(pod_info, budget, among, record_phase)

    def _choose_among_rows(
        self, pod_info: PodInfo, budget: PlacementBudget, among: Among | None, record_phase: RecordPhase
    ) -> "_Choice | list[RefusedRows] | NoNode":
        filters = cluster_filters(pod_info, self._cache)
        volumes = volume_filters(pod_info, self._cache)
        record_phase("PreFilter")
        if isinstance(volumes, NoNode):
            return volumes
        signature_scores = self._signature_scores.of(pod_info, budget)
        if not filters and not volumes and self._reserved.of(pod_info.uid) is None:
            record_phase("Filter")
            best = signature_scores.best(budget, among.flags if among is not None else None)
            record_phase("Score")
            if best is None:
                return list(refused_rows(signature_scores, among, self._cache.nodes))
            row, placement = best
            if not self._nomination_conflicts(pod_info, budget)(row):
                return _Choice(row, placement, signature_scores.parts(row))
        outcome = self._choose_by_all(pod_info, signature_scores, volumes, filters, budget, among, record_phase)
        record_phase("Score")
        return outcome

    def _choose_by_all(
        self,
        pod_info: PodInfo,
        signature_scores: SignatureScores,
        volumes: VolumeFilters,
        filters: ClusterFilters,
        budget: PlacementBudget,
        among: Among | None,
        record_phase: RecordPhase,
    ) -> _Choice | list[RefusedRows]:
        """Filter and score nodes by volumes, and by affinity and spreading with all pods there, nominated ones
        included.

        Volumes may give a different result for each node. The best nodes are checked first, unless all have to be
        compared.
        """
        rows, refusals = signature_scores.passing(), list[RefusedRows]()
        if among is not None:
            rows = rows[among.flags[rows]]
        best_first = rows[self._in_order(pod_info, rows, signature_scores.scores(rows))]
        for batch in [rows] if filters else batches(best_first):
            outcome = self._choose_among(pod_info, signature_scores, batch, volumes, filters, budget, record_phase)
            if isinstance(outcome, _Choice):
                return outcome
            refusals += outcome
        return [*refused_rows(signature_scores, among, self._cache.nodes), *refusals]

    def _choose_among(
        self,
        pod_info: PodInfo,
        signature_scores: SignatureScores,
        rows: Rows,
        volumes: VolumeFilters,
        filters: ClusterFilters,
        budget: PlacementBudget,
        record_phase: RecordPhase,
    ) -> _Choice | list[RefusedRows]:
        """Choose the best of these rows; if none passes, return the reasons in addition to those of
        ``signature_scores``.
        """
        rows, refusals = sift(
            rows, [*volumes, *((plugin, cluster_filter.filter) for plugin, cluster_filter in filters)]
        )
        record_phase("Filter")
        totals, parts = signature_scores.scores(rows), {}
        for plugin, cluster_filter in filters:
            scores = cluster_filter.score(rows)
            if scores is not None:
                totals = totals + WEIGHT_OF[plugin.name] * scores
                parts[plugin.name] = scores
        conflicts = self._nomination_conflicts(pod_info, budget)
        for place in self._in_order(pod_info, rows, totals).tolist():
            row = int(rows[place])
            placement = signature_scores.exact(row, budget)
            if isinstance(placement, Refused):
                continue
            if texts := conflicts(row):
                events = LEAVING | ClusterEvent.NODE_ALLOCATABLE | self.events_that_help(pod_info)
                refusals.append(RefusedRows(events, texts, rows[place : place + 1]))
                continue
            own_scores = {name: int(scores[place]) for name, scores in parts.items()}
            return _Choice(row, placement, signature_scores.parts(row) | own_scores)
        return refusals

    def _in_order(self, pod_info: PodInfo, rows: Rows, totals: Amounts) -> Rows:
        """Return these rows in the order to try: first the pod's nominated node, which its victims have left, then by
        score.
        """
        nominated_pods = self._cache.nodes.row_of.get(self._reserved.node_of(pod_info.uid), -1)
        return np.lexsort((-totals, rows != nominated_pods))

    def _nomination_conflicts(self, pod_info: PodInfo, budget: PlacementBudget) -> Callable[[int], Texts]:
        """Return a function that returns why the pods nominated on a row exclude the pod there."""
        by_node = self._reserved.counting_for(pod_info)
        if not by_node:
            return _no_reasons
        dry_runs: DryRuns | None = None

        def texts(row: int) -> Texts:
            nonlocal dry_runs
            nominated_pods = by_node.get(self._cache.nodes.names[row])
            if not nominated_pods:
                return ()
            dry_runs = dry_runs or DryRuns(pod_info, self._cache, budget)
            with dry_runs.on(row, nominated_pods) as dry_run:
                refusal = dry_run.refusal()
            if not refusal or not any(map(self._reserved.is_later, nominated_pods)):
                return refusal
            fits, _ = fits_beside(pod_info, self._cache, self._reserved, row, nominated_pods, budget)
            return () if fits else refusal

        return texts

    def _unplaced(
        self, pod_info: PodInfo, refusals: Sequence[RefusedRows], search: VictimSearch, now: float
    ) -> Unschedulable | None:
        """Return why no node is possible, and whether the pod needs victims."""
        verdict = unschedulable(pod_info, refusals, self._cache.nodes, self._max_named_nodes)
        if not self._cache.nodes.row_of:
            return verdict
        helpable = [refusal for refusal in refusals if refusal.requeue_on & LEAVING and not refusal.permanent]
        by_ports = [refusal for refusal in helpable if refusal.requeue_on & ClusterEvent.PORTS_FREED]
        dry_runs = DryRuns(pod_info, self._cache, search.placement)
        proposal = self._preemption.seek(dry_runs, rows_of(helpable), rows_of(by_ports), search, now)
        if proposal is None:
            return None
        reason = f"{verdict.reason} preemption: {proposal.reason}" if proposal.reason else verdict.reason
        incomplete = search.placement.is_spent
        if isinstance(proposal, Futile):
            # Whether victims can help may depend on filters that reject no node with the current pods.
            helpful_events = self.events_that_help(pod_info) if helpable else NO_EVENT
            events = verdict.requeue_on | helpful_events
            return replace(verdict, reason=reason, requeue_on=events, is_incomplete=incomplete)
        reason_counts = {**verdict.why, "preemption": proposal.why}
        return replace(verdict, reason=reason, nominate=proposal, why=reason_counts, is_incomplete=incomplete)

    def events_that_help(self, pod_info: PodInfo) -> ClusterEvent:
        """Return the events that can help, from the filters of VFs, volumes and other pods that apply to a pod."""
        events = ClusterEvent.NODE_INVENTORY if pod_info.interfaces else NO_EVENT
        return events | requeue_on(pod_info, self._cache)

    def _bind(self, pod_info: PodInfo, choice: _Choice) -> Decision:
        node, total = self._cache.nodes.names[choice.row], len(self._cache.nodes.row_of)
        assignment = self._assign(pod_info, choice, node)
        # This writes the same bytes as `dump_assignment`, in a sixth of the time.
        annotation = _encode(assignment_fields(assignment)).decode() if assignment else ""
        annotations = annotations_of(annotation, self._sign)
        if fault := validate_annotations(pod_info.pod.annotations, annotations):
            return Unschedulable(pod_info, fault, NO_EVENT, {"v": 1, "nodes": total})
        assigned_pod = assigned_pod_for(pod_info, node, assignment)
        pfs: dict[str, list[int]] = {}
        for vf in assignment.vfs if assignment else ():
            pfs.setdefault(vf.pf, []).append(vf.vf)
        reason: dict[str, object] = {"v": 1, "node": node, "nodes": total, "scores": choice.scores, "pfs": pfs}
        if assignment is not None and assignment.ext:
            reason["ext"] = assignment.ext
        nodes, storage = self._cache.nodes, self._cache.volumes
        plan = volume_binding.plan(pod_info, nodes, storage, choice.row) if pod_info.volumes else None
        return Bind(pod_info, assigned_pod, annotations, reason, plan)

    def _assign(self, pod_info: PodInfo, choice: _Choice, node: str) -> Assignment | None:
        if choice.placement is None:
            return None
        nominated_pods = self._reserved.counting_for(pod_info).get(node)
        if nominated_pods:
            # The exact VFs for which nominated pods wait stay reserved for them.
            dry_runs = DryRuns(pod_info, self._cache, Steps(), reserves_only=True)
            with dry_runs.on(choice.row, nominated_pods) as dry_run:
                if (assignment := dry_run.assigned().assignment) is not None:
                    return assignment
            if any(map(self._reserved.is_later, nominated_pods)):
                _, assignment = fits_beside(pod_info, self._cache, self._reserved, choice.row, nominated_pods, Steps())
                if assignment is not None:
                    return assignment
        return assign(pod_info, self._cache, node, self._cache.nodes.free_vfs_of_row[choice.row], choice.placement)

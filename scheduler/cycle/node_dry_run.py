"""Evaluate one node for one pod with other pods on it: remove pods, add pods, evaluate, and finally restore everything.

Method: a set of parts (`PreFilterExtensions`), one for each plugin whose result depends on the node's pods. Each starts
with the node in the cache and follows every move, so all parts describe the same pods; the node passes exactly if no
part rejects it. The filters of volumes and of other pods are one part together. Filters of a node's own properties have
no part.

Correctness: most parts keep their own numbers. Where exact devices, counts of pods or volumes decide, a copy of the
cluster would cost more than the evaluation: such parts (``moves_cache``) move the pod in the cache itself. Moves
commute, so each pod's net moves are counted, and undone when the ``with`` block ends; nothing else runs meanwhile. With
``by_sums``, free VFs and Mb/s are only counted for each PF: the same result, as long as each VF has one claim.

Cost: some microseconds to create one. A move or an evaluation costs one operation for each resource, and for VFs one
placement, cached by the free VFs. The filters of the cluster run again only if they count a moved pod.
"""

from collections.abc import Mapping, Sequence

import numpy as np

from mooring.annotations.assignment import Assignment
from scheduler.cache.assigned_pod import AssignedPod
from scheduler.cache.cache import Cache
from scheduler.cache.node_columns import Rows
from scheduler.cycle.filters import NoNode, cluster_filters, volume_filters
from scheduler.kube.pod_info import PodInfo
from scheduler.kube.selection.affinity import AffinityInfo
from scheduler.placement.steps import Steps
from scheduler.plugins.interface import PreFilterExtensions, Texts
from scheduler.plugins.registry import CLUSTER_FILTERS, DRY_RUNS


class DryRuns:
    """The dry runs of one pod, with the state that they share; searches for a placement spend ``steps``.

    With ``reserves_only``, only what Mooring itself assigns is evaluated: VFs, and units of other kinds.
    """

    def __init__(self, pod_info: PodInfo, cache: Cache, steps: Steps, *, reserves_only: bool = False) -> None:
        self.pod_info, self.cache, self._steps = pod_info, cache, steps
        plugins = [plugin for plugin in DRY_RUNS if plugin.reserves or not reserves_only]
        dry_run_plugins = (plugin.pre_filter(pod_info, cache, steps) for plugin in plugins)
        # In the order of the registry, which is kube-scheduler's: the first part that rejects gives the reason.
        self._plugins = [plugin for plugin in dry_run_plugins if plugin is not None]
        # The parts that depend on free room.
        self.room_parts = [number for number, plugin in enumerate(self._plugins) if plugin.has_exact_room]
        self._cluster = None if reserves_only else _ClusterDryRuns(pod_info, cache)
        self.needs_others = not reserves_only and any(plugin.needs_others(pod_info) for plugin in CLUSTER_FILTERS)

    def rows_if_empty(self, rows: Rows) -> Rows:
        """Return the rows that could take the pod if it had the node to itself."""
        nodes = self.cache.nodes
        for plugin in self._plugins:
            if plugin.fits_empty is not None and len(rows):
                rows = rows[plugin.fits_empty(nodes.view(rows, self._steps)).astype(bool)]
        return rows

    def on(
        self,
        row: int,
        nominated_pods: Sequence[AssignedPod] = (),
        *,
        off: Sequence[AssignedPod] = (),
        by_sums: bool = False,
    ) -> "NodeDryRun":
        """Open a dry run on a node with these nominated pods and without those that are ``off``.

        With ``by_sums``, `NodeDryRun.assigned_pod` is not available.
        """
        # A nominated pod's VFs are not in the accounting from which the sums are made.
        parts = [plugin.on(row, by_sums and not nominated_pods) for plugin in self._plugins]
        if self._cluster is not None and self._cluster.concern(nominated_pods):
            parts.append(_ClusterPart(self._cluster, row))
        return NodeDryRun(self, row, nominated_pods, off, parts)


class NodeDryRun:
    """One node with its assigned pods and the pods nominated there, without those that are ``off``."""

    def __init__(
        self,
        dry_runs: DryRuns,
        row: int,
        nominated_pods: Sequence[AssignedPod],
        off: Sequence[AssignedPod],
        parts: Sequence[PreFilterExtensions],
    ) -> None:
        self._dry_runs, self._row, self._nominated_pods, self._off = dry_runs, row, nominated_pods, off
        # The pods moved in the cache itself, each with its net moves; its VFs here may not be its assigned ones.
        self._moves: dict[int, tuple[AssignedPod, int]] = {}
        self._parts = parts
        self._room_parts = [parts[number] for number in dry_runs.room_parts]
        self._cache_movers = [part for part in parts if part.moves_cache]

    def __enter__(self) -> "NodeDryRun":
        try:
            # A nominated pod may have VFs that these pods hold.
            self.take_off(*self._off)
            self.put_on(*self._nominated_pods)
        except BaseException:
            self.__exit__()
            raise
        return self

    def __exit__(self, *_: object) -> None:
        if not self._cache_movers:
            return
        # No VF must have two claims in the meantime.
        moves = list(self._moves.values())
        self.take_off(*(assigned_pod for assigned_pod, net in moves if net > 0))
        self.put_on(*(assigned_pod for assigned_pod, net in moves if net < 0))
        for part in self._cache_movers:
            part.close()

    def take_off(self, *assigned_pods: AssignedPod) -> None:
        self._move(assigned_pods, -1)

    def put_on(self, *assigned_pods: AssignedPod) -> None:
        self._move(assigned_pods, 1)

    def admits(self, assigned_pods: Sequence[AssignedPod]) -> bool:
        """Put pods back if the dry run's pod, which fits now, still fits with them; return whether they are back."""
        for part in self._room_parts:
            if not part.has_room_for(assigned_pods):
                return False
        self.put_on(*assigned_pods)
        if len(self._room_parts) == len(self._parts) or not self.refusal():
            return True
        self.take_off(*assigned_pods)
        return False

    def refusal(self) -> Texts:
        """Return why the pod may not be here now; empty if it may.

        Pods that its affinity requires must be assigned here: a nominated pod may never arrive.
        """
        refusal = self._refusal()
        if refusal or not self._nominated_pods or not self._dry_runs.needs_others:
            return refusal
        self.take_off(*self._nominated_pods)
        refusal = self._refusal()
        self.put_on(*self._nominated_pods)
        return refusal

    def assigned_pod(self) -> AssignedPod:
        """Return the pod as assigned here, with the VFs and other units that it would get if there are enough."""
        node = self._dry_runs.cache.nodes.names[self._row]
        assignments = (part.assignment() for part in self._parts)
        assignment = next((assignment for assignment in assignments if assignment is not None), None)
        return assigned_pod_for(self._dry_runs.pod_info, node, assignment)

    def _move(self, assigned_pods: Sequence[AssignedPod], sign: int) -> None:
        if not assigned_pods:
            return
        for assigned_pod in assigned_pods if self._cache_movers else ():
            self._moves[id(assigned_pod)] = assigned_pod, self._moves.get(id(assigned_pod), (assigned_pod, 0))[1] + sign
        for part in self._parts:
            part.move_pods(assigned_pods, sign)

    def _refusal(self) -> Texts:
        for part in self._parts:
            if refusal := part.filter():
                return refusal
        return ()


class _ClusterDryRuns:
    """The filters of volumes and other pods, for all dry runs of one pod."""

    def __init__(self, pod_info: PodInfo, cache: Cache) -> None:
        self._pod_info, self._cache = pod_info, cache
        self._has_filters = bool(pod_info.volumes) or bool(cluster_filters(pod_info, cache))
        # The reasons against each row while no pod is moved.
        self._refusals: Mapping[int, Texts] | None = None
        # Whether a rule counts pods with this affinity info. All rules have run before the first move.
        self._counted: dict[AffinityInfo, bool] = {}

    def concern(self, nominated_pods: Sequence[AssignedPod]) -> bool:
        """Return whether a filter applies. Removed pods cannot make it reject the pod, but nominated pods can."""
        if self._has_filters:
            return True
        return any(plugin.keeps_others_off(pod) for pod in nominated_pods for plugin in CLUSTER_FILTERS)

    def move(self, row: int, assigned_pod: AssignedPod, sign: int) -> bool:
        """Move a pod onto a row (``sign`` 1) or off it (-1) in the cache, if a filter counts it; return whether."""
        has_volumes = bool(self._pod_info.volumes and assigned_pod.volumes)
        if has_volumes:
            self._cache.volumes.usage.shift(self._cache.nodes.names[row], assigned_pod.volumes, sign)
        counts, info = self._cache.pod_counts, assigned_pod.affinity_info
        if info is None:
            return has_volumes
        if (is_counted := self._counted.get(info)) is None:
            is_counted = self._counted[info] = counts.is_counted(info)
        if is_counted:
            counts.shift(row, info, sign)
        return has_volumes or is_counted

    def refusal_before_moves(self, row: int) -> Texts:
        if self._refusals is None:
            self._refusals = self.refusals(self._cache.nodes.all_rows())
        return self._refusals.get(row, ())

    def refusals(self, rows: Rows) -> Mapping[int, Texts]:
        volumes = volume_filters(self._pod_info, self._cache)
        filters = [] if isinstance(volumes, NoNode) else [volume_filter for _, volume_filter in volumes]
        filters += [cluster_filter.filter for _, cluster_filter in cluster_filters(self._pod_info, self._cache)]
        texts_by_row: dict[int, Texts] = {}
        # All filters run even if one rejects the row: which pods a filter counts is known only after it has run.
        for judge in filters:
            refusals = judge(rows)
            if refusals is not None:
                indexes = np.flatnonzero(refusals.codes)
                texts_by_row = {int(rows[at]): refusals.texts[refusals.codes[at] - 1] for at in indexes} | texts_by_row
        return dict.fromkeys(rows.tolist(), (volumes.reason,)) if isinstance(volumes, NoNode) else texts_by_row


class _ClusterPart(PreFilterExtensions):
    """These filters on one node. Moves change the counts that they read; only such a move runs them again."""

    moves_cache = True

    def __init__(self, cluster: _ClusterDryRuns, row: int) -> None:
        self._cluster, self._row = cluster, row
        # Valid while only pods were moved that no filter counts.
        self._texts: Texts | None = cluster.refusal_before_moves(row)

    def move_pods(self, assigned_pods: Sequence[AssignedPod], sign: int) -> None:
        for assigned_pod in assigned_pods:
            if self._cluster.move(self._row, assigned_pod, sign):
                self._texts = None

    def filter(self) -> Texts:
        if self._texts is None:
            self._texts = self._cluster.refusals(np.array([self._row])).get(self._row, ())
        return self._texts


def assigned_pod_for(pod_info: PodInfo, node: str, assignment: Assignment | None = None) -> AssignedPod:
    return AssignedPod(
        uid=pod_info.uid,
        pod=pod_info.pod.key,
        node=node,
        resources=pod_info.resources,
        scored=pod_info.scored,
        ports=pod_info.ports,
        assignment=assignment,
        assumed=True,
        affinity_info=pod_info.affinity_info,
        volumes=pod_info.volumes,
        priority=pod_info.priority,
        always_restarts=pod_info.pod.spec.always_restarts,
        runs_s=pod_info.runs_s,
    )

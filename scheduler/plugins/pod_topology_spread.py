"""PodTopologySpread: the numbers of selected pods may differ by at most maxSkew between topology domains.

A hard constraint rejects nodes. A soft one scores them; it is also kube-scheduler's default for pods that a service or
a controller selects. Domains consist of the nodes that have all of the constraints' labels and that the constraint's
policies count. Pods that are being deleted do not count.
"""

import math
from collections.abc import Sequence

import numpy as np

from scheduler.cache.column import Amounts
from scheduler.cache.node_columns import Domains, Flags, NodeColumns, Rows, domains
from scheduler.cache.pod_counts import PodCounts, Question
from scheduler.kube.cluster_event import ClusterEvent
from scheduler.kube.pod_info import PodInfo
from scheduler.kube.selection.affinity import Scope
from scheduler.kube.selection.selectors import Selector
from scheduler.kube.selection.spread_constraints import TopologySpreadConstraint
from scheduler.plugins import node_affinity, taint_toleration
from scheduler.plugins.interface import ClusterFilterPlugin, Refusals

_REQUEUE_ON = ClusterEvent.NODE_REMOVED | ClusterEvent.NODE_LABELS | ClusterEvent.NODE_TAINTS
_REQUEUE_ON |= ClusterEvent.POD_GONE | ClusterEvent.POD_ASSIGNED | ClusterEvent.POD_LABELS
_HOSTNAME, _ZONE = "kubernetes.io/hostname", "topology.kubernetes.io/zone"
_SKEW = "node(s) didn't match pod topology spread constraints"
_TEXTS = ((_SKEW,), (f"{_SKEW} (missing required label)",))
_HAS_SKEW, _LACKS_LABEL = 1, 2


def pre_filter(pod_info: PodInfo, nodes: NodeColumns, pod_counts: PodCounts) -> "Spread | None":
    if pod_info.spread:
        return Spread(pod_info, nodes, pod_counts, pod_info.spread)
    selector = pod_counts.default_selectors.selector_of(pod_info.pod)
    return None if selector is None else Spread(pod_info, nodes, pod_counts, _default_constraints(selector))


def _default_constraints(selector: Selector) -> tuple[TopologySpreadConstraint, ...]:
    # Source: systemDefaultConstraints of podtopologyspread/plugin.go.
    return (
        TopologySpreadConstraint(_HOSTNAME, 3, False, selector),
        TopologySpreadConstraint(_ZONE, 5, False, selector),
    )


class Spread:
    """One pod's constraints against the currently assigned pods."""

    def __init__(
        self,
        pod_info: PodInfo,
        nodes: NodeColumns,
        pod_counts: PodCounts,
        constraints: Sequence[TopologySpreadConstraint],
    ) -> None:
        self._pod_info, self._nodes, self._pod_counts = pod_info, nodes, pod_counts
        self._hard = [constraint for constraint in constraints if constraint.hard]
        self._soft = [constraint for constraint in constraints if not constraint.hard]
        # By default, a node without a zone counts only for the spreading by host name.
        self._needs_all_labels = bool(pod_info.spread)
        self._domains = {constraint.key: domains(nodes, constraint.key) for constraint in constraints}
        # The rows that count by both policies, for the hard constraints and for the soft ones.
        self._count_flags: dict[tuple[bool, bool, bool], Flags] = {}

    def filter(self, rows: Rows) -> Refusals:
        codes = np.zeros(len(rows), np.int16)
        flags = self._having_labels(self._hard)
        for constraint in self._hard:
            of, among = self._domains[constraint.key], self._rows_that_count(constraint, flags)
            sums, domain_flags = of.sums(self._counts(constraint), among), of.domain_flags(among)
            # The minimum of the domains that count; 0 if there are too few of them.
            has_enough = np.count_nonzero(domain_flags) >= max(constraint.min_domains, 1)
            fewest = int(sums[domain_flags].min()) if has_enough else 0
            max_count = constraint.max_skew + fewest - constraint.selector.matches(self._pod_info.labels)
            row_codes = np.where(of.have(rows), (sums[of.ids[rows]] > max_count) * _HAS_SKEW, _LACKS_LABEL)
            codes = np.where(codes == 0, row_codes, codes)
        return Refusals(codes.astype(np.int16), _TEXTS)

    def score(self, rows: Rows) -> Amounts:
        if not self._soft:
            return np.zeros(len(rows), np.int64)
        flags = self._having_labels(self._soft) if self._needs_all_labels else self._nodes.valid[: self._nodes.size]
        is_scored = flags[rows]
        raw = np.zeros(len(rows))
        for constraint in self._soft:
            of = self._domains[constraint.key]
            has = of.have(rows)
            counts, size = self._crowds(constraint, of, flags, rows[is_scored])
            # Small differences between domains matter less the larger maxSkew is.
            raw += np.where(has, counts[rows] * math.log(size + 2) + (constraint.max_skew - 1), 0.0)
        return _normalise(np.floor(raw + 0.5).astype(np.int64), is_scored)

    def _crowds(
        self, constraint: TopologySpreadConstraint, of: Domains, flags: Flags, rows: Rows
    ) -> tuple[Amounts, int]:
        """Return for each row the matching pods in its domain, and how many domains there are to choose from."""
        counts = self._counts(constraint)
        if constraint.key == _HOSTNAME:
            return counts, len(rows)
        sums = of.sums(counts, self._rows_that_count(constraint, flags))
        # Nodes without the label, which count by default, form one domain.
        return sums[of.ids], len(np.unique(of.ids[rows]))

    def _counts(self, constraint: TopologySpreadConstraint) -> Amounts:
        scope = Scope(constraint.selector, frozenset((self._pod_info.pod.metadata.namespace,)))
        return self._pod_counts.counts(Question((scope,), living_only=True), self._nodes.size)

    def _having_labels(self, constraints: Sequence[TopologySpreadConstraint]) -> Flags:
        flags = self._nodes.valid[: self._nodes.size].copy()
        for constraint in constraints:
            flags &= self._domains[constraint.key].ids > 0
        return flags

    def _rows_that_count(self, constraint: TopologySpreadConstraint, flags: Flags) -> Flags:
        key = constraint.hard, constraint.honor_affinity, constraint.honor_taints
        if key not in self._count_flags:
            rows = np.flatnonzero(flags)
            if constraint.honor_affinity:
                rows = rows[node_affinity.required_match(self._pod_info, self._nodes, rows)]
            if constraint.honor_taints:
                rows = rows[taint_toleration.admission(self._pod_info, self._nodes, rows)]
            self._count_flags[key] = self._nodes.flags(rows)
        return self._count_flags[key]


def _normalise(raw: Amounts, is_scored: Flags) -> Amounts:
    """Convert numbers of pods to scores: 100 for the fewest if they are none; 0 if nothing is scored."""
    if not is_scored.any():
        return np.zeros(len(raw), np.int64)
    lowest, highest = raw[is_scored].min(), raw[is_scored].max()
    scores: Amounts = np.full(len(raw), 100) if highest == 0 else 100 * (highest + lowest - raw) // highest
    return np.where(is_scored, scores, 0)


FILTER = ClusterFilterPlugin("PodTopologySpread", pre_filter, _REQUEUE_ON, permanent=frozenset(_TEXTS[1:]))

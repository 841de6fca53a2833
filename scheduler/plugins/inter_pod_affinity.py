"""InterPodAffinity: place pods near others, or away from them, by their own terms and the others' terms.

The pod's required terms, and the required anti-affinity of assigned pods, reject nodes. The pod's preferred terms, and
the preferred terms and required affinity of assigned pods, score them. A pod whose required affinity no pod satisfies
may be placed if it satisfies the affinity itself. `scheduler.cache.pod_counts` counts the terms of assigned pods, the
preferred ones by their weights; a required one weighs `_HARD_POD_AFFINITY_WEIGHT`.
"""

from collections.abc import Iterable, Iterator, Sequence

import numpy as np

from scheduler.cache.assigned_pod import AssignedPod
from scheduler.cache.column import Amounts
from scheduler.cache.node_columns import Flags, NodeColumns, Rows
from scheduler.cache.pod_counts import CountedTerms, PodCounts, Question
from scheduler.cache.row_counts import RowCounts
from scheduler.cache.topology_domains import Domains, domains
from scheduler.kube.cluster_event import ClusterEvent
from scheduler.kube.pod_info import PodInfo
from scheduler.kube.selection.affinity import Term
from scheduler.plugins.interface import ClusterFilterPlugin, Refusals

_REQUEUE_ON = (
    ClusterEvent.NODE_ADDED
    | ClusterEvent.NODE_REMOVED
    | ClusterEvent.NODE_LABELS
    | ClusterEvent.POD_GONE
    | ClusterEvent.POD_ASSIGNED
    | ClusterEvent.POD_LABELS
    | ClusterEvent.NAMESPACE
)
_TEXTS = (
    ("node(s) didn't match pod affinity rules",),
    ("node(s) didn't match pod anti-affinity rules",),
    ("node(s) didn't satisfy existing pods anti-affinity rules",),
)
# Source: the default of hardPodAffinityWeight in InterPodAffinityArgs.
_HARD_POD_AFFINITY_WEIGHT = 1
# A weight, and the terms whose counts it multiplies.
_WeightedTerms = Sequence[tuple[int, CountedTerms]]


def pre_filter(pod_info: PodInfo, nodes: NodeColumns, pod_counts: PodCounts) -> "PodAffinityFilter | None":
    affinity_info, labels = pod_info.affinity_info, pod_counts.namespace_labels(pod_info.affinity_info.namespace)
    existing_anti_affinity = pod_counts.terms["anti_affinity"].about(affinity_info, labels)
    existing_affinity = pod_counts.terms["affinity"].about(affinity_info, labels)
    existing_preferences = pod_counts.terms["preferred"].about(affinity_info, labels)
    if not (
        affinity_info.required_affinity
        or affinity_info.required_anti_affinity
        or affinity_info.preferred
        or existing_anti_affinity
        or existing_affinity
        or existing_preferences
    ):
        return None
    scoring_terms = (_HARD_POD_AFFINITY_WEIGHT, existing_affinity), (1, existing_preferences)
    return PodAffinityFilter(pod_info, nodes, pod_counts, existing_anti_affinity, scoring_terms)


class PodAffinityFilter:
    """One pod's terms, and the assigned pods' terms that select it, against the currently assigned pods."""

    def __init__(
        self,
        pod_info: PodInfo,
        nodes: NodeColumns,
        pod_counts: PodCounts,
        existing_anti_affinity: CountedTerms,
        scoring_terms: _WeightedTerms,
    ) -> None:
        self._affinity_info, self._nodes, self._pod_counts = pod_info.affinity_info, nodes, pod_counts
        self._existing_anti_affinity, self._scoring_terms = existing_anti_affinity, scoring_terms
        self._domains: dict[str, Domains] = {}

    def filter(self, rows: Rows) -> Refusals:
        codes = np.zeros(len(rows), np.int16)
        for code, flags in enumerate(
            (self._fails_affinity(rows), self._fails_anti_affinity(rows), self._fails_existing_anti_affinity(rows)), 1
        ):
            if flags is not None:
                codes[flags & (codes == 0)] = code
        return Refusals(codes, _TEXTS)

    def score(self, rows: Rows) -> Amounts:
        raw = np.zeros(len(rows), np.int64)
        for term, weight in self._affinity_info.preferred:
            of = self._of(term.key)
            raw += weight * of.sums(self._counts((term,)))[of.ids[rows]]
        for weight, terms in self._scoring_terms:
            for of, sums in self._sums(terms):
                raw += weight * sums[of.ids[rows]]
        return _normalise(raw)

    def _fails_affinity(self, rows: Rows) -> Flags | None:
        """Return which rows are not near pods that satisfy all of the required affinity."""
        terms = self._affinity_info.required_affinity
        if not terms:
            return None
        counts = self._counts(terms)
        in_domains, near, is_first = np.ones(len(rows), np.bool_), np.ones(len(rows), np.bool_), True
        for key in {term.key for term in terms}:
            of = self._of(key)
            sums = of.sums(counts)
            in_domains &= of.have(rows)
            near &= sums[of.ids[rows]] > 0
            is_first = is_first and not sums.any()
        comes_first = is_first and self._satisfies_itself(terms)
        return ~in_domains if comes_first else ~near

    def _satisfies_itself(self, terms: Sequence[Term]) -> bool:
        affinity_info = self._affinity_info
        return _question(terms).counts(affinity_info, self._pod_counts.namespace_labels(affinity_info.namespace))

    def _fails_anti_affinity(self, rows: Rows) -> Flags | None:
        """Return which rows are near pods that the pod's anti-affinity excludes."""
        if not self._affinity_info.required_anti_affinity:
            return None
        near = np.zeros(len(rows), np.bool_)
        for term in self._affinity_info.required_anti_affinity:
            of = self._of(term.key)
            near |= of.sums(self._counts((term,)))[of.ids[rows]] > 0
        return near

    def _fails_existing_anti_affinity(self, rows: Rows) -> Flags | None:
        """Return which rows are near pods whose anti-affinity excludes the pod."""
        if not self._existing_anti_affinity:
            return None
        near = np.zeros(len(rows), np.bool_)
        for of, sums in self._sums(self._existing_anti_affinity):
            near |= sums[of.ids[rows]] > 0
        return near

    def _sums(self, terms: CountedTerms) -> Iterator[tuple[Domains, Amounts]]:
        """Yield the domains of each label that terms name, and the counts in each domain: there may be thousands of
        terms.
        """
        by_key = dict[str, list[RowCounts]]()
        for term, row_counts in terms.items():
            by_key.setdefault(term.key, []).append(row_counts)
        for key, parts in by_key.items():
            of = self._of(key)
            yield of, of.row_sums(*RowCounts.joint_rows(parts))

    def _of(self, key: str) -> Domains:
        label_domains = self._domains.get(key)
        if label_domains is None:
            label_domains = self._domains[key] = domains(self._nodes, key)
        return label_domains

    def _counts(self, terms: Iterable[Term]) -> Amounts:
        return self._pod_counts.counts(_question(terms), self._nodes.size)


def _question(terms: Iterable[Term]) -> Question:
    return Question(tuple(term.scope for term in terms))


def _normalise(raw: Amounts) -> Amounts:
    lowest = raw.min(initial=0) if not len(raw) else raw.min()
    span = raw.max() - lowest if len(raw) else 0
    if not span:
        return np.zeros(len(raw), np.int64)
    scores: Amounts = (100.0 * ((raw - lowest) / span)).astype(np.int64)
    return scores


def needs_others(pod_info: PodInfo) -> bool:
    return bool(pod_info.affinity_info.required_affinity)


def keeps_others_off(assigned_pod: AssignedPod) -> bool:
    return assigned_pod.affinity_info is not None and bool(assigned_pod.affinity_info.required_anti_affinity)


FILTER = ClusterFilterPlugin(
    "InterPodAffinity",
    pre_filter,
    _REQUEUE_ON,
    lasting=frozenset(_TEXTS[:1]),
    needs_others=needs_others,
    keeps_others_off=keeps_others_off,
)

"""InterPodAffinity: place pods near others, or away from them, by their own terms and the others' terms.

The pod's required terms, and the required anti-affinity of assigned pods, reject nodes. The pod's preferred terms, and
the preferred terms and required affinity of assigned pods, score them. A pod whose required affinity no pod satisfies
may be placed if it satisfies the affinity itself. `scheduler.cache.pod_counts` counts the terms of assigned pods, the
preferred ones by their weights; a required one weighs `_HARD_POD_AFFINITY_WEIGHT`.
"""

from collections.abc import Iterable, Iterator, Mapping, Sequence

import numpy as np

from scheduler.cache.assigned_pod import AssignedPod
from scheduler.cache.column import Amounts
from scheduler.cache.node_columns import Domains, Flags, NodeColumns, Rows, domains
from scheduler.cache.pod_counts import CountedTerms, PodCounts, Question, TermKind
from scheduler.cache.row_counts import RowCounts
from scheduler.kube.cluster_event import ClusterEvent
from scheduler.kube.pod_info import PodInfo
from scheduler.kube.selection.affinity import Term
from scheduler.plugins.interface import ClusterFilterPlugin, Refusals

_REQUEUE_ON = ClusterEvent.NODE_REMOVED | ClusterEvent.NODE_LABELS | ClusterEvent.NAMESPACE
_REQUEUE_ON |= ClusterEvent.POD_GONE | ClusterEvent.POD_ASSIGNED | ClusterEvent.POD_LABELS
_TEXTS = (
    ("node(s) didn't match pod affinity rules",),
    ("node(s) didn't match pod anti-affinity rules",),
    ("node(s) didn't satisfy existing pods anti-affinity rules",),
)
# Source: the default of hardPodAffinityWeight in InterPodAffinityArgs.
_HARD_POD_AFFINITY_WEIGHT = 1


def pre_filter(pod_info: PodInfo, nodes: NodeColumns, pod_counts: PodCounts) -> "PodAffinityFilter | None":
    info, labels = pod_info.affinity_info, pod_counts.namespace_labels(pod_info.affinity_info.namespace)
    existing = {kind: terms.about(info, labels) for kind, terms in pod_counts.terms.items()}
    if info.required_affinity or info.required_anti_affinity or info.preferences or any(existing.values()):
        return PodAffinityFilter(pod_info, nodes, pod_counts, existing)
    return None


class PodAffinityFilter:
    """One pod's terms, and the ``existing`` terms of assigned pods that select it, against the assigned pods."""

    def __init__(
        self, pod_info: PodInfo, nodes: NodeColumns, pod_counts: PodCounts, existing: Mapping[TermKind, CountedTerms]
    ) -> None:
        self._affinity_info, self._nodes, self._pod_counts = pod_info.affinity_info, nodes, pod_counts
        self._existing_anti_affinity = existing["anti_affinity"]
        self._scoring_terms = (_HARD_POD_AFFINITY_WEIGHT, existing["affinity"]), (1, existing["preferred"])
        self._domains: dict[str, Domains] = {}

    def filter(self, rows: Rows) -> Refusals:
        codes, info = np.zeros(len(rows), np.int16), self._affinity_info
        # In reverse: the first reason against a row counts.
        if self._existing_anti_affinity:
            codes[_are_near(self._sums(self._existing_anti_affinity), rows)] = 3
        if info.required_anti_affinity:
            codes[_are_near(map(self._term_sums, info.required_anti_affinity), rows)] = 2
        if info.required_affinity:
            codes[self._lacks_affinity(info.required_affinity, rows)] = 1
        return Refusals(codes, _TEXTS)

    def score(self, rows: Rows) -> Amounts:
        raw = np.zeros(len(rows), np.int64)
        for term, weight in self._affinity_info.preferences:
            of, sums = self._term_sums(term)
            raw += weight * sums[of.ids[rows]]
        for weight, terms in self._scoring_terms:
            for of, sums in self._sums(terms):
                raw += weight * sums[of.ids[rows]]
        return _normalise(raw)

    def _lacks_affinity(self, terms: Sequence[Term], rows: Rows) -> Flags:
        """Return which rows are not near pods that satisfy all of these terms.

        If there are none anywhere and the pod satisfies the terms itself, it comes first.
        """
        counts = self._counts(terms)
        in_domains, near, is_first = np.ones(len(rows), np.bool_), np.ones(len(rows), np.bool_), True
        for key in {term.key for term in terms}:
            of = self._of(key)
            sums = of.sums(counts)
            in_domains &= of.have(rows)
            near &= sums[of.ids[rows]] > 0
            is_first = is_first and not sums.any()
        info = self._affinity_info
        if is_first and _question(terms).counts(info, self._pod_counts.namespace_labels(info.namespace)):
            return ~in_domains
        return ~near

    def _term_sums(self, term: Term) -> tuple[Domains, Amounts]:
        of = self._of(term.key)
        return of, of.sums(self._counts((term,)))

    def _sums(self, terms: CountedTerms) -> Iterator[tuple[Domains, Amounts]]:
        """Yield the domains of each label that terms name, and the counts in each: there may be thousands of terms."""
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


def _are_near(sums_by_label: Iterable[tuple[Domains, Amounts]], rows: Rows) -> Flags:
    """Return which rows are in a domain with counted pods."""
    near = np.zeros(len(rows), np.bool_)
    for of, sums in sums_by_label:
        near |= sums[of.ids[rows]] > 0
    return near


def _normalise(raw: Amounts) -> Amounts:
    if not len(raw) or raw.min() == raw.max():
        return np.zeros(len(raw), np.int64)
    scores: Amounts = (100.0 * ((raw - raw.min()) / (raw.max() - raw.min()))).astype(np.int64)
    return scores


def _keeps_others_off(assigned_pod: AssignedPod) -> bool:
    return assigned_pod.affinity_info is not None and bool(assigned_pod.affinity_info.required_anti_affinity)


FILTER = ClusterFilterPlugin(
    "InterPodAffinity",
    pre_filter,
    _REQUEUE_ON,
    permanent=frozenset(_TEXTS[:1]),
    needs_others=lambda pod_info: bool(pod_info.affinity_info.required_affinity),
    keeps_others_off=_keeps_others_off,
)

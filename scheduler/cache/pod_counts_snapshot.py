"""A snapshot of the pod counts with additional changes, private to one decision.

It stores the differences from the live counts, pod by pod. When a question is first asked here, its counts are copied
from the live ones and corrected by the differences; from then on they are kept here. The counts of a term are copied
before they first change, here or there: the live counts report each pod before it is added or removed.

The labels of namespaces, and what services and controllers select, are those of the live counts. Results based on older
labels are checked again before they count (`is_outdated`).
"""

from collections import Counter, OrderedDict
from collections.abc import Mapping, Sequence

from scheduler.cache.counters import shift
from scheduler.cache.pod_counts import (
    TERM_KINDS,
    CountedTerms,
    PodCounts,
    Question,
    TermKind,
    Terms,
    selects,
    weighted_terms,
)
from scheduler.cache.row_counts import RowCounts
from scheduler.kube.selection.affinity import AffinityInfo, Term

# Number of questions that are kept, and of distinct pods for which it is kept which terms select them.
_MOST_QUESTIONS = 64
_MAX_PODS = 32
# How many more pods of one kind are on a row.
Moves = Counter[tuple[int, AffinityInfo]]


class PodCountsSnapshot(PodCounts):
    """The counts at one moment, and the pods that were added or removed since."""

    def __init__(self, live: PodCounts) -> None:
        super().__init__()
        self._live = live
        self.default_selectors = live.default_selectors
        # What this snapshot has in addition to the live counts; and what was added to these since.
        self._moves: Moves = Counter()
        self._live_moves: Moves = Counter()
        self._counts_of: OrderedDict[Question, RowCounts] = OrderedDict()
        # Whether some questions were dropped.
        self._has_dropped_questions = False
        self.terms = self._terms_of_kind = {kind: _TermsSnapshot(live, kind) for kind in TERM_KINDS}
        live.followers.add(self)

    def pod_moved(self, row: int, affinity_info: AffinityInfo, by: int) -> None:
        """Process that a pod is added to the live counts or removed: here it is not."""
        shift(self._live_moves, (row, affinity_info), by)
        shift(self._moves, (row, affinity_info), -by)
        for kind, term, _ in weighted_terms(affinity_info):
            self._terms_of_kind[kind].own(term)

    @property
    def is_outdated(self) -> bool:
        return any(
            self._has_dropped_questions
            or any(question.counts(info, self.namespace_labels(info.namespace)) for question in self._counts_of)
            or any(self._terms_of_kind[kind].has_selected(term) for kind, term, _ in weighted_terms(info))
            for _, info in self._live_moves
        )

    def add_all(self, rows_by_info: Mapping[AffinityInfo, Sequence[int]]) -> None:
        for affinity_info, rows in rows_by_info.items():
            for row in rows:
                self.shift(row, affinity_info, 1)

    def is_counted(self, affinity_info: AffinityInfo) -> bool:
        """Return True: pods without questions cost little here."""
        return True

    def namespace_names(self) -> frozenset[str]:
        return self._live.namespace_names()

    def namespace_labels(self, name: str) -> Mapping[str, str]:
        return self._live.namespace_labels(name)

    def row_counts(self, question: Question, size: int) -> RowCounts:
        row_counts = self._counts_of.get(question)
        if row_counts is None:
            row_counts = self._live.row_counts(question, size).copy()
            for (row, affinity_info), by in self._moves.items():
                if question.counts(affinity_info, self.namespace_labels(affinity_info.namespace)):
                    row_counts.shift(row, by)
            if len(self._counts_of) == _MOST_QUESTIONS:
                self._counts_of.popitem(last=False)
                self._has_dropped_questions = True
            self._counts_of[question] = row_counts
        return row_counts

    def shift(self, row: int, affinity_info: AffinityInfo, by: int) -> None:
        shift(self._moves, (row, affinity_info), by)
        for question, row_counts in self._counts_of.items():
            if question.counts(affinity_info, self.namespace_labels(affinity_info.namespace)):
                row_counts.shift(row, by)
        for kind, term, weight in weighted_terms(affinity_info):
            self._terms_of_kind[kind].own(term).shift(row, by * weight)


class _TermsSnapshot(Terms):
    """The terms of one kind with their counts: copies of those that have changed since, otherwise the live counts."""

    def __init__(self, counts: PodCounts, kind: TermKind) -> None:
        super().__init__()
        self._counts, self._live = counts, counts.terms[kind]
        # The last pods that were asked about.
        self._pods: OrderedDict[AffinityInfo, None] = OrderedDict()
        self._has_dropped_pods = False

    def about(self, affinity_info: AffinityInfo, namespace_labels: Mapping[str, str]) -> CountedTerms:
        self._pods[affinity_info] = None
        if len(self._pods) > _MAX_PODS:
            self._pods.popitem(last=False)
            self._has_dropped_pods = True
        terms = self._live.about(affinity_info, namespace_labels)
        return {**terms, **super().about(affinity_info, namespace_labels)} if self.row_counts else terms

    def own(self, term: Term) -> RowCounts:
        """Return the counts of a term that is about to change here, or in the live counts."""
        return self.row_counts.get(term) or self.use(term, self._live.row_counts.get(term))

    def has_selected(self, term: Term) -> bool:
        """Return whether a term selects, or may select, a pod that was asked about."""
        return self._has_dropped_pods or any(
            selects(term, pod, self._counts.namespace_labels(pod.namespace)) for pod in self._pods
        )

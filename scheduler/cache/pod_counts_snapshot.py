"""The pod counts of one moment, and what is counted on top of them: private to one decision.

What it is: the differences to the live counts, pod by pod. A question's counts are those of the live ones, with the
differences, as soon as it is asked here; from then on they are kept here.

Why it is right: the live counts report each pod that comes or goes, and here it is noted the other way round. The
labels of namespaces, and what services and controllers select, are those of the live counts: what was decided by older
ones is checked again before it holds (`is_outdated`).

What it costs: nothing for a pod that is not moved; a copy of the counts for each question.
"""

from collections import Counter, OrderedDict
from collections.abc import Mapping, Sequence

from scheduler.cache.pod_counts import CountedTerms, PodCounts, Question, TermKind, Terms, selects, weighted_terms
from scheduler.cache.row_counts import RowCounts
from scheduler.kube.selection.affinity import AffinityInfo, Term

# Questions that are kept, and pods that differ for which it is kept which terms select them.
_MOST_QUESTIONS = 64
_MAX_PODS = 32
# How many more pods of one kind are on a row.
Moves = Counter[tuple[int, AffinityInfo]]


class PodCountsSnapshot(PodCounts):
    """The counts of when it was made, and the pods that were added to them or removed since."""

    def __init__(self, live: PodCounts) -> None:
        super().__init__()
        self._live = live
        self.default_selectors = live.default_selectors
        # What this has beyond the live counts; and what came to these since.
        self._moves: Moves = Counter()
        self._live_moves: Moves = Counter()
        self._counts_of: OrderedDict[Question, RowCounts] = OrderedDict()
        # Whether not all that was asked is kept.
        self._has_dropped_questions = False
        self._terms_of_kind: dict[TermKind, _TermsSnapshot] = {
            "anti_affinity": _TermsSnapshot(live, "anti_affinity", live.anti_affinity_terms, self._moves),
            "affinity": _TermsSnapshot(live, "affinity", live.affinity_terms, self._moves),
            "preferred": _TermsSnapshot(live, "preferred", live.preferred_terms, self._moves),
        }
        self.anti_affinity_terms = self._terms_of_kind["anti_affinity"]
        self.affinity_terms = self._terms_of_kind["affinity"]
        self.preferred_terms = self._terms_of_kind["preferred"]
        live.followers.add(self)

    def pod_moved(self, row: int, affinity_info: AffinityInfo, by: int) -> None:
        """Take in that a pod has come to the live counts, or has gone: here it has not."""
        _shift(self._live_moves, row, affinity_info, by)
        _shift(self._moves, row, affinity_info, -by)

    @property
    def is_outdated(self) -> bool:
        """Return whether pods have come or gone in the live counts that something asked here counts."""
        return any(
            self._has_dropped_questions
            or any(question.counts(info, self.namespace_labels(info.namespace)) for question in self._counts_of)
            or any(self._terms_of_kind[kind].has_selected(term) for kind, term, _ in weighted_terms(info))
            for _, info in self._live_moves
        )

    def add_all(self, rows: Sequence[int], affinity_info: AffinityInfo) -> None:
        for row in rows:
            self._move(row, affinity_info, 1)

    def remove(self, row: int, affinity_info: AffinityInfo) -> None:
        self._move(row, affinity_info, -1)

    def is_asked_about(self, affinity_info: AffinityInfo) -> bool:
        """Return True: what is not asked about costs little here."""
        return True

    def is_passed_over(self, affinity_info: AffinityInfo) -> bool:
        """Return False, likewise."""
        return False

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

    def _move(self, row: int, affinity_info: AffinityInfo, by: int) -> None:
        for follower in self.followers:
            follower.pod_moved(row, affinity_info, by)
        _shift(self._moves, row, affinity_info, by)
        for question, row_counts in self._counts_of.items():
            if question.counts(affinity_info, self.namespace_labels(affinity_info.namespace)):
                row_counts.shift(row, by)
        for kind, term, weight in weighted_terms(affinity_info):
            self._terms_of_kind[kind].shift(row, term, by * weight)


class _TermsSnapshot(Terms):
    """The terms of one kind that pods have, as they select the pods that were asked about."""

    def __init__(self, counts: PodCounts, kind: TermKind, live: Terms, moves: Moves) -> None:
        super().__init__()
        self._counts, self._kind, self._live, self._moves = counts, kind, live, moves
        self._terms_of: OrderedDict[AffinityInfo, dict[Term, RowCounts]] = OrderedDict()
        self._has_dropped_pods = False

    def about(self, affinity_info: AffinityInfo, namespace_labels: Mapping[str, str]) -> CountedTerms:
        terms = self._terms_of.get(affinity_info)
        if terms is None:
            live = self._live.about(affinity_info, namespace_labels)
            terms = {term: row_counts.copy() for term, row_counts in live.items()}
            for (row, mover), by in self._moves.items():
                for kind, term, weight in weighted_terms(mover):
                    if kind == self._kind and self._selects(term, affinity_info):
                        terms.setdefault(term, RowCounts()).shift(row, by * weight)
            if len(self._terms_of) == _MAX_PODS:
                self._terms_of.popitem(last=False)
                self._has_dropped_pods = True
            self._terms_of[affinity_info] = terms
        return terms

    def has_selected(self, term: Term) -> bool:
        """Return whether a term selects a pod that was asked about, or may do so."""
        return self._has_dropped_pods or any(self._selects(term, pod) for pod in self._terms_of)

    def shift(self, row: int, term: Term, by: int) -> None:
        """Count a term on a row so many times more."""
        for pod, terms in self._terms_of.items():
            if self._selects(term, pod):
                terms.setdefault(term, RowCounts()).shift(row, by)

    def _selects(self, term: Term, pod: AffinityInfo) -> bool:
        return selects(term, pod, self._counts.namespace_labels(pod.namespace))


def _shift(moves: Moves, row: int, affinity_info: AffinityInfo, by: int) -> None:
    key = row, affinity_info
    moves[key] += by
    if not moves[key]:
        del moves[key]

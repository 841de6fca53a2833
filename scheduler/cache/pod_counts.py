"""Pod counts by node, for the plugins that count pods: "how many of these pods are on each row?"

A question is counted from the pods when it is first asked, and updated from then on; the least recently asked questions
are dropped. The terms of assigned pods are kept by content, not by pod: "does the anti-affinity of any pod exclude this
one" reads the distinct terms that could select it. A pod costs almost nothing here unless it has terms, or a question
counts pods like it.
"""

from collections import OrderedDict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Literal, get_args
from weakref import WeakSet

import msgspec

from scheduler.cache.row_counts import Counts, RowCounts
from scheduler.kube.selection.affinity import AffinityInfo, Scope, Term
from scheduler.kube.selection.spread_constraints import DefaultSelectors

# Questions are dropped beyond this many counts (rows x questions): 32 MiB.
_MOST_COUNTS = 1 << 22
_FEWEST_QUESTIONS = 64
# They are also dropped beyond this many labels, values and namespaces in all: about 100 bytes each.
_MAX_NAMES = 1 << 16
_NO_LABELS: Mapping[str, str] = {}


# Terms with how many pods have them on which rows.
CountedTerms = Mapping[Term, RowCounts]
# Of required anti-affinity, required affinity, and preferences, which count by their weights.
TermKind = Literal["anti_affinity", "affinity", "preferred"]
TERM_KINDS: tuple[TermKind, ...] = get_args(TermKind)


class Question(msgspec.Struct, frozen=True, cache_hash=True, gc=False):
    """The pods that all of these scopes cover; for topology spread only those that are not being deleted."""

    scopes: tuple[Scope, ...]
    living_only: bool = False

    def counts(self, affinity_info: AffinityInfo, namespace_labels: Mapping[str, str]) -> bool:
        return self.covers(affinity_info.namespace, namespace_labels) and self.matches(affinity_info)

    def covers(self, namespace: str, namespace_labels: Mapping[str, str]) -> bool:
        return all(scope.covers(namespace, namespace_labels) for scope in self.scopes)

    def matches(self, affinity_info: AffinityInfo) -> bool:
        """Return whether the question counts a pod with this affinity info, regardless of its namespace."""
        if self.living_only and affinity_info.is_terminating:
            return False
        return all(scope.selector.selects(affinity_info.labels) for scope in self.scopes)

    @property
    def namespaces(self) -> frozenset[str] | None:
        """Return the namespaces that the question covers; None if they are selected by labels."""
        namespace_sets = [scope.namespaces for scope in self.scopes if scope.within.nothing]
        return frozenset.intersection(*namespace_sets) if namespace_sets else None


def _count_names(question: Question) -> int:
    selectors = [selector for scope in question.scopes for selector in (scope.selector, scope.within)]
    label_count = sum(1 + len(need.values or ()) for selector in selectors for need in selector.needs)
    label_count += sum(len(selector.equal) for selector in selectors)
    return label_count + sum(len(scope.namespaces) for scope in question.scopes)


@dataclass(slots=True)
class _Group:
    """The pods with equal affinity info: how many each row has, and which counts one changes by how much."""

    rows: dict[int, int] = field(default_factory=dict)
    moves: list[tuple[RowCounts, int]] = field(default_factory=list)


class Terms:
    """Distinct terms of assigned pods with their counts, found by namespace and by a label that they require."""

    def __init__(self) -> None:
        self.row_counts: dict[Term, RowCounts] = {}
        self._by_place: dict[tuple[str | None, tuple[str, str] | None], dict[Term, RowCounts]] = {}

    def use(self, term: Term, first_counts: RowCounts | None = None) -> RowCounts:
        """Return a term's counts; each use ends with `leave`. A new term begins with ``first_counts``."""
        row_counts = self.row_counts.get(term)
        if row_counts is None:
            row_counts = self.row_counts[term] = RowCounts() if first_counts is None else first_counts.copy()
            for place in _places(term):
                self._by_place.setdefault(place, {})[term] = row_counts
        row_counts.users += 1
        return row_counts

    def leave(self, term: Term) -> None:
        row_counts = self.row_counts[term]
        row_counts.users -= 1
        if row_counts.users:
            return
        del self.row_counts[term]
        for place in _places(term):
            del self._by_place[place][term]
            if not self._by_place[place]:
                del self._by_place[place]

    def about(self, affinity_info: AffinityInfo, namespace_labels: Mapping[str, str]) -> CountedTerms:
        return {
            term: row_counts
            for namespace in ((affinity_info.namespace, None) if self.row_counts else ())
            for label in (None, *affinity_info.labels)
            for term, row_counts in self._by_place.get((namespace, label), {}).items()
            if selects(term, affinity_info, namespace_labels)
        }


def weighted_terms(affinity_info: AffinityInfo) -> Iterator[tuple[TermKind, Term, int]]:
    for term in affinity_info.required_anti_affinity:
        yield "anti_affinity", term, 1
    for term in affinity_info.required_affinity:
        yield "affinity", term, 1
    for term, weight in affinity_info.preferences:
        yield "preferred", term, weight


def selects(term: Term, affinity_info: AffinityInfo, namespace_labels: Mapping[str, str]) -> bool:
    return term.scope.selector.selects(affinity_info.labels) and term.scope.covers(
        affinity_info.namespace, namespace_labels
    )


def _places(term: Term) -> Iterator[tuple[str | None, tuple[str, str] | None]]:
    """Yield where a term is indexed: under each namespace (None: any) and the first label that it requires."""
    scope = term.scope
    if scope.selector.nothing:
        return
    label = scope.selector.equal[0] if scope.selector.equal else None
    if not scope.within.nothing:
        yield None, label
    else:
        yield from ((namespace, label) for namespace in scope.namespaces)


class PodCounts:
    """All assigned pods by row, of any scheduler; the namespaces' labels; what services and controllers select."""

    def __init__(self) -> None:
        self._groups: dict[str, dict[AffinityInfo, _Group]] = {}
        self._questions: OrderedDict[Question, RowCounts] = OrderedDict()
        self._name_count = 0
        # Questions by namespace; under None those that select namespaces by labels.
        self._questions_in: dict[str | None, dict[Question, RowCounts]] = {}
        self._namespaces: dict[str, Mapping[str, str]] = {}
        self.terms: Mapping[TermKind, Terms] = {kind: Terms() for kind in TERM_KINDS}
        self.default_selectors = DefaultSelectors()
        # The snapshots, which are called for each pod that is added or removed.
        self.followers: WeakSet[PodCounts] = WeakSet()

    def add_all(self, rows_by_info: Mapping[AffinityInfo, Sequence[int]]) -> None:
        followers = list(self.followers)
        for affinity_info, rows in rows_by_info.items():
            for follower in followers:
                for row in rows:
                    follower.pod_moved(row, affinity_info, 1)
            group = self._groups.get(affinity_info.namespace, {}).get(affinity_info) or self._open(affinity_info)
            for row in rows:
                group.rows[row] = group.rows.get(row, 0) + 1
                for row_counts, by in group.moves:
                    row_counts.shift(row, by)

    def shift(self, row: int, affinity_info: AffinityInfo, by: int) -> None:
        """Add a pod (``by`` 1), or remove it (-1)."""
        if by > 0:
            self.add_all({affinity_info: (row,)})
            return
        for follower in self.followers:
            follower.pod_moved(row, affinity_info, -1)
        group = self._groups[affinity_info.namespace][affinity_info]
        pod_count = group.rows.pop(row) - 1
        if pod_count:
            group.rows[row] = pod_count
        for row_counts, by in group.moves:
            row_counts.shift(row, -by)
        if not group.rows:
            self._close(affinity_info)

    @property
    def is_outdated(self) -> bool:
        """Return whether these are the counts of an earlier moment, and a question now has another answer."""
        return False

    def is_counted(self, affinity_info: AffinityInfo) -> bool:
        """Return whether any plugin counts assigned pods with this affinity info."""
        group = self._groups.get(affinity_info.namespace, {}).get(affinity_info)
        if group is not None:
            return bool(group.moves)
        return any(weighted_terms(affinity_info)) or any(True for _ in self._questions_about(affinity_info))

    def pod_moved(self, row: int, affinity_info: AffinityInfo, by: int) -> None:
        """Process that a pod is added to the counts that this one follows (``by`` 1), or removed (-1)."""

    def put_namespace(self, name: str, labels: Mapping[str, str]) -> bool:
        """Record a namespace's labels; return whether they changed."""
        if self._namespaces.get(name) == labels:
            return False
        self._namespaces[name] = labels
        self._forget_by_labels()
        return True

    def remove_namespace(self, name: str) -> None:
        if self._namespaces.pop(name, None) is not None:
            self._forget_by_labels()

    def namespace_names(self) -> frozenset[str]:
        return frozenset(self._namespaces)

    def namespace_labels(self, name: str) -> Mapping[str, str]:
        return self._namespaces.get(name, _NO_LABELS)

    def counts(self, question: Question, size: int) -> Counts:
        """Return how many pods of the question are on each of the first ``size`` rows; the result is read-only."""
        return self.row_counts(question, size).array(size)

    def check(self, assigned_pod: Iterable[tuple[int, AffinityInfo]]) -> None:
        fresh = PodCounts()
        fresh._namespaces = self._namespaces
        for row, affinity_info in assigned_pod:
            fresh.shift(row, affinity_info, 1)
        for question, row_counts in self._questions.items():
            assert _equal(row_counts, fresh.row_counts(question, 1)), f"{question} is not counted right"
        assert self._contents() == fresh._contents(), "the counts differ from those of the assigned pods"
        for kind, terms in self.terms.items():
            fresh_terms = fresh.terms[kind]
            assert terms.row_counts.keys() == fresh_terms.row_counts.keys(), (
                "terms of pods that are not assigned, or some are missing"
            )
            for term, row_counts in terms.row_counts.items():
                assert _equal(row_counts, fresh_terms.row_counts[term]), f"{term} is not counted right"

    def _contents(self) -> dict[AffinityInfo, tuple[dict[int, int], int]]:
        groups = (item for groups in self._groups.values() for item in groups.items())
        return {affinity_info: (group.rows, len(group.moves)) for affinity_info, group in groups}

    def _open(self, affinity_info: AffinityInfo) -> _Group:
        group = self._groups.setdefault(affinity_info.namespace, {})[affinity_info] = _Group()
        for kind, term, weight in weighted_terms(affinity_info):
            group.moves.append((self.terms[kind].use(term), weight))
        group.moves += ((row_counts, 1) for row_counts in self._questions_about(affinity_info))
        return group

    def _questions_about(self, affinity_info: AffinityInfo) -> Iterator[RowCounts]:
        labels = self.namespace_labels(affinity_info.namespace)
        for place in (affinity_info.namespace, None):
            for question, row_counts in self._questions_in.get(place, {}).items():
                if question.counts(affinity_info, labels):
                    yield row_counts

    def _close(self, affinity_info: AffinityInfo) -> None:
        groups = self._groups[affinity_info.namespace]
        del groups[affinity_info]
        if not groups:
            del self._groups[affinity_info.namespace]
        for kind, term, _ in weighted_terms(affinity_info):
            self.terms[kind].leave(term)

    def row_counts(self, question: Question, size: int) -> RowCounts:
        """Return the stored counts of a question, for about ``size`` rows; do not modify them."""
        row_counts = self._questions.get(question)
        if row_counts is not None:
            self._questions.move_to_end(question)
            return row_counts
        name_count, max_questions = _count_names(question), max(_MOST_COUNTS // max(size, 1), _FEWEST_QUESTIONS)
        while self._questions and (len(self._questions) >= max_questions or self._name_count + name_count > _MAX_NAMES):
            self._forget(next(iter(self._questions)))
        self._name_count += name_count
        groups = [group for affinity_info, group in self._groups_for(question) if question.matches(affinity_info)]
        row_counts = self._questions[question] = RowCounts.of([group.rows for group in groups])
        move = (row_counts, 1)
        for group in groups:
            group.moves.append(move)
        for place in self._places(question):
            self._questions_in.setdefault(place, {})[question] = row_counts
        return row_counts

    def _places(self, question: Question) -> Iterable[str | None]:
        namespaces = question.namespaces
        return (None,) if namespaces is None else namespaces

    def _groups_for(self, question: Question) -> Iterator[tuple[AffinityInfo, _Group]]:
        namespaces = question.namespaces
        for namespace in self._groups if namespaces is None else namespaces:
            if question.covers(namespace, self.namespace_labels(namespace)):
                yield from self._groups.get(namespace, {}).items()

    def _forget(self, question: Question) -> None:
        row_counts = self._questions.pop(question)
        self._name_count -= _count_names(question)
        for place in self._places(question):
            del self._questions_in[place][question]
        # Check more than the covered ones: namespaces may have other labels by now.
        namespaces = question.namespaces
        for namespace in self._groups if namespaces is None else namespaces:
            for group in self._groups.get(namespace, {}).values():
                if any(counts is row_counts for counts, _ in group.moves):
                    group.moves = [(counts, by) for counts, by in group.moves if counts is not row_counts]

    def _forget_by_labels(self) -> None:
        for question in list(self._questions):
            if any(not scope.within.nothing for scope in question.scopes):
                self._forget(question)


def _equal(first: RowCounts, second: RowCounts) -> bool:
    return dict(zip(*map(list, first.rows()), strict=True)) == dict(zip(*map(list, second.rows()), strict=True))

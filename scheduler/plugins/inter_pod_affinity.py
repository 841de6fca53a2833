"""InterPodAffinity: pods near others, or away from them, as they ask or as the others ask.

Required terms of the pod, and anti-affinity that seated pods require of it, refuse nodes. What it prefers, what seated
pods prefer of it, and whom they require, score them. A pod whose required affinity nobody satisfies yet may come
first if it satisfies it itself.
"""

from collections.abc import Iterable, Sequence

import numpy as np

from scheduler.cache.node_columns import Amounts, Flags, Nodes, Rows
from scheduler.cache.pod_counts import Census, Question
from scheduler.cache.row_counts import Tally
from scheduler.cache.topology_domains import Domains, domains
from scheduler.kube.affinity import Term
from scheduler.kube.pod_info import Task
from scheduler.plugins.interface import Refusals, WideRule
from scheduler.queue import Happening

NAME = "InterPodAffinity"
WEIGHT = 2
HELPED_BY = (
    Happening.NODE_ADDED
    | Happening.NODE_REMOVED
    | Happening.NODE_LABELS
    | Happening.POD_GONE
    | Happening.POD_SEATED
    | Happening.POD_LABELS
    | Happening.NAMESPACE
)
_TEXTS = (
    ("node(s) didn't match pod affinity rules",),
    ("node(s) didn't match pod anti-affinity rules",),
    ("node(s) didn't satisfy existing pods anti-affinity rules",),
)
_Asked = Sequence[tuple[Term, Tally]]


def prepare(task: Task, nodes: Nodes, census: Census) -> "Affinity | None":
    kin, labels = task.kin, census.namespace_labels(task.kin.namespace)
    objecting = census.repelling.about(kin, labels)
    drawing = census.drawing.about(kin, labels)
    if not (kin.attracted or kin.repelled or kin.preferred or objecting or drawing):
        return None
    return Affinity(task, nodes, census, objecting, drawing)


class Affinity:
    """One pod's terms, and the seated pods' terms that speak of it, against the pods that are seated now."""

    def __init__(self, task: Task, nodes: Nodes, census: Census, objecting: _Asked, drawing: _Asked) -> None:
        self._kin, self._nodes, self._census = task.kin, nodes, census
        self._objecting, self._drawing = objecting, drawing
        self._domains: dict[str, Domains] = {}

    def refuse(self, rows: Rows) -> Refusals:
        codes = np.zeros(len(rows), np.int16)
        for code, refused in enumerate((self._unattracted(rows), self._repelled(rows), self._objected(rows)), 1):
            if refused is not None:
                codes[refused & (codes == 0)] = code
        return Refusals(codes, _TEXTS)

    def score(self, rows: Rows) -> Amounts:
        raw = np.zeros(len(rows), np.int64)
        for term, weight in self._kin.preferred:
            of = self._of(term.key)
            raw += weight * of.sums(self._counts((term,)))[of.ids[rows]]
        for term, tally in self._drawing:
            of = self._of(term.key)
            raw += of.sums_of_few(*tally.rows())[of.ids[rows]]
        return _normalised(raw)

    def _unattracted(self, rows: Rows) -> Flags | None:
        """Say which rows are not near pods that satisfy all of the required affinity."""
        terms = self._kin.attracted
        if not terms:
            return None
        counts = self._counts(terms)
        in_domains, near, nobody = np.ones(len(rows), np.bool_), np.ones(len(rows), np.bool_), True
        for key in {term.key for term in terms}:
            of = self._of(key)
            sums = of.sums(counts)
            in_domains &= of.have(rows)
            near &= sums[of.ids[rows]] > 0
            nobody = nobody and not sums.any()
        comes_first = nobody and self._satisfies_itself(terms)
        return ~in_domains if comes_first else ~near

    def _satisfies_itself(self, terms: Sequence[Term]) -> bool:
        kin = self._kin
        return _question(terms).counts(kin, self._census.namespace_labels(kin.namespace))

    def _repelled(self, rows: Rows) -> Flags | None:
        """Say which rows are near pods that the pod keeps away from."""
        if not self._kin.repelled:
            return None
        near = np.zeros(len(rows), np.bool_)
        for term in self._kin.repelled:
            of = self._of(term.key)
            near |= of.sums(self._counts((term,)))[of.ids[rows]] > 0
        return near

    def _objected(self, rows: Rows) -> Flags | None:
        """Say which rows are near pods that keep away from the pod."""
        if not self._objecting:
            return None
        near = np.zeros(len(rows), np.bool_)
        for term, tally in self._objecting:
            of = self._of(term.key)
            near |= of.sums_of_few(*tally.rows())[of.ids[rows]] > 0
        return near

    def _of(self, key: str) -> Domains:
        found = self._domains.get(key)
        if found is None:
            found = self._domains[key] = domains(self._nodes, key)
        return found

    def _counts(self, terms: Iterable[Term]) -> Amounts:
        return self._census.counts(_question(terms), self._nodes.size)


def _question(terms: Iterable[Term]) -> Question:
    return Question(tuple(term.scope for term in terms))


def _normalised(raw: Amounts) -> Amounts:
    least = raw.min(initial=0) if not len(raw) else raw.min()
    span = raw.max() - least if len(raw) else 0
    if not span:
        return np.zeros(len(raw), np.int64)
    scores: Amounts = (100.0 * ((raw - least) / span)).astype(np.int64)
    return scores


RULE = WideRule(NAME, WEIGHT, prepare, HELPED_BY, lasting=frozenset(_TEXTS[:1]))

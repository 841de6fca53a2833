"""Filter results and scores of all nodes for pods of one shape, kept from pod to pod.

Method: pods of one shape have equal requests, so the filters and score plugins that evaluate each node by itself give
equal results. `SignatureScores` keeps for each row the number of the reason against it (0 if it passes) and its score.
kube-scheduler calls such a shape the pod's signature.

Correctness: such a result depends only on the pod's shape and the node's row. `NodeColumns` records every change of a
row in its journals, and `refresh` evaluates the recorded rows again. All rows are evaluated again if a node's
properties change and scores are scaled over all passing nodes, or if so many rows change that this is cheaper. A row
for which a decision has no search steps left is rejected for that decision only; the next one continues there.

Cost: a pod costs what has changed since the last pod of its shape, about 10 µs per row. Finding the best score among
thousands takes a few µs. Memory: `byte_count`, and the parts of one pod that are in its shape.
"""

from collections.abc import Callable, Collection, Iterator

import numpy as np
from numpy.typing import NDArray

from scheduler.cache.column import Amounts, BatchView, shallow_copy
from scheduler.cache.node_columns import Flags, NodeColumns, Rows
from scheduler.cycle.placement_budget import PlacementBudget, TurnSpent
from scheduler.kube.outcomes import Refused
from scheduler.kube.pod_info import PodInfo
from scheduler.placement.assign import OUT_OF_BUDGET, SEARCH_CONTINUES, Placement
from scheduler.placement.steps import Steps
from scheduler.plugins.interface import (
    FilterPlugin,
    ReservePlugin,
    ScorePlugin,
    Texts,
    UsageFilter,
    UsageFilterPlugin,
    UsageScorer,
)
from scheduler.plugins.registry import NODE_FILTERS, NODE_SCORES, RESERVES, USAGE_FILTERS, USAGE_SCORES, WEIGHT_OF

# Narrow types: the first decision about a shape touches new memory, and page faults are a large part of its time.
Marks = NDArray[np.int32]
Scores = NDArray[np.int16]
# A plugin that evaluates each node by itself.
RowPlugin = FilterPlugin | UsageFilterPlugin | ReservePlugin
# Evaluating all rows again costs as much as evaluating this share of them one by one.
_SHARE_OF_ROWS = 4
# There is room for one more node per this many, and for this many more.
_SPARE = 16
# At most this many rows are evaluated one by one, as plain integers.
_FEW_ROWS = 12
# Number of reasons of one shape, beyond which they are numbered again: many of them then apply to no row any more.
_MOST_REASONS = 4096
# Bytes: of a row four `Marks` and two `Scores`, and of a reason its text.
_A_ROW, _A_REASON = 20, 256
_NO_NODE = _OUT = -1


class SignatureScores:
    """The rows for pods of one shape; call `refresh` first.

    ``on_overrun`` is called when a search for a placement ran out of steps.
    """

    def __init__(
        self, pod_info: PodInfo, nodes: NodeColumns, steps: Steps, on_overrun: Callable[[], None] = lambda: None
    ) -> None:
        self._pod_info, self._nodes, self._on_overrun = pod_info, nodes, on_overrun
        self._changes_end = self._renewals_end = 0
        # The rows for which a decision had no steps left, and that decision's budget.
        self._open_rows: list[int] = []
        self._open_budget: PlacementBudget | None = None
        self._evaluate_all(steps)

    def _prepare(self) -> None:
        pod_info, nodes = self._pod_info, self._nodes
        # Each with the number of the reason for each of its marks.
        self._filters: list[tuple[UsageFilterPlugin, UsageFilter, dict[int, int]]] = [
            (plugin, usage_filter, {})
            for plugin in USAGE_FILTERS
            if (usage_filter := plugin.pre_filter(pod_info, nodes)) is not None
        ]
        self._scorers = [
            (WEIGHT_OF[plugin.name], plugin.name, scorer)
            for plugin in USAGE_SCORES
            if (scorer := plugin.pre_filter(pod_info, nodes)) is not None
        ]
        reserves = ((plugin, plugin.pre_filter(pod_info, nodes)) for plugin in RESERVES)
        self._reserve = next(((plugin, choose) for plugin, choose in reserves if choose is not None), None)

    def snapshot(self, nodes: NodeColumns, since: int, steps: Steps) -> "SignatureScores":
        """Return the scores for a snapshot of the columns that was taken at change ``since``, with equal properties."""
        snapshot = shallow_copy(self)
        snapshot._nodes = nodes
        snapshot._legend, snapshot._code_of = self._legend.copy(), self._code_of.copy()
        snapshot._open_rows = self._open_rows.copy()
        snapshot._prepare()
        snapshot._codes, snapshot._totals = self._codes.copy(), self._totals.copy()
        snapshot._usage_parts = [
            (*scorer, part.copy()) for scorer, (*_, part) in zip(snapshot._scorers, self._usage_parts, strict=True)
        ]
        if rows := {*self._nodes.changes.since(since), *nodes.changes.since(since)}:
            snapshot._evaluate_usage(np.array(sorted(rows), np.intp), steps)
        snapshot._changes_end = nodes.changes.end
        return snapshot

    def refresh(self, steps: Steps) -> None:
        """Evaluate again what has changed since the last call, and rows for which another decision had no steps left.

        Count the evaluated values in ``steps``.
        """
        nodes = self._nodes
        if self._open_rows and self._open_budget is not steps:
            self._evaluate_usage(np.array(self._open_rows, np.intp), steps)
            self._open_rows = []
        if not self._is_complete or (self._renewals_end != nodes.renewals.end and not self._renew(steps)):
            self._evaluate_all(steps)
            return
        if self._changes_end == nodes.changes.end:
            return
        rows = nodes.changes.since(self._changes_end)
        if len(self._legend) > _MOST_REASONS or self._are_many(rows):
            self._evaluate_all(steps)
            return
        if len(rows) > _FEW_ROWS:
            self._evaluate_usage(np.array(rows, np.intp), steps)
        else:
            for row in rows:
                self._evaluate_usage_of(row)
        self._changes_end = nodes.changes.end

    def best(self, budget: PlacementBudget, among: Flags | None = None) -> tuple[int, Placement | None] | None:
        """Return the best row that passes, of those marked ``among`` if given, with the PFs of the pod's interfaces.

        Raise TurnSpent if the search needs another turn; the rows that it has rejected stay rejected.
        """
        totals = self._totals[: self._nodes.size]
        if among is not None:
            totals = np.where(among, totals, np.int32(_OUT))
        while len(totals):
            if budget.is_spent and self._reserve is not None:
                self._leave_open(self._reserve[0], np.flatnonzero(totals >= 0).tolist(), budget)
                return None
            row = int(totals.argmax())
            if totals.item(row) < 0:
                return None
            placement = self.exact(row, budget)
            if not isinstance(placement, Refused):
                return row, placement
            totals[row] = _OUT
        return None

    def exact(self, row: int, budget: PlacementBudget) -> Placement | Refused | None:
        """Find the exact devices for the pod on a passing row; reject the row, with a reason, if they do not fit."""
        if self._reserve is None:
            return None
        plugin, choose = self._reserve
        if budget.is_spent:
            self._leave_open(plugin, [row], budget)
            return Refused(SEARCH_CONTINUES)
        if budget.is_turn_over:
            raise TurnSpent
        placement = choose(row, budget)
        if isinstance(placement, Refused):
            if placement.reason == OUT_OF_BUDGET:
                self._on_overrun()
            self._codes[row] = self._code(plugin, (placement.reason,))
            self._totals[row] = _OUT
        return placement

    def _leave_open(self, plugin: ReservePlugin, rows: list[int], budget: PlacementBudget) -> None:
        if rows:
            self._codes[rows] = self._code(plugin, (SEARCH_CONTINUES,))
            self._totals[rows] = _OUT
            self._open_rows += rows
            self._open_budget = budget
            self._on_overrun()

    @property
    def byte_count(self) -> int:
        return _A_ROW * len(self._codes) + _A_REASON * len(self._legend)

    def passing_rows(self) -> Rows:
        return np.flatnonzero(self._codes == 0)

    def scores(self, rows: Rows) -> Amounts:
        return self._totals[rows].astype(np.int64)

    def parts(self, row: int) -> dict[str, int]:
        """Return the score of the row by each score plugin that applies, from 0 to 100."""
        scores = {plugin.name: part.item(row) for plugin, part in self._fact_parts} if self._fact_parts else {}
        for _, name, _, part in self._usage_parts:
            scores[name] = part.item(row)
        return scores

    def refusals(self) -> Iterator[tuple[RowPlugin, Texts, Rows]]:
        for code, (plugin, texts) in enumerate(self._legend, start=1):
            rows = np.flatnonzero(self._codes == code)
            if len(rows):
                yield plugin, texts, rows

    def _evaluate_all(self, steps: Steps) -> None:
        nodes = self._nodes
        capacity, rows = row_capacity(nodes), nodes.all_rows()
        # `TurnSpent` may interrupt this: it may take several turns.
        self._is_complete = False
        self._changes_end, self._renewals_end = nodes.changes.end, nodes.renewals.end
        self._legend: list[tuple[RowPlugin, Texts]] = []
        self._code_of: dict[tuple[str, Texts], int] = {}
        self._prepare()
        self._codes: Marks = np.full(capacity, _NO_NODE, np.int32)
        self._fact_codes: Marks = np.full(capacity, _NO_NODE, np.int32)
        # The scores of the rows that pass: the largest is the best, and of equal ones the first.
        self._totals: Marks = np.full(capacity, _OUT, np.int32)
        self._fact_scores: Marks = np.zeros(capacity, np.int32)
        # None until a row passes: pods that pass nowhere have no score.
        self._fact_parts: list[tuple[ScorePlugin, Scores]] | None = None
        self._usage_parts: list[tuple[int, str, UsageScorer, Scores]] = [
            (*scorer, np.zeros(capacity, np.int16)) for scorer in self._scorers
        ]
        self._filter_by_facts(rows, steps)
        # A slice reads and writes the arrays in place: a first decision is about thousands of rows.
        self._evaluate_usage(rows, steps, slice(nodes.size) if len(rows) == nodes.size else rows)
        self._is_complete = True

    def _are_many(self, rows: Collection[int]) -> bool:
        """Return whether evaluating all rows costs no more than these, or the arrays are too small."""
        return len(rows) * _SHARE_OF_ROWS > self._nodes.size or self._nodes.size > len(self._codes)

    def _renew(self, steps: Steps) -> bool:
        """Evaluate renewed nodes again; return False if that changes the scores of other nodes."""
        nodes = self._nodes
        renewals = nodes.renewals.since(self._renewals_end)
        if self._fact_parts or self._are_many(renewals):
            return False
        rows = np.array(renewals, np.intp)
        # Snapshots may share the arrays.
        self._fact_codes = self._fact_codes.copy()
        self._fact_codes[rows] = _NO_NODE
        self._codes[rows] = _NO_NODE
        self._totals[rows] = _OUT
        self._filter_by_facts(rows[nodes.valid[rows]], steps)
        # This affects all rows: each score depends on the number of nodes that have an image.
        candidates = (self._fact_codes == 0).nonzero()[0]
        if self._fact_parts is not None and any(self._raw_fact_scores(candidates)):
            return False
        self._renewals_end = nodes.renewals.end
        return True

    def _score_facts(self) -> None:
        """Score the nodes' properties, scaled over all rows that pass by their properties."""
        self._fact_parts, self._fact_scores = [], self._fact_scores.copy()
        candidates = (self._fact_codes == 0).nonzero()[0]
        for plugin, raw in self._raw_fact_scores(candidates):
            part: Scores = np.zeros(len(self._codes), np.int16)
            part[candidates] = part_scores = plugin.normalise(raw)
            self._fact_scores[candidates] += WEIGHT_OF[plugin.name] * part_scores
            self._fact_parts.append((plugin, part))

    def _raw_fact_scores(self, rows: Rows) -> Iterator[tuple[ScorePlugin, Amounts]]:
        """Yield the score plugins that distinguish some of these rows, with their raw scores."""
        for plugin in NODE_SCORES if len(rows) else ():
            scorer = plugin.pre_filter(self._pod_info, self._nodes)
            raw = None if scorer is None else scorer(rows)
            if raw is not None and raw.any():
                yield plugin, raw

    def _filter_by_facts(self, rows: Rows, steps: Steps) -> None:
        codes: Marks = np.zeros(len(rows), np.int32)
        for plugin in NODE_FILTERS:
            node_filter = plugin.pre_filter(self._pod_info, self._nodes)
            refusals = None if node_filter is None else node_filter(rows, steps)
            if refusals is not None:
                table = np.array((0, *(self._code(plugin, texts) for texts in refusals.texts)), np.int32)
                codes = np.where(codes, codes, table[refusals.codes])
        self._fact_codes[rows] = codes

    def _evaluate_usage(self, rows: Rows, steps: Steps, at: Rows | slice | None = None) -> None:
        """Evaluate the use of rows whose properties are evaluated; ``at`` is their place in the arrays."""
        at = rows if at is None else at
        view, codes = self._nodes.view(rows, steps), self._fact_codes[at].copy()
        for usage_filter in self._filters:
            marks = usage_filter[1].judge(view)
            indexes = ((codes == 0) & (marks != 0)).nonzero()[0]
            if len(indexes):
                kinds, kind_of = np.unique(marks[indexes], return_inverse=True)
                table = np.array([self._code_of_mark(*usage_filter, kind) for kind in kinds.tolist()], np.int32)
                codes[indexes] = table[kind_of]
        self._codes[at] = codes
        self._totals[at] = _OUT if codes.all() else np.where(codes, _OUT, self._scores_of(at, view))

    def _scores_of(self, at: Rows | slice, view: BatchView) -> Marks:
        """Return the rows' scores; they are read only where the row passes."""
        if self._fact_parts is None:
            self._score_facts()
        scores = self._fact_scores[at].copy()
        for weight, _, scorer, part in self._usage_parts:
            part[at] = part_scores = scorer(view)
            scores += weight * part_scores
        return scores

    def _evaluate_usage_of(self, row: int) -> None:
        """Evaluate one row as `_evaluate_usage` does for many."""
        view, code = self._nodes.row_view(row), self._fact_codes.item(row)
        for plugin, usage_filter, codes_of in () if code else self._filters:
            if mark := usage_filter.judge(view):
                code = codes_of.get(mark) or self._code_of_mark(plugin, usage_filter, codes_of, mark)
                break
        self._codes[row] = code
        if code:
            self._totals[row] = _OUT
            return
        if self._fact_parts is None:
            self._score_facts()
        score = self._fact_scores.item(row)
        for weight, _, scorer, part in self._usage_parts:
            part[row] = part_scores = scorer(view)
            score += weight * part_scores
        self._totals[row] = score

    def _code_of_mark(
        self, plugin: UsageFilterPlugin, usage_filter: UsageFilter, codes: dict[int, int], mark: int
    ) -> int:
        if mark not in codes:
            codes[mark] = self._code(plugin, usage_filter.reasons(mark))
        return codes[mark]

    def _code(self, plugin: RowPlugin, texts: Texts) -> int:
        code = self._code_of.setdefault((plugin.name, texts), len(self._legend) + 1)
        if code > len(self._legend):
            self._legend.append((plugin, texts))
        return code


def row_capacity(nodes: NodeColumns) -> int:
    """Return for how many rows a shape that is evaluated now keeps its scores."""
    return nodes.size + nodes.size // _SPARE + _SPARE


def bytes_of(rows: int) -> int:
    """Return about how many bytes the scores of so many rows take, without reasons."""
    return _A_ROW * rows

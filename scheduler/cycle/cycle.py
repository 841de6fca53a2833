"""Decide about one pod: filter the nodes, prefer one of them, take exact VFs there. Pure: time is an argument.

`Decider.decide` gives `Bind`, with all that the one write needs, or `Unschedulable` with the reasons counted over the
nodes as kube-scheduler words them. ``why`` in both is what ``mooring.dev/why`` carries: data for people and programs.
"""

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace

import msgspec
import numpy as np

from mooring import names
from mooring.assignment import Assignment, assignment_fields
from scheduler.cache.cache import Cluster
from scheduler.cache.node_columns import Amounts, Rows
from scheduler.cycle.decisions import Bind, Decision, Unschedulable, Why, annotations_fault
from scheduler.cycle.node_dry_run import Judge, Trials, assign, stand_for
from scheduler.cycle.preemption import Futile, Preemption
from scheduler.cycle.select_victims import Search
from scheduler.cycle.signature_scores import Ranking, Rankings
from scheduler.kube.pod_info import Task
from scheduler.placement.assign import Chosen
from scheduler.plugins import (
    inter_pod_affinity,
    node_volume_limits,
    pod_topology_spread,
    volume_binding,
    volume_restrictions,
    volume_zone,
)
from scheduler.plugins.interface import Filter, Refusals, Texts, VolumeRule, Wide, WideRule, none_available
from scheduler.queue import NOTHING, Happening

# Told at the end of each of kube-scheduler's extension points. `Filter` judges the rows that have changed, by rules and
# by preferences; `Score` finds the best of all and what exactly the pod gets there.
Lap = Callable[[str], None]
# Rules about other pods, in kube-scheduler's order.
WIDE_RULES = (pod_topology_spread.RULE, inter_pod_affinity.RULE)
# Rules about a pod's volumes, which come before those, likewise.
VOLUME_RULES = (
    volume_restrictions.RULE,
    node_volume_limits.RULE,
    volume_binding.FREE_RULE,
    volume_binding.RULE,
    volume_zone.RULE,
)
_encode = msgspec.json.Encoder(order="sorted").encode
# Room that is kept for a nominated pod is free again when something leaves, or is not kept any more.
_LEAVING = (
    Happening.POD_GONE | Happening.PORTS_FREED | Happening.VFS_FREED | Happening.UNITS_FREED | Happening.VOLUMES_FREED
)
# Rows of which volumes are asked at once, and how many times as many of which only quick rules are asked next.
_PORTION, _LARGER = 16, 2
# Node names named for one reason in `why`; an event is small.
_NAMED = 8


def _nobody(_: int) -> Texts:
    """Say that no pod is nominated on a row."""
    return ()


def no_lap(_: str) -> None:
    """Take no note of where the time goes."""


class _Choice(msgspec.Struct, frozen=True):
    """The node that was chosen, where the interfaces go there, and what spoke for it."""

    row: int
    chosen: Chosen | None
    scores: Mapping[str, int]


@dataclass(frozen=True, slots=True)
class _Refused:
    """Rows that a rule refuses, and its reasons; ``lasting`` if these stay whichever pods go."""

    helped_by: Happening
    texts: Texts
    rows: Rows
    lasting: bool = False


class Decider:
    """Decides about pods, and keeps what equal ones have in common. Equal clusters and pods give equal decisions.

    ``named`` is how many nodes are named for each reason in ``why``.
    """

    def __init__(self, cluster: Cluster, named: int = _NAMED) -> None:
        self._cluster = cluster
        self._named = named
        self._rankings = Rankings(cluster.nodes)
        self.preemption = Preemption(cluster)

    @property
    def budget_spent(self) -> int:
        """How many searches for a placement have run out of steps so far."""
        return self._rankings.budget_spent

    def decide(self, task: Task, now: float, lap: Lap = no_lap) -> Decision:
        """Decide about a pod at UNIX time ``now``; ``lap`` is told what has been done."""
        made = self.proceed(task, now, Search(), lap)
        assert made is not None, "a search without a limit ends in its first turn"
        return made

    def proceed(self, task: Task, now: float, search: Search, lap: Lap = no_lap) -> Decision | None:
        """Decide as `decide` does, as things are now; None if the search for who has to go for the pod goes on.

        Then others get their turn, and it is called again with the same ``search``.
        """
        self._cluster.tick(now)
        wides = [(rule, wide) for rule in WIDE_RULES if (wide := self._prepare(rule, task)) is not None]
        volumes = self._prepare_volumes(task) if task.volumes else []
        lap("PreFilter")
        if isinstance(volumes, Unschedulable):
            return volumes
        ranking = self._rankings.of(task)
        if not wides and not volumes and self.preemption.nominations.of(task.uid) is None:
            lap("Filter")
            best = ranking.best()
            lap("Score")
            if best is None:
                return self._unplaced(task, list(_refused(ranking)), search, now)
            row, chosen = best
            if not self._crowded(task)(row):
                return self._bind(task, _Choice(row, chosen, ranking.parts(row)))
        found = self._choose_widely(task, ranking, volumes, wides, lap)
        lap("Score")
        if isinstance(found, _Choice):
            return self._bind(task, found)
        return self._unplaced(task, found, search, now)

    def _prepare(self, rule: WideRule, task: Task) -> Wide | None:
        return rule.prepare(task, self._cluster.nodes, self._cluster.census)

    def _prepare_volumes(self, task: Task) -> list[tuple[VolumeRule, Filter]] | Unschedulable:
        found = []
        for rule in VOLUME_RULES:
            judge = rule.prepare(task, self._cluster.nodes, self._cluster.storage)
            if isinstance(judge, str):
                return self._nowhere(task, judge, rule.helped_by & ~Happening.NODE)
            if judge is not None:
                found.append((rule, judge))
        return found

    def _nowhere(self, task: Task, reason: str, helped_by: Happening) -> Unschedulable:
        """Refuse a pod on all nodes alike."""
        total = len(self._cluster.nodes.row_of)
        why: Why = {"v": 1, "nodes": total, "counts": {reason: total}}
        text = f"0/{total} nodes are available: {reason}."
        if total:
            text = f"{text} preemption: {self.preemption.hopeless(task).reason}"
        return Unschedulable(task, text, helped_by, why)

    def _choose_widely(
        self,
        task: Task,
        ranking: Ranking,
        volumes: Sequence[tuple[VolumeRule, Filter]],
        wides: Sequence[tuple[WideRule, Wide]],
        lap: Lap,
    ) -> _Choice | list[_Refused]:
        """Filter and score nodes by the volumes, and by what the pods there, nominated ones too, are to this.

        What volumes allow may be another answer for each node: the best are asked first, unless all must be compared.
        """
        rows, refused = ranking.passing(), list[_Refused]()
        quick = [one for one in volumes if not one[0].slow and not wides]
        slow = [one for one in volumes if one not in quick]
        ordered = rows[self._in_order(task, rows, ranking.scores(rows))]
        for some in [rows] if wides else _portions(ordered, quick, refused):
            found = self._choose_among(task, ranking, some, slow, wides, lap)
            if isinstance(found, _Choice):
                return found
            refused += found
        return [*_refused(ranking), *refused]

    def _choose_among(
        self,
        task: Task,
        ranking: Ranking,
        rows: Rows,
        volumes: Sequence[tuple[VolumeRule, Filter]],
        wides: Sequence[tuple[WideRule, Wide]],
        lap: Lap,
    ) -> _Choice | list[_Refused]:
        """Choose the best of these rows; if none will do, return why not, beside what the ranking has found."""
        rows, refused = _sift(rows, [*volumes, *((rule, wide.refuse) for rule, wide in wides)])
        lap("Filter")
        totals, parts = ranking.scores(rows), {}
        for rule, wide in wides:
            scores = wide.score(rows)
            if scores is not None:
                totals = totals + rule.weight * scores
                parts[rule.name] = scores
        crowded = self._crowded(task)
        for place in self._in_order(task, rows, totals).tolist():
            row = int(rows[place])
            chosen = ranking.exact(row)
            if isinstance(chosen, str):
                continue
            if texts := crowded(row):
                helped_by = _LEAVING | Happening.NODE_ALLOCATABLE | self._heeded(task)
                refused.append(_Refused(helped_by, texts, rows[place : place + 1]))
                continue
            own = {name: int(scores[place]) for name, scores in parts.items()}
            return _Choice(row, chosen, ranking.parts(row) | own)
        return refused

    def _in_order(self, task: Task, rows: Rows, totals: Amounts) -> Rows:
        """Return the places of these rows: where the pod is nominated first, as others went for it; then the best."""
        nominated = self._cluster.nodes.row_of.get(self.preemption.nominations.node_of(task.uid), -1)
        return np.lexsort((-totals, rows != nominated))

    def _crowded(self, task: Task) -> Callable[[int], Texts]:
        """Return what says why a row will not do beside the pods that are nominated there."""
        rivals = self.preemption.nominations.rivals(task.uid, task.priority)
        if not rivals:
            return _nobody
        trials: Trials | None = None

        def texts(row: int) -> Texts:
            nonlocal trials
            nominated = rivals.get(self._cluster.nodes.names[row])
            if not nominated:
                return ()
            trials = trials or self._trials(task)
            with trials.on(row, nominated) as trial:
                return trial.refusal()

        return texts

    def _trials(self, task: Task) -> Trials:
        is_wide = bool(task.volumes) or any(self._prepare(rule, task) is not None for rule in WIDE_RULES)
        return Trials(task, self._cluster, self._judge(task), is_wide=is_wide)

    def _judge(self, task: Task) -> Judge:
        """Return what asks the rules about volumes and other pods about some rows as everybody sits then."""

        def judge(rows: Rows) -> Mapping[int, Texts]:
            volumes = self._prepare_volumes(task) if task.volumes else []
            of_volumes = [] if isinstance(volumes, Unschedulable) else [judge for _, judge in volumes]
            wides = [wide.refuse for rule in WIDE_RULES if (wide := self._prepare(rule, task)) is not None]
            found: dict[int, Texts] = {}
            # All are asked whatever the others say: what a rule looks at is known once it has been asked.
            for one in (*of_volumes, *wides):
                refusals = one(rows)
                if refusals is not None:
                    refused = np.flatnonzero(refusals.codes)
                    found = {int(rows[at]): refusals.texts[refusals.codes[at] - 1] for at in refused} | found
            return dict.fromkeys(rows.tolist(), (volumes.reason,)) if isinstance(volumes, Unschedulable) else found

        return judge

    def _unplaced(self, task: Task, refused: Sequence[_Refused], search: Search, now: float) -> Unschedulable | None:
        """Say why no node will do, and whether others have to go for the pod."""
        if not self._cluster.nodes.row_of:
            return self._unschedulable(task, refused)
        rows = [one.rows for one in refused if one.helped_by & _LEAVING and not one.lasting]
        helpable = np.concatenate(rows) if rows else np.zeros(0, np.intp)
        found = self.preemption.seek(self._trials(task), helpable, search, now)
        if found is None:
            return None
        verdict = self._unschedulable(task, refused)
        if found.reason:
            verdict = replace(verdict, reason=f"{verdict.reason} preemption: {found.reason}")
        if isinstance(found, Futile):
            # That nobody's going helps may hang on rules that refuse no node as everybody sits now.
            heeded = self._heeded(task) if rows else NOTHING
            return replace(verdict, helped_by=verdict.helped_by | heeded)
        return replace(verdict, nominate=found, why={**verdict.why, "preemption": found.why})

    def _heeded(self, task: Task) -> Happening:
        """Return what can help by the rules about VFs, volumes and other pods that have a say about a pod."""
        found = Happening.NODE_INVENTORY if task.interfaces else NOTHING
        rules = [*(VOLUME_RULES if task.volumes else ()), *(one for one in WIDE_RULES if self._prepare(one, task))]
        for rule in rules:
            found |= rule.helped_by
        return found

    def _unschedulable(self, task: Task, refused: Sequence[_Refused]) -> Unschedulable:
        total = len(self._cluster.nodes.row_of)
        if not total:
            nowhere = "no nodes available to schedule pods"
            return Unschedulable(task, nowhere, Happening.NODE_ADDED, {"v": 1, "nodes": 0})
        counted: dict[str, int] = {}
        named: dict[str, list[str]] = {}
        # A new node may help whatever refused the old ones.
        helped_by = Happening.NODE_ADDED
        for one in refused:
            helped_by |= one.helped_by
            for text in one.texts:
                counted[text] = counted.get(text, 0) + len(one.rows)
                some = [self._cluster.nodes.names[row] for row in one.rows[: self._named]]
                named[text] = sorted([*named.get(text, ()), *some])[: self._named]
        why: Why = {"v": 1, "nodes": total, "counts": counted, "refused": named}
        return Unschedulable(task, none_available(total, counted), helped_by, why)

    def _bind(self, task: Task, choice: _Choice) -> Decision:
        node, total = self._cluster.nodes.names[choice.row], len(self._cluster.nodes.row_of)
        assignment = self._assign(task, choice, node)
        # As `dump_assignment` writes it, in a sixth of the time.
        annotations = {names.ASSIGNMENT: _encode(assignment_fields(assignment)).decode()} if assignment else {}
        if fault := annotations_fault(task.pod.annotations, annotations):
            return Unschedulable(task, fault, NOTHING, {"v": 1, "nodes": total})
        seat = stand_for(task, node, assignment)
        seat.written = annotations.get(names.ASSIGNMENT, "")
        pfs: dict[str, list[int]] = {}
        for vf in assignment.vfs if assignment else ():
            pfs.setdefault(vf.pf, []).append(vf.vf)
        why: dict[str, object] = {"v": 1, "node": node, "nodes": total, "scores": choice.scores, "pfs": pfs}
        if assignment is not None and assignment.ext:
            why["ext"] = assignment.ext
        nodes, storage = self._cluster.nodes, self._cluster.storage
        plan = volume_binding.plan(task, nodes, storage, choice.row) if task.volumes else None
        return Bind(task, seat, annotations, why, plan)

    def _assign(self, task: Task, choice: _Choice, node: str) -> Assignment | None:
        if choice.chosen is None:
            return None
        nominated = self.preemption.nominations.rivals(task.uid, task.priority).get(node)
        if nominated:
            # The very VFs that they wait for are left to them.
            trials = Trials(task, self._cluster, self._judge(task), is_wide=False, only_gives=True)
            with trials.on(choice.row, nominated) as trial:
                if (given := trial.seat().assignment) is not None:
                    return given
        return assign(task, self._cluster, node, self._cluster.nodes.supplies[choice.row], choice.chosen)


def _portions(rows: Rows, quick: Sequence[tuple[VolumeRule, Filter]], refused: list[_Refused]) -> Iterator[Rows]:
    """Yield a few rows at a time that pass the ``quick`` rules, asked about ever more; add why the others do not."""
    start, size = 0, _PORTION
    while start < len(rows):
        passing, others = _sift(rows[start : start + size], quick)
        refused += others
        for first in range(0, len(passing), _PORTION):
            yield passing[first : first + _PORTION]
        start, size = start + size, size * _LARGER


def _sift(rows: Rows, judges: Sequence[tuple[VolumeRule | WideRule, Filter]]) -> tuple[Rows, list[_Refused]]:
    """Return the rows that pass all of these, and why the others do not."""
    refused = list[_Refused]()
    for rule, judge in judges:
        refusals = judge(rows)
        if refusals is not None:
            refused += _refused_by(rule, refusals, rows)
            rows = rows[refusals.codes == 0]
    return rows, refused


def _refused_by(rule: VolumeRule | WideRule, refusals: Refusals, rows: Rows) -> Iterator[_Refused]:
    for code, texts in enumerate(refusals.texts, start=1):
        if len(those := rows[refusals.codes == code]):
            lasting = isinstance(rule, WideRule) and texts in rule.lasting
            yield _Refused(rule.helped_by, texts, those, lasting)


def _refused(ranking: Ranking) -> Iterator[_Refused]:
    for rule, texts, rows in ranking.refused():
        yield _Refused(rule.helped_by, texts, rows)

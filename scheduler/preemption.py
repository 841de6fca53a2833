"""Who has to go so that a more important pod fits: kube-scheduler's DefaultPreemption. Pure.

On each node that can be helped all pods of lower priority are taken off; if the pod fits then, they are put back one by
one, the most important first and before all others those whose going would break a disruption budget, as long as it
still fits. Who stays off is a victim. Of the nodes the one is taken where the least is lost.

Source: kube-scheduler's framework/preemption and plugins/defaultpreemption. There the nodes are looked at from a random
one on, here from one that the pod's uid gives, so that equal clusters give equal decisions.
"""

import zlib
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass

from mooring.inventory import HELD_BY
from scheduler.budgets import Budgets
from scheduler.cluster import Cluster, Seat
from scheduler.columns import Rows
from scheduler.nominations import Nomination, Nominations
from scheduler.task import Task
from scheduler.trial import Trial, Trials

# So many nodes with victims are compared: this share of those that can be helped, but so many at the least, and more
# as long as each of them breaks a budget. Source: DefaultPreemptionArgs.
_SHARE = 10
_FEWEST = 100
# Priorities are 32 bits with a sign: by this much all of them are above zero, so that each victim counts.
_ABOVE_ZERO = 1 << 31
# Later than any RFC 3339 time: a pod that has not started yet.
_NOT_STARTED = "~"


@dataclass(frozen=True, slots=True)
class Nominate:
    """Let the pod wait for room on a node; ``victims`` must go for it, none where they are on their way already.

    ``why`` names the victims for people and programs.
    """

    nomination: Nomination
    victims: tuple[Seat, ...] = ()

    @property
    def why(self) -> Mapping[str, object]:
        return {"node": self.nomination.node, "victims": [seat.pod for seat in self.victims]}


@dataclass(frozen=True, slots=True)
class _Candidate:
    row: int
    victims: tuple[Seat, ...]
    broken_budgets: int

    @property
    def loss(self) -> tuple[int, int, int, int]:
        """Return what is lost, the least first: broken budgets, highest priority, sum of priorities, victims."""
        priorities = [seat.priority + _ABOVE_ZERO for seat in self.victims]
        return self.broken_budgets, max(priorities), sum(priorities), len(priorities)

    @property
    def since(self) -> str:
        """Return since when the longest running of the victims of the highest priority has run."""
        highest = max(seat.priority for seat in self.victims)
        return min(_started(seat) for seat in self.victims if seat.priority == highest)


class Preemption:
    """What is known of budgets and nominations, and the search for victims."""

    def __init__(self, cluster: Cluster) -> None:
        self._cluster = cluster
        self.budgets = Budgets()
        self.nominations = Nominations()

    def concerns(self, task: Task) -> bool:
        """Say whether there is anybody whom the pod is above, or the pod is nominated already."""
        lowest = self._cluster.lowest_priority()
        return (lowest is not None and lowest < task.priority) or self.nominations.of(task.uid) is not None

    def seek(self, trials: Trials, rows: Rows) -> Nominate | None:
        """Return where the pod is to wait for room and who makes it; None if it is to wait nowhere.

        ``rows`` are those whose refusals the going of pods may turn around.
        """
        task = trials.task
        if self._must_wait(task, rows):
            return self._wait(task, trials)
        if task.pod.spec.preemption_policy == "Never":
            return None
        candidates = list(self._candidates(trials, rows))
        if not candidates:
            return None
        least = min(one.loss for one in candidates)
        best = max((one for one in candidates if one.loss == least), key=lambda one: one.since)
        seat = self._seat(trials, best.row, best.victims)
        victims = frozenset(one.uid for one in best.victims)
        going = tuple(one for one in best.victims if one.kin is None or not one.kin.terminating)
        return Nominate(Nomination(seat, victims), going)

    def _must_wait(self, task: Task, rows: Rows) -> bool:
        """Say whether the pod is nominated where it may still come to fit without further victims."""
        held = self.nominations.of(task.uid)
        row = self._cluster.nodes.row_of.get(held.node) if held is not None else None
        if held is None or row is None or row not in rows:
            return False
        if task.pod.spec.preemption_policy == "Never":
            return True
        return bool(self._leaving(held, task)) or (bool(task.interfaces) and self._is_vf_on_its_way_back(held.node))

    def _leaving(self, held: Nomination, task: Task) -> list[Seat]:
        """Return the pods on the nominated node that go for the sake of this pod, or of another above them."""
        return [
            seat
            for seat in self._cluster.seats_on(held.node)
            if seat.priority < task.priority and (seat.preempted or seat.uid in held.victims)
        ]

    def _is_vf_on_its_way_back(self, node: str) -> bool:
        """Say whether the node still holds a VF for a pod that is gone."""
        facts = self._cluster.node(node)
        inventory = facts.inventory if facts is not None else None
        for pf in inventory.pfs if inventory is not None else ():
            for entry in pf.out:
                if entry.why.startswith(HELD_BY) and self._cluster.seat(entry.why.removeprefix(HELD_BY)) is None:
                    return True
        return False

    def _wait(self, task: Task, trials: Trials) -> Nominate:
        """Keep the nomination; what the pod would get there is looked up as things are now."""
        held = self.nominations.of(task.uid)
        assert held is not None, "only a nominated pod must wait"
        seat = self._seat(trials, self._cluster.nodes.row_of[held.node], self._leaving(held, task))
        keeps = seat.assignment is None and held.seat.assignment is not None
        return Nominate(Nomination(held.seat if keeps else seat, held.victims))

    def _seat(self, trials: Trials, row: int, leaving: Iterable[Seat]) -> Seat:
        rivals = self.nominations.rivals(trials.task.uid, trials.task.priority)
        with trials.on(row, rivals.get(self._cluster.nodes.names[row], ())) as trial:
            trial.take_off(*leaving)
            return trial.seat()

    def _candidates(self, trials: Trials, rows: Rows) -> Iterator[_Candidate]:
        """Yield nodes with their victims, as many as are compared."""
        rows = trials.large_enough(rows)
        enough = min(max(len(rows) * _SHARE // 100, _FEWEST), len(rows))
        rivals = self.nominations.rivals(trials.task.uid, trials.task.priority)
        count, any_harmless = 0, False
        for row in _turned(rows, trials.task.uid):
            found = self._candidate(trials, row, rivals.get(self._cluster.nodes.names[row], ()))
            if found is None:
                continue
            yield found
            count, any_harmless = count + 1, any_harmless or not found.broken_budgets
            if count >= enough and any_harmless:
                return

    def _candidate(self, trials: Trials, row: int, nominated: Collection[Seat]) -> _Candidate | None:
        seats = self._cluster.seats_on(self._cluster.nodes.names[row])
        priority = trials.task.priority
        lower = [seat for seat in seats if seat.priority < priority]
        if not lower:
            return None
        with trials.on(row, nominated, by_sums=True) as trial:
            trial.take_off(*lower)
            if trial.refusal():
                return None
            breaking, others = self.budgets.split(sorted(lower, key=importance))
            doomed = not_reprieved(trial, breaking)
            victims = sorted([*doomed, *not_reprieved(trial, others)], key=importance)
        return _Candidate(row, tuple(victims), len(doomed)) if victims else None


def not_reprieved(trial: Trial, seats: Sequence[Seat]) -> list[Seat]:
    """Put pods back as long as the trial's pod fits, the first ones first; return those that had to stay off.

    Beside whom it fits, beside any of them alone it does: so that many are tried at once.
    """
    if not seats or trial.admits(seats):
        return []
    if len(seats) == 1:
        return list(seats)
    half = len(seats) // 2
    return [*not_reprieved(trial, seats[:half]), *not_reprieved(trial, seats[half:])]


def importance(seat: Seat) -> tuple[int, str]:
    """Return a key that has the most important pod first: by priority, then who has run the longest."""
    return -seat.priority, _started(seat)


def _started(seat: Seat) -> str:
    return seat.started or _NOT_STARTED


def _turned(rows: Rows, uid: str) -> Iterator[int]:
    """Yield the rows, in their order, from one on that is this pod's own."""
    ordered = sorted(rows.tolist())
    start = zlib.crc32(uid.encode()) % max(len(ordered), 1)
    yield from ordered[start:]
    yield from ordered[:start]

"""The search for the victims of one group while it is under way, as data, and who of those found may stay. Pure.

What it takes: the best attempt, whose members fit without its victims. What it returns: attempts at the same for which
one of them stays. What it must never do: let anybody else leave for that.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field

from scheduler.cache.node_columns import Rows
from scheduler.cycle.groups.group_demand import GroupDemand
from scheduler.cycle.groups.members import distinct
from scheduler.cycle.groups.preemption.awaited_nodes import AwaitedNodes
from scheduler.cycle.groups.preemption.row_plan import RowPlans
from scheduler.cycle.groups.preemption.search import Attempt
from scheduler.cycle.placement_budget import PlacementBudget
from scheduler.cycle.preemption.disruption_budgets import Objections
from scheduler.cycle.preemption.potential_victims import Victim, split
from scheduler.kube.pod_info import PodInfo

# What one decision may spend, some 7 s, and what of it to find out who of the victims may stay: by moving some members,
# and by putting all of them on nodes once more (`RowPlans.spent`).
_A_DECISION, _MOVES, _REPRIEVES = 100_000, 10_000, 5_000


@dataclass(slots=True)
class GroupVictimSearch:
    """The search for one group, over its turns; ``most`` is what it may spend.

    If the group waits for room, ``awaited`` are the nodes where it may; otherwise it is None. ``budgets`` are what
    speaks against removing pods.
    """

    demand: GroupDemand
    attempts: Iterator[Attempt | None]
    plans: RowPlans
    budgets: Objections
    placement: PlacementBudget
    most: int = _A_DECISION
    awaited: AwaitedNodes | None = None
    attempt: Attempt | None = None
    best: Attempt | None = None
    seen: int = 0
    renewed: int = 0
    nominated: object = None
    restarts: int = 0
    rows: dict[object, Rows] = field(default_factory=dict)
    # Whether it is tried which of the victims that were found may stay, and what only says whether one may.
    is_reprieving: bool = False
    probe: Attempt | None = None
    # What it has spent on finding the nodes to try.
    finding: int = 0

    @property
    def left(self) -> int:
        """What it may still spend. Nodes that are found not to help must not use that up: there may be thousands."""
        return self.most + min(self.finding, _A_DECISION) - self.plans.spent


def reprieves(victims: GroupVictimSearch) -> Iterator[Attempt]:
    """Yield attempts without one of the best one's victims each, in the order in which kube-scheduler reprieves.

    If enough members fit so, it is the best one by then: it costs less. Of equal members it is enough to move those of
    the nodes that the victim is on. Members that differ are then put on all nodes once more, in several orders.
    """
    kinds = list(distinct(victims.best.members)) if victims.best is not None else []
    yield from _moving(victims, kinds)
    if len(kinds) < 2:
        return
    until = victims.plans.spent + _REPRIEVES
    for best, victim in _in_order(victims, until):
        for attempt in best.without(victim):
            if victims.best is best:
                yield attempt


def _moving(victims: GroupVictimSearch, kinds: Sequence[PodInfo]) -> Iterator[Attempt]:
    """Yield attempts without a victim each for which only the members of its nodes move, to nodes with room."""
    until, with_room = victims.plans.spent + _MOVES, set[int]()
    for member in kinds:
        if victims.best is None or victims.plans.spent >= until:
            return
        victims.probe = victims.best.one_more(member)
        yield victims.probe
        with_room |= victims.probe.rows_with_room
    if len(kinds) == 1 and not with_room and not (victims.best is not None and victims.best.has_spare_groups):
        # On each node as few leave as its own members need.
        return
    for best, victim in _in_order(victims, until):
        moving = best.moving(victim, with_room)
        yield moving
        if victims.best is moving:
            with_room |= best.rows_of([victim])
            if len(kinds) == 1:
                with_room &= moving.rows_with_room


def _in_order(victims: GroupVictimSearch, until: int) -> Iterator[tuple[Attempt, Victim]]:
    """Yield the best attempt and one of its victims, in the order in which kube-scheduler reprieves, each once.

    Those that violate a budget come first, then the most important.
    """
    breaking, others = split(victims.budgets, victims.best.victims if victims.best is not None else ())
    for victim in (*breaking, *others):
        best = victims.best
        if best is None or victims.plans.spent >= until:
            return
        if any(one.pods[0].uid == victim.pods[0].uid for one in best.victims):
            yield best, victim

"""The search for the victims of one group while it is under way, as data, and who of those found may stay. Pure.

What it takes: the best attempt, whose members fit without its victims. What it returns: attempts at the same for which
one of them stays. What it must never do: let anybody else leave for that.
"""

from collections.abc import Iterator
from dataclasses import dataclass, field

from scheduler.cache.node_columns import Rows
from scheduler.cycle.groups.preemption.awaited_nodes import AwaitedNodes
from scheduler.cycle.groups.preemption.row_plan import RowPlans
from scheduler.cycle.groups.preemption.search import Attempt
from scheduler.cycle.groups.search import GroupSearch
from scheduler.cycle.preemption.disruption_budgets import Objections

# What one decision may spend, some 7 s, and what of it to find out who of the victims may stay (`RowPlans.spent`).
_A_DECISION, _REPRIEVES = 100_000, 5_000


@dataclass(slots=True)
class GroupVictimSearch:
    """The search for one group, over its turns; ``most`` is what it may spend.

    If the group waits for room, ``awaited`` are the nodes where it may; otherwise it is None. ``budgets`` are what
    speaks against removing pods.
    """

    search: GroupSearch
    attempts: Iterator[Attempt | None]
    plans: RowPlans
    budgets: Objections
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
    """Yield attempts without one of the best one's victims each, the most important first.

    If enough members fit so, it is the best one by then: it costs less. Of equal members none stays if no node has room
    for one more of them: on each as few leave as its own members need.
    """
    until, tried = victims.plans.spent + _REPRIEVES, set[str]()
    if victims.best is not None and len(victims.search.shapes) == 1:
        victims.probe = victims.best.one_more()
        yield victims.probe
        if victims.probe.has_failed:
            return
    while (best := victims.best) is not None:
        left = (one for one in best.victims if one.pods[0].uid not in tried)
        victim = next(left, None)
        if victim is None or victims.plans.spent >= until:
            return
        tried.add(victim.pods[0].uid)
        for attempt in best.without(victim):
            if victims.best is best:
                yield attempt

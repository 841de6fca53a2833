"""A decision about a group from its begin to its outcome, as data. Pure."""

from dataclasses import dataclass
from typing import Literal

from scheduler.cycle.decisions import GroupUnschedulable
from scheduler.cycle.groups.search import GroupSearch
from scheduler.cycle.preemption.groups.preempt import GroupVictimSearch

# The result of a decision, in the words of kube-scheduler's metrics.
Decided = Literal["scheduled", "unschedulable", "error"]


@dataclass(slots=True)
class GroupDecision:
    """A decision under way: ``unplaced`` is what it has found without victims, then it searches for ``victims``.

    ``arrivals`` is how often a member had come to be placed when it began.
    """

    search: GroupSearch
    arrivals: int
    unplaced: GroupUnschedulable | None = None
    victims: GroupVictimSearch | None = None

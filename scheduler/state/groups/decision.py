"""A decision about a group from its begin to its outcome, as data; and whether it must begin again. Pure."""

from dataclasses import dataclass
from typing import Literal

from scheduler.cycle.decisions import GroupUnschedulable
from scheduler.cycle.groups.preemption.preempt import GroupPreempted
from scheduler.cycle.groups.preemption.victim_search import GroupVictimSearch
from scheduler.cycle.groups.search import GroupSearch
from scheduler.kube.group_membership import GroupKey
from scheduler.pending.groups.pending_groups import PendingGroups

# The result of a decision, in the words of kube-scheduler's metrics.
Decided = Literal["scheduled", "unschedulable", "error"]


@dataclass(slots=True)
class GroupDecision:
    """A decision under way: ``unplaced`` is what it has found without victims, then it searches for ``victims``.

    ``arrivals`` is how often a member had come to be placed when it began. ``preempted`` is what that search has found
    once the next one is for room to wait for.
    """

    search: GroupSearch
    arrivals: int
    unplaced: GroupUnschedulable | None = None
    victims: GroupVictimSearch | None = None
    preempted: GroupPreempted | None = None


def needed(key: GroupKey, pending_groups: PendingGroups) -> int:
    """Return how many more members of a group must be placed for any of them to be."""
    return max(pending_groups.group(key).min - pending_groups.counting(key), 1)


def asks_for_more(decision: GroupDecision, pending_groups: PendingGroups) -> bool:
    """Return whether a group is another by now, or other members are placed than when its decision began.

    Those that are gone are missing; those that have come say where the others may go.
    """
    search, key = decision.search, decision.search.group.key
    if search.priority != pending_groups.priority(key):
        return True
    if pending_groups.members(key).arrivals != decision.arrivals:
        return True
    return pending_groups.group(key) != search.group or needed(key, pending_groups) > search.needed

"""A decision about a group from its start to its outcome, as data; and whether it must start again. Pure."""

from collections.abc import Set
from dataclasses import dataclass
from typing import Literal

from scheduler.cycle.decisions import GroupPlacement, GroupUnschedulable
from scheduler.cycle.groups.group_budget import GroupBudget, Turns
from scheduler.cycle.groups.group_demand import GroupDemand
from scheduler.cycle.groups.preemption.preempt import GroupPreempted
from scheduler.kube.group_membership import GroupKey
from scheduler.pending.groups.pending_groups import PendingGroups

# The result of a decision, in the words of kube-scheduler's metrics.
DecisionResult = Literal["scheduled", "unschedulable", "error"]


# A group's placement or why it has none, and its victims.
DecisionOutcome = tuple[GroupPlacement | GroupUnschedulable, GroupPreempted]


@dataclass(slots=True)
class GroupDecision:
    """A decision in progress about members of these ``owners``.

    ``changes`` is how often members had changed when it started, and ``exclusive_end`` until when others wait for it
    (monotonic seconds), if they do.
    """

    demand: GroupDemand
    budget: GroupBudget
    steps: Turns[DecisionOutcome]
    owners: frozenset[str]
    changes: int
    exclusive_end: float | None = None


def count_missing_members(key: GroupKey, owners: Set[str], pending_groups: PendingGroups) -> int:
    """Return how many more members of a group must be placed before any member of these owners can be."""
    return max(pending_groups.members(key).shortage(owners, pending_groups.group(key).min), 1)


def must_restart(decision: GroupDecision, pending_groups: PendingGroups) -> bool:
    """Return whether the group has changed since the decision started.

    New waiting members do not count, nor do placed ones that leave while enough remain. A deleted waiting member is
    missing, and a new placed member determines where the others may go.
    """
    demand, key = decision.demand, decision.demand.group.key
    if demand.priority != pending_groups.priority(key):
        return True
    if pending_groups.members(key).changes != decision.changes:
        return True
    if pending_groups.group(key) != demand.group:
        return True
    return count_missing_members(key, decision.owners, pending_groups) > demand.min_members - demand.needed_spares

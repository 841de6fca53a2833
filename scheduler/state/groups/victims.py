"""Who must leave for a group that does not fit, and where it waits if nobody is sent away. Pure.

Pods of lower priority that can be sent away are searched for first. If there are none, a group with first call on what
becomes free waits for pods of its own priority to end: the nodes are searched for where it would fit without them.
"""

from dataclasses import dataclass, replace

from scheduler.cache.cache import AssignedPod
from scheduler.cycle.decisions import GroupUnschedulable
from scheduler.cycle.groups.group_demand import GroupDemand
from scheduler.cycle.groups.preemption.preempt import NOT_HELPFUL, GroupPreempted, GroupPreemption
from scheduler.pending.groups.hold import GroupHold
from scheduler.state.groups.decision import GroupDecision


@dataclass(frozen=True, slots=True)
class GroupVictims:
    """The searches that follow when too few members fit."""

    group_preemption: GroupPreemption
    group_hold: GroupHold

    def proceed(self, decision: GroupDecision, unplaced: GroupUnschedulable, now: float) -> GroupPreempted | None:
        """Go on for one turn; None if it takes another one."""
        demand = decision.demand
        found = self._go_on(decision, now)
        if found is None:
            return None
        if decision.preempted is not None:
            return replace(decision.preempted, room=self._room(demand, found))
        if found.nominations or not self.group_hold.is_held_by(demand.group.key):
            return found
        fitting = [bind.assigned for bind in unplaced.binds]
        decision.preempted, decision.victims = (
            found,
            self.group_preemption.begin_room(demand, decision.budget.placement, fitting),
        )
        return found if decision.victims is None else None

    def _go_on(self, decision: GroupDecision, now: float) -> GroupPreempted | None:
        demand = decision.demand
        if decision.victims is None:
            begun = self.group_preemption.begin(demand, decision.budget.placement, now)
            if isinstance(begun, GroupPreempted):
                return begun
            decision.victims = begun
        plans = decision.victims.plans
        before = plans.spent
        found = self.group_preemption.proceed(decision.victims)
        decision.budget.charge_dry_runs(plans.spent - before)
        return found

    def _room(self, demand: GroupDemand, found: GroupPreempted) -> tuple[AssignedPod, ...]:
        """Return where the members wait; a search that was not finished changes nothing of what is kept."""
        if not found.nominations and found.reason != NOT_HELPFUL:
            return self.group_preemption.room(demand)
        return tuple(one.assigned for one in found.nominations)

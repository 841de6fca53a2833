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

    def proceed(self, decision: GroupDecision, unschedulable: GroupUnschedulable, now: float) -> GroupPreempted | None:
        """Go on for one turn; None if it takes another one."""
        demand = decision.demand
        preemption = self._go_on(decision, now)
        if preemption is None:
            return None
        if decision.preemption is not None:
            return replace(decision.preemption, room=self._room(demand, preemption))
        if preemption.nominations or not self.group_hold.is_held_by(demand.group.key):
            return preemption
        fitting_pods = [bind.assigned for bind in unschedulable.binds]
        decision.preemption = preemption
        decision.victims = self.group_preemption.search_room(demand, decision.budget, fitting_pods)
        return None

    def _go_on(self, decision: GroupDecision, now: float) -> GroupPreempted | None:
        budget = decision.budget
        if decision.victims is None:
            decision.victims = self.group_preemption.search(decision.demand, budget, now)
        budget.begin_turn()
        try:
            next(decision.victims)
        except StopIteration as ended:
            preemption: GroupPreempted = ended.value
            return preemption
        return None

    def _room(self, demand: GroupDemand, preemption: GroupPreempted) -> tuple[AssignedPod, ...]:
        """Return where the members wait; a search that was not finished changes nothing of what is kept."""
        if not preemption.nominations and preemption.reason != NOT_HELPFUL:
            return self.group_preemption.room(demand)
        return tuple(nomination.assigned for nomination in preemption.nominations)

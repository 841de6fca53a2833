"""Search for pods of lower priority to preempt for a group: the needed members fit then, or none is preempted. Pure.

The members are placed on a snapshot of their own (`victim_plan`). They are nominated and wait until their victims have
left. If something changed meanwhile on which the result depends, the search starts again, a few times.

For a group with `--group-hold` priority, the same search finds the nodes where it waits until pods up to its own
priority end by themselves. Pods that do not end by themselves are the last choice: with restartPolicy Always a pod
stays Running when all of its containers have ended. Source: getPhase in the kubelet's pkg/kubelet/kubelet_pods.go.
"""

from collections.abc import Sequence
from dataclasses import dataclass, replace

from scheduler.cache.assigned_pod import AssignedPod
from scheduler.cache.groups.group_cache import GroupCache
from scheduler.cycle.cycle import SchedulingCycle
from scheduler.cycle.groups.group_demand import GroupDemand, reads_other_nodes
from scheduler.cycle.groups.group_snapshot import GroupBudget, GroupSnapshot, Turns
from scheduler.cycle.groups.preemption.victim_plan import PlanSearch, VictimGoal
from scheduler.cycle.preemption.disruption_budgets import Budgets
from scheduler.cycle.preemption.potential_victims import PotentialVictims, pods_of
from scheduler.cycle.preemption.preemption import POLICY_NEVER, VF_PATIENCE_S, Preemption
from scheduler.cycle.reserved_room import Reservation
from scheduler.kube.group import MOST_SHAPES

NOT_HELPFUL = "no pods of lower priority were found whose eviction makes room for enough members."
# Limits of one search (`PlanSearch.try_count`): about 10 s for victims, and 4 s for room to wait for.
_A_SEARCH, _A_ROOM_SEARCH = 40_000, 16_000
_MAX_ROUNDS = 10
# Costs in units of one node: the room of a member, and a victim that is compared or counted.
_A_ROOM, _A_VICTIM = 150, 10
_PODS_IN_DELETION = "not eligible due to terminating pods on the nominated nodes."
_UNRELEASED_VFS = "not eligible due to unreleased VFs of deleted pods on the nominated nodes."
_MANY_SHAPES = f"preemption is not supported for a group with more than {MOST_SHAPES} different requests."
_RULES = "preemption is not supported for a group whose members have volumes, or rules about pods on other nodes."
_NO_STEPS = "the search for preemption victims ran out of steps."
_UNSTEADY = "nodes changed too often during the search for preemption victims."


@dataclass(frozen=True, slots=True)
class PreemptionResult:
    """The result for a group that does not fit: its members' room, and the message about it (``note``).

    ``victims`` must be deleted for it; empty if they are being deleted already, or if pods end by themselves.
    ``reason`` is why no pod is preempted; empty if there are no possible victims. ``comes_again``: another search may
    find more even if no event happens.
    """

    reservation: Reservation | None = None
    victims: tuple[AssignedPod, ...] = ()
    reason: str = ""
    comes_again: bool = False
    note: str = ""


NO_PREEMPTION = PreemptionResult()


class LastingPods:
    """Objects to waiting for pods that do not end by themselves."""

    has_any = True

    def violations(self, assigned_pods: Sequence[AssignedPod], counts: dict[int, int]) -> int:
        return sum(assigned_pod.always_restarts for assigned_pod in assigned_pods)


class GroupPreemption:
    def __init__(self, live: SchedulingCycle, budgets: Budgets, groups: GroupCache, preemption: Preemption) -> None:
        self._live, self._budgets, self._preemption = live, budgets, preemption
        self._victims = PotentialVictims(live.cache, groups)

    def search(self, demand: GroupDemand, budget: GroupBudget, now: float) -> Turns[PreemptionResult]:
        if (result := self._pending_result(demand, now)) is not None:
            return result
        if not self._victims.has_below(demand.priority):
            return NO_PREEMPTION
        if any(member.pod.spec.preemption_policy == "Never" for member in demand.members):
            return PreemptionResult(reason=POLICY_NEVER)
        if _has_rules(demand):
            return PreemptionResult(reason=_RULES)
        if demand.has_many_shapes:
            return PreemptionResult(reason=_MANY_SHAPES)
        return (yield from self._search(demand, budget, VictimGoal(self._budgets, demand.priority, _A_SEARCH)))

    def search_room(
        self, demand: GroupDemand, budget: GroupBudget, fitting_pods: Sequence[AssignedPod]
    ) -> Turns[tuple[AssignedPod, ...]]:
        """Return where the members wait until other pods end by themselves; ``fitting_pods`` fit now.

        There is no such room if rules about other pods restrict where members may be.
        """
        if _has_rules(demand) or demand.has_many_shapes:
            return ()
        rooms = demand.rooms(self._live.reserved_room)
        first_nodes = frozenset(assigned_pod.node for assigned_pod in (*fitting_pods, *rooms))
        goal = VictimGoal(LastingPods(), demand.priority + 1, _A_ROOM_SEARCH, is_for_room=True, first_nodes=first_nodes)
        result = yield from self._search(demand, budget, goal)
        if result.reservation is None:
            return () if result.reason == NOT_HELPFUL else rooms
        return tuple(result.reservation.rooms.values())

    def _search(self, demand: GroupDemand, budget: GroupBudget, goal: VictimGoal) -> Turns[PreemptionResult]:
        """Search on one snapshot after another until nothing has changed on which the result depends."""
        try_count = 0
        for _ in range(_MAX_ROUNDS):
            budget.renew_placement()
            budget_changes = self._budgets.changes
            snapshot = GroupSnapshot(self._live, demand, budget)
            search = PlanSearch(snapshot, goal, self._victims, frozenset(self._preemption.stuck_nodes()), try_count)
            plan = yield from search.best_plan()
            if plan is None:
                reason = _NO_STEPS if search.is_spent else NOT_HELPFUL
                return PreemptionResult(reason=reason, comes_again=search.is_spent and try_count > 0)
            pods, rooms = pods_of(plan.victims), dict[str, AssignedPod]()
            for bind in plan.binds:
                # It is reserved against all pods that the group precedes.
                rooms[bind.assigned.uid] = replace(bind.assigned, priority=demand.priority)
                yield from budget.checkpoint(_A_ROOM)
            uids = frozenset(pod.uid for pod in pods)
            yield from budget.checkpoint(_A_VICTIM * len(pods))
            # For room, objections are no budgets.
            has_new_budgets = self._budgets.changes != budget_changes and not goal.is_for_room
            breaks_budgets = has_new_budgets and self._budgets.violations(pods, {}) > 0
            nodes = {bind.assigned.node for bind in plan.binds} | {pod.node for pod in pods}
            is_valid = nodes.isdisjoint(snapshot.changed_nodes()) and self._victims.are_unchanged(plan.victims)
            if is_valid and not breaks_budgets:
                return PreemptionResult(Reservation(demand.group.key, rooms, victims=uids), pods)
            try_count = search.try_count
        return PreemptionResult(reason=_UNSTEADY, comes_again=True)

    def _pending_result(self, demand: GroupDemand, now: float) -> PreemptionResult | None:
        """Return a group's nominations while pods on its nodes, or their VFs, are leaving for it."""
        reservation, rooms = self._live.reserved_room.of_owner(demand.group.key), demand.rooms(self._live.reserved_room)
        if reservation is None or len(rooms) < demand.needed_count:
            return None
        if any(self._preemption.pods_in_deletion(reservation, room.node, demand.priority) for room in rooms):
            return PreemptionResult(replace(reservation, vfs_by=None), reason=_PODS_IN_DELETION)
        # Do not use their assignments: for nominations of the previous leader, it is unknown which VFs are not released
        # yet.
        with_vfs = {member.uid for member in demand.members if member.interfaces}
        if not any(room.uid in with_vfs and self._preemption.awaits_vf(room.node) for room in rooms):
            return None
        vfs_by = now + VF_PATIENCE_S if reservation.vfs_by is None else reservation.vfs_by
        return PreemptionResult(replace(reservation, vfs_by=vfs_by), reason=_UNRELEASED_VFS)


def _has_rules(demand: GroupDemand) -> bool:
    """Return whether more than each node by itself decides where members may be."""
    return any(member.volumes or reads_other_nodes(member) for member in demand.kinds)

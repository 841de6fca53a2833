"""Search for pods of lower priority to preempt for a group: the needed members fit after that, or no pod is preempted.
Pure.

Method: one generator, like the decision itself. It tries the group on its own snapshot. Members go where the loss is
smallest, and their victims leave the snapshot. In the best attempt, victims that are not necessary stay (`least_loss`).
The members are nominated and wait until their victims have left. At the end it checks what changed in the live cache.
If a node of the result changed, or a victim's group or priority, or a disruption budget that would be violated, the
search starts again, a few times. Nothing of it is in the cache, so other decisions can run meanwhile.

For a group with `--group-hold` priority, the same search finds the nodes where it waits until pods up to its own
priority end by themselves. Pods that do not end by themselves are the last choice: with restartPolicy Always a pod
stays Running when all of its containers have ended. Source: getPhase in the kubelet's pkg/kubelet/kubelet_pods.go.
"""

from collections.abc import Sequence
from dataclasses import dataclass, replace

from scheduler.cache.assigned_pod import AssignedPod
from scheduler.cache.groups.group_cache import GroupCache
from scheduler.cache.groups.group_sources import MOST_SHAPES
from scheduler.cycle.groups.group_budget import GroupBudget, Turns
from scheduler.cycle.groups.group_demand import GroupDemand, reads_other_nodes
from scheduler.cycle.groups.group_snapshot import GroupSnapshot, LiveCluster
from scheduler.cycle.groups.preemption.least_loss import A_VICTIM, VictimPlacement, least_loss
from scheduler.cycle.groups.preemption.row_victims import RowVictims, VictimGoal
from scheduler.cycle.preemption.disruption_budgets import Budgets
from scheduler.cycle.preemption.potential_victims import PotentialVictims, is_terminating, pods_of
from scheduler.cycle.preemption.preemption import POLICY_NEVER, VF_PATIENCE_S, Preemption
from scheduler.cycle.reservations import Reservation, reserve

NOT_HELPFUL = "no pods of lower priority were found whose eviction makes room for enough members."
# Limits of one search (`RowVictims.dry_run_count`): about 10 s for victims, and 2 s for room to wait for.
_A_SEARCH, _A_ROOM_SEARCH = 100_000, 20_000
_MAX_ROUNDS = 10
_PODS_IN_DELETION = "not eligible due to terminating pods on the nominated nodes."
_UNRELEASED_VFS = "not eligible due to unreleased VFs of deleted pods on the nominated nodes."
_MANY_SHAPES = f"preemption is not supported for a group with more than {MOST_SHAPES} different requests."
_RULES = "preemption is not supported for a group whose members have volumes, or rules about pods on other nodes."
_NO_STEPS = "the search for preemption victims ran out of steps."
_UNSTEADY = "nodes changed too often during the search for preemption victims."


@dataclass(frozen=True, slots=True)
class PreemptionResult:
    """The result for a group that does not fit.

    ``reservation`` is its members' room. ``victims`` must be deleted for it; empty if they are being deleted
    already, or if pods end by themselves. ``note`` is the message about it.
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
    def __init__(self, live: LiveCluster, budgets: Budgets, groups: GroupCache, preemption: Preemption) -> None:
        self._live, self._budgets, self._preemption = live, budgets, preemption
        self._victims = PotentialVictims(live.cache, groups)

    def concerns(self, priority: int) -> bool:
        """Return whether a group of this priority may preempt any pod."""
        return self._victims.has_below(priority)

    def search(self, demand: GroupDemand, budget: GroupBudget, now: float) -> Turns[PreemptionResult]:
        """Search for victims of a group of which too few members fit, turn by turn."""
        if (result := self._pending_result(demand, now)) is not None:
            return result
        if not self.concerns(demand.priority):
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
        """Return where the members wait until other pods end by themselves; ``fitting_pods`` are the members that fit
        now.

        There is no such room if rules about other pods restrict where members may be. An unfinished search changes
        nothing that is kept.
        """
        if _has_rules(demand) or demand.has_many_shapes:
            return ()
        rooms = demand.rooms(self._live.reserved)
        first_nodes = frozenset(assigned_pod.node for assigned_pod in (*fitting_pods, *rooms))
        goal = VictimGoal(LastingPods(), demand.priority + 1, _A_ROOM_SEARCH, is_for_room=True, first_nodes=first_nodes)
        result = yield from self._search(demand, budget, goal)
        if result.reservation is None:
            return () if result.reason == NOT_HELPFUL else rooms
        return tuple(result.reservation.rooms.values())

    def _search(self, demand: GroupDemand, budget: GroupBudget, goal: VictimGoal) -> Turns[PreemptionResult]:
        """Search on one snapshot after another until nothing has changed on which the result depends."""
        dry_run_count = 0
        for _ in range(_MAX_ROUNDS):
            budget.renew_placement()
            budget_changes = self._budgets.changes
            snapshot = GroupSnapshot(self._live, demand, budget)
            stuck_nodes = frozenset(self._preemption.stuck_nodes())
            row_victims = RowVictims(snapshot, goal, self._victims, stuck_nodes, dry_run_count)
            best = yield from least_loss(row_victims)
            if best is None:
                reason = _NO_STEPS if row_victims.is_spent else NOT_HELPFUL
                return PreemptionResult(reason=reason, comes_again=row_victims.is_spent and dry_run_count > 0)
            result = _result(best, demand)
            yield from budget.pause(A_VICTIM * len(best.victims))
            # For room, objections are no budgets.
            has_new_budgets = self._budgets.changes != budget_changes and not goal.is_for_room
            breaks_budgets = has_new_budgets and self._budgets.violations(pods_of(best.victims), {}) > 0
            if self._is_valid(snapshot, best) and not breaks_budgets:
                return result
            dry_run_count = row_victims.dry_run_count
        return PreemptionResult(reason=_UNSTEADY, comes_again=True)

    def _is_valid(self, snapshot: GroupSnapshot, best: VictimPlacement) -> bool:
        """Return whether the members still fit there if the same victims leave."""
        nodes = {bind.assigned.node for bind in best.binds} | {pod.node for pod in pods_of(best.victims)}
        return nodes.isdisjoint(snapshot.changed_nodes()) and self._victims.are_unchanged(best.victims)

    def _pending_result(self, demand: GroupDemand, now: float) -> PreemptionResult | None:
        """Return a group's nominations while pods on its nodes are terminating for it, or their VFs are not
        released.
        """
        reservation, rooms = self._live.reserved.of_owner(demand.group.key), demand.rooms(self._live.reserved)
        if reservation is None or len(rooms) < demand.min_members:
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


def _result(best: VictimPlacement, demand: GroupDemand) -> PreemptionResult:
    """Return the nominations of the members; their room is reserved against all pods that the group precedes."""
    pods = [pod for pod in pods_of(best.victims) if not is_terminating(pod)]
    rooms = [replace(bind.assigned, priority=demand.priority) for bind in best.binds]
    victims = frozenset(pod.uid for pod in pods)
    return PreemptionResult(reserve(demand.group.key, rooms, victims=victims), tuple(pods))

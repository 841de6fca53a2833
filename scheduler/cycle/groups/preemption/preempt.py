"""Search for pods of lower priority to preempt for a group: the needed members fit then, or none is preempted. Pure.

Members go where the loss is smallest, on a snapshot of their own (`least_loss`). In the best attempt, victims that are
not necessary stay. The members are nominated and wait until their victims have left. If something changed meanwhile on
which the result depends, the search starts again, a few times.

For a group with `--group-hold` priority, the same search finds the nodes where it waits until pods up to its own
priority end by themselves. Pods that do not end by themselves are the last choice: with restartPolicy Always a pod
stays Running when all of its containers have ended. Source: getPhase in the kubelet's pkg/kubelet/kubelet_pods.go.
"""

from collections import defaultdict
from collections.abc import Hashable, Iterable, Iterator, Sequence
from dataclasses import dataclass, replace

from scheduler.cache.assigned_pod import AssignedPod
from scheduler.cache.groups.group_cache import GroupCache
from scheduler.cache.groups.group_sources import MOST_SHAPES
from scheduler.cycle.cycle import SchedulingCycle
from scheduler.cycle.decisions import Bind
from scheduler.cycle.filters import Among
from scheduler.cycle.groups.group_budget import GroupBudget, Turns
from scheduler.cycle.groups.group_demand import GroupDemand, reads_other_nodes
from scheduler.cycle.groups.group_snapshot import GroupSnapshot
from scheduler.cycle.groups.preemption.least_loss import RowVictims, VictimGoal, VictimPlacement, least_loss
from scheduler.cycle.preemption.disruption_budgets import Budgets
from scheduler.cycle.preemption.potential_victims import (
    PotentialVictims,
    Victim,
    importance,
    is_terminating,
    pods_of,
    split,
    with_spare_members,
)
from scheduler.cycle.preemption.preemption import POLICY_NEVER, VF_PATIENCE_S, Preemption
from scheduler.cycle.reservations import Reservation, rooms_of

NOT_HELPFUL = "no pods of lower priority were found whose eviction makes room for enough members."
# Limits of one search (`RowVictims.dry_run_count`): about 10 s for victims, and 2 s for room to wait for.
_A_SEARCH, _A_ROOM_SEARCH = 100_000, 20_000
_MAX_ROUNDS = 10
# Number of members that are put on nodes to let victims stay. Victims not tried by then are preempted.
_MAX_MOVES = 10_000
# Looks that one victim takes to compare or count.
_A_VICTIM = 10
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

        There is no such room if rules about other pods restrict where members may be. An unfinished search changes
        nothing that is kept.
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
            victims = best.victims if goal.is_for_room else (yield from Reprieve(best).run())
            pods, rooms = pods_of(victims), list[AssignedPod]()
            yield from budget.move_all(rooms.append, _rooms(best.binds, demand.priority))
            result = _result(rooms, pods, demand)
            yield from budget.pause(_A_VICTIM * len(victims))
            # For room, objections are no budgets.
            has_new_budgets = self._budgets.changes != budget_changes and not goal.is_for_room
            breaks_budgets = has_new_budgets and self._budgets.violations(pods, {}) > 0
            nodes = {bind.assigned.node for bind in best.binds} | {pod.node for pod in pods}
            is_valid = nodes.isdisjoint(snapshot.changed_nodes()) and self._victims.are_unchanged(victims)
            if is_valid and not breaks_budgets:
                return result
            dry_run_count = row_victims.dry_run_count
        return PreemptionResult(reason=_UNSTEADY, comes_again=True)

    def _pending_result(self, demand: GroupDemand, now: float) -> PreemptionResult | None:
        """Return a group's nominations while pods on its nodes, or their VFs, are leaving for it."""
        reservation, rooms = self._live.reserved_room.of_owner(demand.group.key), demand.rooms(self._live.reserved_room)
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


def _rooms(binds: Iterable[Bind], priority: int) -> Iterator[AssignedPod]:
    """Yield the rooms of members, which are reserved against all pods that the group precedes."""
    return (replace(bind.assigned, priority=priority) for bind in binds)


def _result(rooms: Sequence[AssignedPod], pods: Sequence[AssignedPod], demand: GroupDemand) -> PreemptionResult:
    victims = tuple(pod for pod in pods if not is_terminating(pod))
    uids = frozenset(pod.uid for pod in victims)
    return PreemptionResult(Reservation(demand.group.key, rooms_of(rooms), victims=uids), victims)


class Reprieve:
    """Lets victims of an attempt stay that are not necessary, in kube-scheduler's order.

    A victim stays if the members on its nodes fit with it, or have other places in the domain. No other pod is
    preempted for that.
    """

    def __init__(self, attempt: VictimPlacement) -> None:
        self._attempt, self._row_victims = attempt, attempt.row_victims
        self._snapshot, self._budget = attempt.row_victims.snapshot, attempt.row_victims.budget
        # Whether one more member of a kind fits on some rows, while no victim has been put back since.
        self._has_room: dict[Hashable, bool] = {}
        self._binds_on = defaultdict[str, dict[str, Bind]](dict)

    def run(self) -> Turns[list[Victim]]:
        """Repeat the attempt, and put back the victims that may stay; return the others, the most important first."""
        victims, snapshot, budget = self._attempt.victims, self._snapshot, self._budget
        yield from budget.move_all(snapshot.remove, pods_of(victims))
        yield from budget.move_all(snapshot.put_on, self._attempt.binds)
        for bind in self._attempt.binds:
            self._binds_on[bind.assigned.node][bind.pod_info.uid] = bind
        yield from budget.pause(_A_VICTIM * len(victims))
        ranking = sorted(victims, key=importance)
        yield from budget.pause(_A_VICTIM * len(victims))
        violators, rest = split(self._row_victims.goal.objections, ranking)
        choice, move_count = list[Victim](), 0
        for victim in (*violators, *rest):
            if move_count <= _MAX_MOVES:
                nodes = dict.fromkeys(assigned_pod.node for assigned_pod in victim.pods)
                binds = [bind for node in nodes for bind in self._binds_on[node].values()]
                move_count += len(binds)
                if (yield from self._put_back(victim, binds)):
                    continue
            choice.append(victim)
        # It counts for the next search, which follows if nodes have changed.
        self._row_victims.dry_run_count += move_count
        yield from budget.pause(_A_VICTIM * len(choice))
        yield from self._attempt.end()
        return sorted(with_spare_members(choice, victims), key=importance)

    def _put_back(self, victim: Victim, binds: Sequence[Bind]) -> Turns[bool]:
        """Put a victim back if the members on its nodes, with these ``binds``, then have places there or elsewhere."""
        snapshot, budget, nodes = self._snapshot, self._budget, self._snapshot.nodes
        own_rows = nodes.flags([nodes.row_of[bind.assigned.node] for bind in binds])
        places = list[list[Among | None]]()
        for bind in binds:
            among = self._attempt.among_for(bind.pod_info.uid)
            own_among = Among(own_rows if among is None else own_rows & among.flags)
            places.append([own_among, among] if (yield from self._is_room_for(bind, among)) else [own_among])
        uids = [bind.pod_info.uid for bind in binds]
        yield from budget.move_all(snapshot.take_off, uids)
        yield from budget.move_all(snapshot.restore, victim.pods)
        for bind, amongs in zip(binds, places, strict=True):
            for among in amongs:
                decision = yield from snapshot.place_member(bind.pod_info, among)
                if isinstance(decision, Bind):
                    snapshot.put_on(decision)
                    break
            else:
                yield from budget.move_all(snapshot.take_off, [uid for uid in uids if uid in snapshot.binds])
                yield from budget.move_all(snapshot.remove, victim.pods)
                yield from budget.move_all(snapshot.put_on, binds)
                return False
        for bind in binds:
            del self._binds_on[bind.assigned.node][bind.pod_info.uid]
        for uid in uids:
            self._binds_on[snapshot.binds[uid].assigned.node][uid] = snapshot.binds[uid]
        self._has_room.clear()
        return True

    def _is_room_for(self, bind: Bind, among: Among | None) -> Turns[bool]:
        """Return whether one more member like this fits; otherwise it fits only on nodes that members leave."""
        key = self._row_victims.kind(bind.pod_info), id(among)
        if key not in self._has_room:
            decision = yield from self._snapshot.place_member(bind.pod_info, among)
            self._has_room[key] = isinstance(decision, Bind)
        return self._has_room[key]

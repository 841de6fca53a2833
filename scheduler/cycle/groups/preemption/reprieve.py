"""Choose which victims of a placement may stay: put each back in kube-scheduler's order and check. Pure.

First come victims whose removal violates a disruption budget, then the most important. A victim stays if the members on
its nodes fit with it, or have other places in the domain. No other pod is preempted for that.
"""

from collections.abc import Collection, Hashable, Sequence

from scheduler.cache.node_columns import Flags
from scheduler.cycle.decisions import Bind
from scheduler.cycle.groups.group_budget import GroupBudget
from scheduler.cycle.groups.group_placement import Turns, place_member
from scheduler.cycle.groups.group_snapshot import GroupSnapshot
from scheduler.cycle.groups.members import alike
from scheduler.cycle.groups.preemption.least_loss import flags_of, remove_victims, restore_victims, rows_of
from scheduler.cycle.preemption.disruption_budgets import Objections
from scheduler.cycle.preemption.potential_victims import Victim, importance, split, with_spare_members
from scheduler.cycle.refusals import Among
from scheduler.kube.pod_info import PodInfo

# Number of members that are put on nodes to let victims stay. Victims not tried by then are preempted.
_MAX_MOVES = 10_000


class Reprieve:
    """Lets victims stay that are not necessary; the snapshot is as a placement has left it."""

    def __init__(self, snapshot: GroupSnapshot, inside: Flags | None, budget: GroupBudget) -> None:
        self._snapshot, self._inside, self._budget = snapshot, inside, budget
        # Whether one more member of each kind fits anywhere. If not, such members cannot move to other nodes.
        self._has_room: dict[Hashable, bool] = {}
        self._move_count = 0

    def choose(self, victims: Sequence[Victim], objections: Objections) -> Turns[list[Victim]]:
        """Put back victims that may stay; return the others, the most important first."""
        violators, rest = split(objections, sorted(victims, key=importance))
        chosen = list[Victim]()
        for victim in (*violators, *rest):
            if self._move_count >= _MAX_MOVES or not (yield from self._stays(victim)):
                chosen.append(victim)
        return sorted(with_spare_members(chosen, victims), key=importance)

    def _stays(self, victim: Victim) -> Turns[bool]:
        """Put a victim back if the members on its nodes then have other places."""
        snapshot = self._snapshot
        nodes = {assigned_pod.node for assigned_pod in victim.pods}
        self._budget.charge(len(snapshot.binds))
        displaced_binds = [bind for bind in snapshot.binds.values() if bind.assigned.node in nodes]
        for bind in displaced_binds:
            kind = alike(bind.pod_info)
            if kind not in self._has_room:
                self._has_room[kind] = (yield from self._place(bind.pod_info, self._inside)) is not None
        yield from self._take_off(displaced_binds)
        yield from restore_victims(snapshot, [victim], self._budget)
        own_rows = flags_of(rows_of([victim], snapshot), snapshot.cache.nodes.size)
        if self._inside is not None:
            own_rows &= self._inside
        if (yield from self._put_elsewhere(displaced_binds, own_rows)):
            if displaced_binds:
                self._has_room.clear()
            return True
        yield from self._take_off(displaced_binds)
        yield from remove_victims(snapshot, [victim], self._budget)
        for bind in displaced_binds:
            if self._budget.turn_is_over:
                yield
            snapshot.put_on(bind)
            self._budget.charge_move()
        return False

    def _put_elsewhere(self, displaced_binds: Collection[Bind], own_rows: Flags) -> Turns[bool]:
        for old_bind in displaced_binds:
            bind = yield from self._place(old_bind.pod_info, own_rows)
            if bind is None and self._has_room[alike(old_bind.pod_info)]:
                bind = yield from self._place(old_bind.pod_info, self._inside)
            if bind is None:
                return False
            self._snapshot.put_on(bind)
        return True

    def _place(self, member: PodInfo, inside: Flags | None) -> Turns[Bind | None]:
        self._move_count += 1
        among = Among(inside) if inside is not None else None
        decision = yield from place_member(self._snapshot, member, among, self._budget)
        return decision if isinstance(decision, Bind) else None

    def _take_off(self, binds: Collection[Bind]) -> Turns[None]:
        """Remove the members of some binds from their nodes, wherever they are now."""
        for bind in binds:
            if self._budget.turn_is_over:
                yield
            if bind.pod_info.uid in self._snapshot.binds:
                self._snapshot.take_off(bind.pod_info.uid)
                self._budget.charge_move()

"""Choose which victims of a group may stay: put each back in kube-scheduler's order and check. Pure.

First come victims whose removal violates a disruption budget, then the most important. A victim stays if the members on
its nodes fit with it, or have other places in the domain. No other pod is preempted for that.
"""

from collections import defaultdict
from collections.abc import Callable, Hashable, Sequence

from scheduler.cycle.decisions import Bind
from scheduler.cycle.groups.group_budget import Turns
from scheduler.cycle.groups.group_placement import place_member
from scheduler.cycle.groups.preemption.row_victims import RowVictims
from scheduler.cycle.preemption.potential_victims import Victim, importance, split, with_spare_members
from scheduler.cycle.refusals import Among

# Number of members that are put on nodes to let victims stay. Victims not tried by then are preempted.
_MAX_MOVES = 10_000
# Looks that one victim takes to compare or count.
A_VICTIM = 10


class Reprieve:
    """Victims are put back on a snapshot that has the members; ``among_for`` returns where a member may be, by uid."""

    def __init__(self, row_victims: RowVictims, among_for: Callable[[str], Among | None]) -> None:
        self._row_victims, self._among_for = row_victims, among_for
        self._snapshot, self._budget = row_victims.snapshot, row_victims.budget
        # Whether one more member of a kind fits on some rows, while no victim has been put back since.
        self._has_room: dict[Hashable, bool] = {}
        self._binds_on = defaultdict[str, dict[str, Bind]](dict)
        for bind in self._snapshot.binds.values():
            self._binds_on[bind.assigned.node][bind.pod_info.uid] = bind

    def run(self, victims: Sequence[Victim]) -> Turns[list[Victim]]:
        """Put back the victims that may stay; return the others, the most important first."""
        ordered_victims = sorted(victims, key=importance)
        yield from self._charge(victims)
        violators, rest = split(self._row_victims.goal.objections, ordered_victims)
        yield from self._charge(victims)
        chosen, move_count = list[Victim](), 0
        for victim in (*violators, *rest):
            if move_count > _MAX_MOVES:
                chosen.append(victim)
                continue
            nodes = dict.fromkeys(assigned_pod.node for assigned_pod in victim.pods)
            binds = [bind for node in nodes for bind in self._binds_on[node].values()]
            move_count += len(binds)
            # It counts for the next search, which follows if nodes have changed.
            self._row_victims.spent += len(binds)
            if not (yield from self._stays(victim, binds)):
                chosen.append(victim)
        yield from self._charge(chosen)
        return sorted(with_spare_members(chosen, victims), key=importance)

    def _charge(self, victims: Sequence[Victim]) -> Turns[None]:
        """Count that each victim was read once."""
        self._budget.charge(A_VICTIM * len(victims))
        if self._budget.turn_is_over:
            yield

    def _stays(self, victim: Victim, binds: Sequence[Bind]) -> Turns[bool]:
        """Put a victim back if the members on its nodes, with these ``binds``, then have places there or elsewhere."""
        snapshot, budget, nodes = self._snapshot, self._budget, self._snapshot.cache.nodes
        own_rows = nodes.flags([nodes.row_of[bind.assigned.node] for bind in binds])
        choices = list[list[Among | None]]()
        for bind in binds:
            among = self._among_for(bind.pod_info.uid)
            own_among = Among(own_rows if among is None else own_rows & among.flags)
            choices.append([own_among, among] if (yield from self._is_room_for(bind, among)) else [own_among])
        yield from budget.move_all(snapshot.take_off, [bind.pod_info.uid for bind in binds])
        yield from budget.move_all(snapshot.restore, victim.pods)
        for bind, amongs in zip(binds, choices, strict=True):
            for among in amongs:
                decision = yield from place_member(snapshot, bind.pod_info, among, budget)
                if isinstance(decision, Bind):
                    snapshot.put_on(decision)
                    break
            else:
                moved_uids = [bind.pod_info.uid for bind in binds if bind.pod_info.uid in snapshot.binds]
                yield from budget.move_all(snapshot.take_off, moved_uids)
                yield from budget.move_all(snapshot.remove, victim.pods)
                yield from budget.move_all(snapshot.put_on, binds)
                return False
        for bind in binds:
            del self._binds_on[bind.assigned.node][bind.pod_info.uid]
        for uid in [bind.pod_info.uid for bind in binds]:
            self._binds_on[snapshot.binds[uid].assigned.node][uid] = snapshot.binds[uid]
        self._has_room.clear()
        return True

    def _is_room_for(self, bind: Bind, among: Among | None) -> Turns[bool]:
        """Return whether one more member like this fits; otherwise it fits only on nodes that members leave."""
        key = self._row_victims.kind(bind.pod_info), id(among)
        if key not in self._has_room:
            decision = yield from place_member(self._snapshot, bind.pod_info, among, self._budget)
            self._has_room[key] = isinstance(decision, Bind)
        return self._has_room[key]

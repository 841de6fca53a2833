"""Choose which victims of a placement may stay: put each back in kube-scheduler's order and check. Pure.

First come victims whose removal violates a disruption budget, then the most important. A victim stays if the members on
its nodes fit with it, or have other places in the domain. No other pod is preempted for that.
"""

from collections.abc import Sequence

from scheduler.cycle.decisions import Bind
from scheduler.cycle.groups.group_budget import GroupBudget, Turns
from scheduler.cycle.groups.group_placement import place_member
from scheduler.cycle.groups.group_snapshot import GroupSnapshot
from scheduler.cycle.groups.preemption.least_loss import LeastLoss
from scheduler.cycle.preemption.disruption_budgets import Objections
from scheduler.cycle.preemption.potential_victims import Victim, importance, split, with_spare_members
from scheduler.cycle.refusals import Among

# Number of members that are put on nodes to let victims stay. Victims not tried by then are preempted.
_MAX_MOVES = 10_000


def reprieve(
    snapshot: GroupSnapshot, placement: LeastLoss, objections: Objections, budget: GroupBudget
) -> Turns[list[Victim]]:
    """Put back victims of a placement that may stay; return the others, the most important first."""
    victims = placement.removed.victims
    violators, rest = split(objections, sorted(victims, key=importance))
    chosen, move_count = list[Victim](), 0
    for victim in (*violators, *rest):
        nodes = {assigned_pod.node for assigned_pod in victim.pods}
        binds = [bind for bind in snapshot.binds.values() if bind.assigned.node in nodes]
        budget.charge(len(snapshot.binds))
        move_count += len(binds)
        if move_count > _MAX_MOVES or not (yield from _stays(snapshot, victim, binds, placement, budget)):
            chosen.append(victim)
    return sorted(with_spare_members(chosen, victims), key=importance)


def _stays(
    snapshot: GroupSnapshot,
    victim: Victim,
    binds: Sequence[Bind],
    placement: LeastLoss,
    budget: GroupBudget,
) -> Turns[bool]:
    """Put a victim back if the members on its nodes, with these ``binds``, then have places there or elsewhere."""
    nodes = snapshot.cache.nodes
    yield from budget.move_all(snapshot.take_off, [bind.pod_info.uid for bind in binds])
    yield from budget.move_all(snapshot.restore, victim.pods)
    own_rows = nodes.flags([nodes.row_of[bind.assigned.node] for bind in binds])
    for bind in binds:
        among = placement.among_for(bind.pod_info.uid)
        own_among = Among(own_rows if among is None else own_rows & among.flags)
        decision = yield from place_member(snapshot, bind.pod_info, own_among, budget)
        if not isinstance(decision, Bind):
            decision = yield from place_member(snapshot, bind.pod_info, among, budget)
        if not isinstance(decision, Bind):
            break
        snapshot.put_on(decision)
    else:
        return True
    moved_uids = [bind.pod_info.uid for bind in binds if bind.pod_info.uid in snapshot.binds]
    yield from budget.move_all(snapshot.take_off, moved_uids)
    yield from budget.move_all(snapshot.remove, victim.pods)
    yield from budget.move_all(snapshot.put_on, binds)
    return False

"""What the members of a group that waits are told, in words that count members and nodes. Pure."""

from scheduler.cache.cache import AssignedPod, Cache
from scheduler.cache.groups.groups_by_pod import Members
from scheduler.cycle.decisions import GroupUnschedulable, Unschedulable
from scheduler.cycle.groups.group_demand import GroupDemand
from scheduler.cycle.groups.members import alike
from scheduler.cycle.refusals import for_member
from scheduler.kube.cluster_event import LEAVING, ClusterEvent

# The most that one decision tries was tried.
_GOES_ON = ", and not all domains were tried yet"
_CUT = ", and not all combinations were tried"
# Pods that are named as in the way of a group.
_NAMED = 3


def shortage(members: Members, demand: GroupDemand, verdict: GroupUnschedulable, cache: Cache) -> str:
    """Return why fewer members fit than are needed.

    If some are placed already, but too few, name pods that are in the way of the others: they run for nothing until
    those go.
    """
    least = demand.group.min
    if members.counting >= least:
        return surplus(members, demand, verdict.refusal)
    reason = for_member(verdict.refusal.reason, _ordinal(verdict.fitting + 1))
    where = f" in {verdict.where}, where the most do" if verdict.where else ""
    if verdict.is_cut:
        where += _GOES_ON if verdict.go_on_from else _CUT
    if counting := members.counting:
        half = f"{counting} of at least {least} members are placed, and {verdict.fitting} of"
        who = _in_the_way(members, verdict.refusal, cache)
        return f"group {members.title}: {half} {verdict.wanted} others fit{where}: {reason}{who}"
    return f"group {members.title}: {verdict.fitting} of {verdict.wanted} members fit{where}: {reason}"


def surplus(members: Members, demand: GroupDemand, refusal: Unschedulable) -> str:
    """Return why a member is not placed beside as many as the group needs.

    Others may not be placed for other reasons, if they ask for other things: then it is named.
    """
    has_others = any(alike(one) != alike(demand.members[0]) for one in demand.members)
    name = refusal.pod_info.pod.metadata.name if has_others else "this one"
    return f"group {members.title}: at least as many members as it needs are placed, {name} is not: {refusal.reason}"


def _in_the_way(members: Members, refusal: Unschedulable, cache: Cache) -> str:
    """Name pods of others on nodes that a member hangs on, those with the most VFs first; empty if none need go."""
    about = refusal.why.get("group")
    nodes = about.get("nodes") if isinstance(about, dict) else None
    if not refusal.requeue_on & LEAVING or not isinstance(nodes, list):
        return ""
    others = [one for node in nodes for one in cache.assigned_pods_on(node) if one.uid not in members.standings]
    if refusal.requeue_on & ClusterEvent.VFS_FREED:
        others = [one for one in others if _vfs(one)]
    others.sort(key=lambda one: (-_vfs(one), one.pod))
    named = [f"{one.pod} on {one.node}" for one in others[:_NAMED]]
    more = [f"{len(others) - _NAMED} more"] if len(others) > _NAMED else []
    return f" In the way: {', '.join((*named, *more))}." if named else ""


def _vfs(assigned: AssignedPod) -> int:
    return len(assigned.assignment.vfs) if assigned.assignment is not None else 0


def _ordinal(number: int) -> str:
    ending = "th" if number % 100 in (11, 12, 13) else {1: "st", 2: "nd", 3: "rd"}.get(number % 10, "th")
    return f"{number}{ending}"

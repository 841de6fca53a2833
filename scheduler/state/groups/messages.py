"""The messages for the members of a waiting group; they count members and nodes. Pure."""

from scheduler.cache.assigned_pod import AssignedPod
from scheduler.cache.cache import Cache
from scheduler.cache.groups.group_members import Members
from scheduler.cycle.decisions import GroupUnschedulable, Unschedulable
from scheduler.cycle.groups.group_demand import GroupDemand, kind_of
from scheduler.cycle.refusals import for_member
from scheduler.kube.cluster_event import LEAVING, ClusterEvent

# The decision has reached the limit of what one decision tries.
_MORE_DOMAINS = ", and not all domains were tried yet"
_MORE_COMBINATIONS = ", and not all combinations were tried"
# Maximum number of blocking pods that a message names.
_MAX_NAMES = 3


def shortage(members: Members, demand: GroupDemand, verdict: GroupUnschedulable, cache: Cache) -> str:
    """Return why fewer members fit than are needed.

    If some are placed already, but too few, name the pods that block the others: the placed members run for nothing
    until these leave.
    """
    min_members = demand.group.min
    placed_count = members.count_for(members.owners(demand.uids))
    if placed_count >= min_members:
        return surplus(members, demand, verdict.refusal)
    reason = for_member(verdict.refusal.reason, _ordinal(verdict.fitting + 1))
    domain = f" in {verdict.where}, the best domain" if verdict.where else ""
    if verdict.is_cut:
        domain += _MORE_DOMAINS if verdict.go_on_from else _MORE_COMBINATIONS
    if placed_count:
        half = f"{placed_count} of at least {min_members} members are placed, and {verdict.fitting} of"
        blockers = _name_blockers(members, verdict.refusal, cache)
        return f"group {members.title}: {half} {verdict.wanted} others fit{domain}: {reason}{blockers}"
    return f"group {members.title}: {verdict.fitting} of {verdict.wanted} members fit{domain}: {reason}"


def surplus(members: Members, demand: GroupDemand, refusal: Unschedulable) -> str:
    """Return why a member is not placed although as many as the group needs are.

    Members with other requests may wait for other reasons; then the message names the member.
    """
    is_mixed = any(kind_of(member) != kind_of(demand.members[0]) for member in demand.real_members)
    name = refusal.pod_info.pod.metadata.name if is_mixed else "this one"
    return f"group {members.title}: enough members are placed, but {name} is not: {refusal.reason}"


def _name_blockers(members: Members, refusal: Unschedulable, cache: Cache) -> str:
    """Name pods outside the group on the nodes that a member needs, those with the most VFs first; empty if none need
    to leave.
    """
    facts = refusal.why.get("group")
    nodes = facts.get("nodes") if isinstance(facts, dict) else None
    if not refusal.requeue_on & LEAVING or not isinstance(nodes, list):
        return ""
    foreign_pods = [
        assigned_pod
        for node in nodes
        for assigned_pod in cache.assigned_pods_on(node)
        if assigned_pod.uid not in members.pods
    ]
    if refusal.requeue_on & ClusterEvent.VFS_FREED:
        foreign_pods = [assigned_pod for assigned_pod in foreign_pods if _count_vfs(assigned_pod)]
    foreign_pods.sort(key=lambda assigned_pod: (-_count_vfs(assigned_pod), assigned_pod.pod))
    pods = [f"{assigned_pod.pod} on {assigned_pod.node}" for assigned_pod in foreign_pods[:_MAX_NAMES]]
    remainder = [f"{len(foreign_pods) - _MAX_NAMES} more"] if len(foreign_pods) > _MAX_NAMES else []
    return f" Blocked by: {', '.join((*pods, *remainder))}." if pods else ""


def _count_vfs(assigned_pod: AssignedPod) -> int:
    return len(assigned_pod.assignment.vfs) if assigned_pod.assignment is not None else 0


def _ordinal(number: int) -> str:
    ending = "th" if number % 100 in (11, 12, 13) else {1: "st", 2: "nd", 3: "rd"}.get(number % 10, "th")
    return f"{number}{ending}"

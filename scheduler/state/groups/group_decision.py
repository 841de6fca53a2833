"""A decision about a group: when it must start again, and why too few members fit. Pure."""

from dataclasses import dataclass

from scheduler.cache.cache import Cache
from scheduler.cache.groups.group_cache import Members
from scheduler.cycle.decisions import GroupPlacement, GroupUnschedulable, for_member
from scheduler.cycle.groups.group_demand import GroupDemand, kind_of
from scheduler.cycle.groups.group_snapshot import GroupBudget, Turns
from scheduler.cycle.groups.preemption.preempt import PreemptionResult
from scheduler.kube.cluster_event import ClusterEvent
from scheduler.kube.group import GroupKey
from scheduler.pending.groups.pending_groups import PendingGroups

# A group's placement or why it has none, and its victims.
DecisionOutcome = tuple[GroupPlacement | GroupUnschedulable, PreemptionResult]
# Maximum number of blocking pods that a message names.
_MAX_NAMES = 3


@dataclass(slots=True)
class GroupDecision:
    """A decision in progress about members of these ``owners``.

    ``changes`` is how often members had changed when it started, and ``exclusive_end`` until when others wait for it
    (monotonic seconds), if they do.
    """

    demand: GroupDemand
    budget: GroupBudget
    steps: Turns[DecisionOutcome]
    owners: frozenset[str]
    changes: int
    exclusive_end: float | None = None

    @property
    def key(self) -> GroupKey:
        return self.demand.group.key

    def must_restart(self, pending_groups: PendingGroups) -> bool:
        """Return whether the group has changed since the decision started.

        New waiting members do not count, nor do placed ones that leave while enough remain. A deleted waiting member is
        missing, and a new placed member determines where the others may go.
        """
        demand, key = self.demand, self.key
        return (
            demand.priority != pending_groups.priority(key)
            or pending_groups.members(key).changes != self.changes
            or pending_groups.group(key) != demand.group
            or pending_groups.shortage(key, self.owners) > demand.needed_count - demand.needed_spares
        )


def refusal_message(
    members: Members, demand: GroupDemand, verdict: GroupUnschedulable, preemption: PreemptionResult, cache: Cache
) -> str:
    message = _shortage_text(members, demand, verdict, cache)
    if demand.needed_spares:
        message += f" The members include {demand.needed_spares} spare."
    if preemption.reason:
        message += f" preemption: {preemption.reason}"
    return message + preemption.note


def _shortage_text(members: Members, demand: GroupDemand, verdict: GroupUnschedulable, cache: Cache) -> str:
    """Return how many members fit, why the next one does not, and what blocks the rest of a half placed group."""
    refusal, min_members = verdict.refusal, demand.group.min
    placed_count = members.count_for(members.owners(demand.uids))
    if placed_count >= min_members:
        # Members with other requests may wait for other reasons.
        is_mixed = any(kind_of(member) != kind_of(demand.members[0]) for member in demand.real_members)
        name = refusal.pod_info.pod.metadata.name if is_mixed else "this one"
        return f"group {members.title}: enough members are placed, but {name} is not: {refusal.reason}"
    reason = for_member(refusal.reason, verdict.fitting + 1)
    domain = f" in {verdict.where}, the best domain" if verdict.where else ""
    if verdict.is_cut:
        domain += ", and not all combinations were tried"
    if placed_count:
        half = f"{placed_count} of at least {min_members} members are placed, and {verdict.fitting} of"
        blockers = _name_blockers(members, verdict, cache)
        return f"group {members.title}: {half} {verdict.wanted} others fit{domain}: {reason}{blockers}"
    return f"group {members.title}: {verdict.fitting} of {verdict.wanted} members fit{domain}: {reason}"


def _name_blockers(members: Members, verdict: GroupUnschedulable, cache: Cache) -> str:
    """Name pods outside the group on the nodes that a member needs, most VFs first; empty if none need to leave."""
    facts, events = verdict.refusal.why.get("group"), verdict.refusal.requeue_on
    nodes = facts.get("nodes") if isinstance(facts, dict) else None
    if not events & ClusterEvent.ROOM or not isinstance(nodes, list):
        return ""
    foreign_pods = [
        pod
        for node in nodes
        for pod in cache.assigned_pods_on(node)
        if pod.uid not in members.pods and (pod.vf_count or not events & ClusterEvent.VFS_FREED)
    ]
    foreign_pods.sort(key=lambda pod: (-pod.vf_count, pod.pod))
    pods = [f"{pod.pod} on {pod.node}" for pod in foreign_pods[:_MAX_NAMES]]
    remainder = [f"{len(foreign_pods) - _MAX_NAMES} more"] if len(foreign_pods) > _MAX_NAMES else []
    return f" Blocked by: {', '.join((*pods, *remainder))}." if pods else ""

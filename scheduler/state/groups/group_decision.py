"""A decision about a group: what the group asks for, when it must start again, and why too few members fit. Pure."""

from collections.abc import Sequence, Set
from dataclasses import dataclass
from itertools import islice

from mooring.annotations.group import MOST_MEMBERS
from scheduler.cache.assigned_pod import AssignedPod
from scheduler.cache.cache import Cache
from scheduler.cache.groups.group_members import Members
from scheduler.cache.groups.group_sources import Group
from scheduler.cycle.decisions import GroupPlacement, GroupUnschedulable
from scheduler.cycle.groups.group_budget import GroupBudget, Turns
from scheduler.cycle.groups.group_demand import GroupDemand, as_member, by_size, kind_of, spare_members
from scheduler.cycle.groups.preemption.preempt import PreemptionResult
from scheduler.cycle.refusals import for_member
from scheduler.kube.cluster_event import ClusterEvent
from scheduler.kube.group_membership import GroupKey
from scheduler.kube.member_order import by_index, ranks, ranks_by_domain
from scheduler.kube.pod_info import PodInfo
from scheduler.pending.groups.pending_groups import PendingGroups
from scheduler.state.shared_state import SharedState

# A group's placement or why it has none, and its victims.
DecisionOutcome = tuple[GroupPlacement | GroupUnschedulable, PreemptionResult]
# The decision has reached the limit of what one decision tries.
_MORE_DOMAINS = ", and not all domains were tried yet"
_MORE_COMBINATIONS = ", and not all combinations were tried"
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
            or _missing_count(key, self.owners, pending_groups) > demand.min_members - demand.needed_spares
        )


def _missing_count(key: GroupKey, owners: Set[str], pending_groups: PendingGroups) -> int:
    """Return how many more members of a group must be placed before any member of these owners can be."""
    return max(pending_groups.members(key).shortage(owners, pending_groups.group(key).min), 1)


def demand_of(key: GroupKey, state: SharedState) -> tuple[GroupDemand, frozenset[str]]:
    """Return what a group that was popped from the queue asks for, and the owners of its waiting members."""
    group, members = state.pending_groups.group(key), state.pending_groups.members(key)
    priority, pod_infos = state.pending_groups.priority(key), _waiting_members(key, state)
    owners = members.owners(pod_info.uid for pod_info in pod_infos)
    missing_count = _missing_count(key, owners, state.pending_groups)
    pod_infos = _with_roles(pod_infos, members, owners, missing_count)
    placed_pods = [pod for uid in members.of("placed") if (pod := state.cache.assigned(uid)) is not None]
    spares = _spares(group, pod_infos, state)
    # A group does not start without room for its spares, unless it could preempt pods there; a member that is made
    # again does not wait for them.
    reservation = state.reservations.of_owner(key)
    has_victims = reservation is not None and reservation.cause == "victims"
    is_start = members.shortage(owners, group.min) >= group.min
    needed_spares = len(spares) if is_start and not has_victims else 0
    # An event since the first decision about these members may have helped in domains that it has already tried.
    first_domain, since = state.pending_groups.take_rest(key) or (0, state.queue.event_number)
    uid_ranks, pod_infos = _ranks(group, members, placed_pods, state) if group.slices else {}, [*pod_infos, *spares]
    min_members, spare_count = missing_count + needed_spares, len(spares)
    demand = GroupDemand(
        group, pod_infos, min_members, priority, placed_pods, since, first_domain, spare_count, needed_spares, uid_ranks
    )
    return demand, owners


def _waiting_members(key: GroupKey, state: SharedState) -> list[PodInfo]:
    """Return the members to schedule next in their order, with the group's priority and run time; count the attempt."""
    # No group needs more at once: the others are scheduled after these are placed.
    uids = islice(state.pending_groups.members(key).next_members(), MOST_MEMBERS)
    pending_pods = [state.pending_pods[uid] for uid in uids]
    for pending_pod in pending_pods:
        pending_pod.attempts += 1
    pod_infos = [pod.pod_info for pod in pending_pods if isinstance(pod.pod_info, PodInfo)]
    run_times = [pod_info.runs_s for pod_info in pod_infos if pod_info.runs_s is not None]
    # The group ends with its last member; equal members stay equal.
    runs_s = max(run_times, default=None) if len(run_times) == len(pod_infos) else None
    priority = state.pending_groups.priority(key)
    sorted_infos = sorted(pod_infos, key=lambda pod_info: by_index(pod_info.pod))
    return [as_member(pod_info, priority, runs_s) for pod_info in sorted_infos]


def _spares(group: Group, pod_infos: list[PodInfo], state: SharedState) -> list[PodInfo]:
    """Return spares as large as the largest member; none if the group keeps larger ones already."""
    if not group.spares or not pod_infos:
        return []
    largest, reservation = by_size(pod_infos)[0], state.reservations.spares_of(group.key)
    rooms = reservation.rooms.values() if reservation is not None else ()
    if any(room.assignment and len(room.assignment.vfs) > len(largest.interfaces) for room in rooms):
        return []
    return spare_members(largest, group.spares)


def _with_roles(pod_infos: list[PodInfo], members: Members, owners: frozenset[str], count: int) -> list[PodInfo]:
    """Return the members to place together: if roles lack members, the first of each, and others up to ``count``."""
    shortages, selection = members.role_shortages(owners), set[str]()
    if not shortages:
        return pod_infos
    for pod_info in pod_infos:
        role = members.pods[pod_info.uid].role
        if shortages[role] > 0:
            shortages[role] -= 1
            selection.add(pod_info.uid)
    remainder = (pod_info.uid for pod_info in pod_infos if pod_info.uid not in selection)
    selection.update(islice(remainder, max(count - len(selection), 0)))
    return [pod_info for pod_info in pod_infos if pod_info.uid in selection]


def _ranks(group: Group, members: Members, placed_pods: Sequence[AssignedPod], state: SharedState) -> dict[str, int]:
    """Return the ranks of a group's pods, but of those of earlier runs under its name."""
    owners = members.owners(members.of("waiting", "placed", "leaving"))
    memberships = [(uid, state.group_cache.of(uid)) for uid in members.pods]
    pods = {uid: (pod.order, pod.owner) for uid, pod in memberships if pod and pod.order and pod.owner in owners}
    if index_ranks := ranks(pods, group.min):
        return index_ranks
    nodes = [(pod.uid, state.cache.node(pod.node)) for pod in placed_pods]
    keys = [level.within for level in group.slices]
    domains = {uid: [node.labels.get(key, "") if node is not None else "" for key in keys] for uid, node in nodes}
    uids = sorted(pods.keys() & members.of("waiting", "placed"), key=lambda uid: pods[uid][0])
    return ranks_by_domain(uids, [level.size for level in group.slices], domains)


def refusal_message(
    members: Members, demand: GroupDemand, verdict: GroupUnschedulable, preemption: PreemptionResult, cache: Cache
) -> str:
    """Return the message for the members of a group of which too few fit."""
    message = _shortage(members, demand, verdict, cache)
    if demand.needed_spares:
        message += f" The members include {demand.needed_spares} spare."
    if preemption.reason:
        message += f" preemption: {preemption.reason}"
    return message + preemption.note


def _shortage(members: Members, demand: GroupDemand, verdict: GroupUnschedulable, cache: Cache) -> str:
    """Return how many members fit, and why the next one does not.

    If some are placed already, but too few, name the pods that block the others: the placed members run for nothing
    until these leave.
    """
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
        domain += _MORE_DOMAINS if verdict.go_on_from else _MORE_COMBINATIONS
    if placed_count:
        half = f"{placed_count} of at least {min_members} members are placed, and {verdict.fitting} of"
        blockers = _name_blockers(members, verdict, cache)
        return f"group {members.title}: {half} {verdict.wanted} others fit{domain}: {reason}{blockers}"
    return f"group {members.title}: {verdict.fitting} of {verdict.wanted} members fit{domain}: {reason}"


def _name_blockers(members: Members, verdict: GroupUnschedulable, cache: Cache) -> str:
    """Name pods outside the group on the nodes that a member needs, those with the most VFs first; empty if none need
    to leave.
    """
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

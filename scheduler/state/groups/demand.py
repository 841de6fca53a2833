"""The input of a decision about a group, from the waiting pods and the cache. Pure."""

from collections.abc import Sequence
from itertools import islice

from mooring.annotations.group import MOST_MEMBERS
from scheduler.cache.assigned_pod import AssignedPod
from scheduler.cache.groups.group_members import Members
from scheduler.cache.groups.group_sources import Group
from scheduler.cycle.groups.group_demand import GroupDemand, as_member, by_size, spare_members
from scheduler.kube.group_membership import GroupKey
from scheduler.kube.member_order import by_index, ranks, ranks_by_domain
from scheduler.kube.pod_info import PodInfo
from scheduler.state.groups.decision import count_missing_members
from scheduler.state.shared_state import SharedState


def demand_of(key: GroupKey, state: SharedState) -> tuple[GroupDemand, frozenset[str]]:
    """Return what a group that was popped from the queue asks for, and the owners of its waiting members."""
    group, members = state.pending_groups.group(key), state.pending_groups.members(key)
    # No group needs more at once: the others are scheduled after these are placed.
    pending_pods = [state.pending_pods[uid] for uid in islice(members.next_members(), MOST_MEMBERS)]
    for pending_pod in pending_pods:
        pending_pod.attempts += 1
    priority = state.pending_groups.priority(key)
    pod_infos = [pod.pod_info for pod in pending_pods if isinstance(pod.pod_info, PodInfo)]
    run_times = [pod_info.runs_s for pod_info in pod_infos if pod_info.runs_s is not None]
    # The group ends with its last member; equal members stay equal.
    runs_s = max(run_times, default=None) if len(run_times) == len(pod_infos) else None
    pod_infos = [as_member(pod_info, priority, runs_s) for pod_info in pod_infos]
    placed_pods = [
        assigned_pod for uid in members.of("placed") if (assigned_pod := state.cache.assigned(uid)) is not None
    ]
    sorted_infos = sorted(pod_infos, key=lambda pod_info: by_index(pod_info.pod))
    owners = members.owners(pod_info.uid for pod_info in pod_infos)
    needed = count_missing_members(key, owners, state.pending_groups)
    sorted_infos = _with_roles(sorted_infos, members, owners, needed)
    spares = _spares(group, sorted_infos, state)
    # A group does not start without room for its spares, unless it could preempt pods there; a member that is made
    # again does not wait for them.
    reservation = state.reservations.of_owner(key)
    has_victims = reservation is not None and reservation.cause == "victims"
    is_start = members.shortage(owners, group.min) >= group.min
    needed_spares = len(spares) if is_start and not has_victims else 0
    # An event since the first decision about these members may have helped in domains that it has already tried.
    first_domain, since = state.pending_groups.take_rest(key) or (0, state.queue.happened)
    demand = GroupDemand(
        group,
        [*sorted_infos, *spares],
        needed + needed_spares,
        priority,
        placed_pods,
        since,
        first_domain,
        len(spares),
        needed_spares,
        _ranks(group, members, placed_pods, state) if group.slices else {},
    )
    return demand, owners


def _spares(group: Group, pod_infos: list[PodInfo], state: SharedState) -> list[PodInfo]:
    """Return spares as large as the largest member; none if the group keeps larger ones already."""
    if not group.spares or not pod_infos:
        return []
    largest, kept = by_size(pod_infos)[0], state.reservations.spares_of(group.key)
    assignments = [room.assignment for room in kept.rooms.values() if room.assignment] if kept is not None else []
    if any(len(assignment.vfs) > len(largest.interfaces) for assignment in assignments):
        return []
    return spare_members(largest, group.spares)


def _with_roles(pod_infos: list[PodInfo], members: Members, owners: frozenset[str], needed: int) -> list[PodInfo]:
    """Return the members to place together: if roles lack members, the first of each role, and others until enough."""
    missing = members.role_shortages(owners)
    if not missing:
        return pod_infos
    chosen, others = set[str](), list[str]()
    for pod_info in pod_infos:
        role = members.pods[pod_info.uid].role
        if missing[role] > 0:
            missing[role] -= 1
            chosen.add(pod_info.uid)
        else:
            others.append(pod_info.uid)
    chosen.update(others[: needed - len(chosen)])
    return [pod_info for pod_info in pod_infos if pod_info.uid in chosen]


def _ranks(group: Group, members: Members, placed_pods: Sequence[AssignedPod], state: SharedState) -> dict[str, int]:
    """Return the ranks of a group's pods, but of those of earlier runs under its name."""
    owners = members.owners(members.of("waiting", "placed", "leaving"))
    memberships = [(uid, state.group_cache.of(uid)) for uid in members.pods]
    pods = {uid: (one.order, one.owner) for uid, one in memberships if one and one.order and one.owner in owners}
    if index_ranks := ranks(pods, group.min):
        return index_ranks
    domains = {pod.uid: _domain(group, pod.node, state) for pod in placed_pods}
    uids = sorted(pods.keys() & members.of("waiting", "placed"), key=lambda uid: pods[uid][0])
    return ranks_by_domain(uids, [one.size for one in group.slices], domains)


def _domain(group: Group, node_name: str, state: SharedState) -> tuple[str, ...]:
    """Return the values of the labels of a group's slices."""
    node = state.cache.node(node_name)
    return tuple(node.labels.get(one.within, "") if node is not None else "" for one in group.slices)

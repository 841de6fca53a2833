"""The input of a decision about a group, from the waiting pods and the cache. Pure."""

from itertools import islice

from mooring.annotations.group import MOST_MEMBERS
from scheduler.cache.groups.groups_by_pod import Members
from scheduler.cycle.groups.group_demand import GroupDemand
from scheduler.cycle.groups.members import as_member, spare_members
from scheduler.kube.group_membership import GroupKey
from scheduler.kube.member_order import by_index, ranks
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
    spares = spare_members(sorted_infos[0], group.spares) if group.spares and sorted_infos else []
    # A group does not start without room for its spares, unless it could preempt pods there; a member that is made
    # again does not wait for them.
    reservation = state.reservations.of_owner(key)
    has_victims = reservation is not None and reservation.cause == "victims"
    is_start = members.count_missing(owners, group.min) >= group.min
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
        _ranks(members, state) if group.slices else {},
    )
    return demand, owners


def _ranks(members: Members, state: SharedState) -> dict[str, int]:
    """Return the ranks of a group's pods, but of those of earlier runs under its name."""
    owners = members.owners(members.of("waiting", "placed", "leaving"))
    memberships = [(uid, state.groups_by_pod.of(uid)) for uid in members.states]
    return ranks({uid: (one.order, one.owner) for uid, one in memberships if one and one.order and one.owner in owners})

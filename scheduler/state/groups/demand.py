"""The input of a decision about a group, from the waiting pods and the cache. Pure."""

from itertools import islice

from mooring.annotations.group import MOST_MEMBERS
from scheduler.cache.groups.order import by_index
from scheduler.cycle.groups.group_demand import GroupDemand
from scheduler.cycle.groups.members import of_priority, spare_members
from scheduler.kube.group_membership import GroupKey
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
    pod_infos = [of_priority(pod.pod_info, priority) for pod in pending_pods if isinstance(pod.pod_info, PodInfo)]
    placed_pods = [
        assigned_pod for uid in members.of("placed") if (assigned_pod := state.cache.assigned(uid)) is not None
    ]
    sorted_infos = sorted(pod_infos, key=lambda pod_info: by_index(pod_info.pod))
    owners = members.owners(pod_info.uid for pod_info in pod_infos)
    needed = count_missing_members(key, owners, state.pending_groups)
    spares = spare_members(sorted_infos[0], group.spares) if group.spares and sorted_infos else []
    # A group does not start without room for its spares; a member that is made again does not wait for them.
    needed_spares = len(spares) if members.count_missing(owners, group.min) >= group.min else 0
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
    )
    return demand, owners

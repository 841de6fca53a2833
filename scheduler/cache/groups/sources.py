"""Read a group from its PodGroup and its waiting members' annotations.

The result depends only on the current sources, and not on the order of events.
"""

from collections.abc import Collection, Mapping
from dataclasses import dataclass

from mooring import names
from mooring.annotations.group import GroupRequest, Rails, Slice, difference, roles_conflict, slices_conflict
from scheduler.kube.group_membership import GroupKey, Naming
from scheduler.kube.outcomes import Refused
from scheduler.kube.pod_groups import GroupPolicy

# Maximum number of different requests in a group: all nodes are evaluated for each. Labels do not count.
MOST_SHAPES = 64
_APIS: Mapping[Naming, str] = {"PodGroup": "scheduling.k8s.io", "coscheduling": "scheduling.x-k8s.io"}


@dataclass(frozen=True, slots=True)
class Group:
    """A set of pods that start together or not at all.

    At least ``min`` of them start, all on nodes with one value of the label ``within``, if that is not empty. If
    possible, they are on nodes with one value of the first of the labels ``prefer`` (from narrow to wide). ``priority``
    is None if that of the members counts. ``as_a_whole``: its members may only be preempted all together. Room for
    ``spares`` more members is kept. Each of the ``slices``, from wide to narrow, is in one domain of its label.
    Each of the ``roles`` has at least so many members at the start.
    """

    key: GroupKey
    min: int
    within: str = ""
    prefer: tuple[str, ...] = ()
    rails: Rails | None = None
    priority: int | None = None
    as_a_whole: bool = False
    spares: int = 0
    slices: tuple[Slice, ...] = ()
    roles: tuple[tuple[str, int], ...] = ()


# A PodGroup's policy, why it is not supported, or None while there is no PodGroup.
Known = GroupPolicy | Refused | None


def read_group(key: GroupKey, pod_group: Known, requests: Collection[GroupRequest]) -> Group | Refused:
    """Return a group, or why its members are not scheduled; ``requests`` are the waiting members' annotations."""
    if isinstance(pod_group, Refused):
        return pod_group
    if pod_group is None and key.has_pod_group:
        # The other API may have a PodGroup with this name.
        return Refused(f"its PodGroup ({_APIS[key.naming]}) does not exist, or the API server does not serve that API")
    if len(requests) > 1:
        return Refused(f"waiting members differ in annotation {names.GROUP!r}.{difference(requests)}")
    request = next(iter(requests), GroupRequest())
    if pod_group is not None and (contradiction := _contradiction(pod_group, request)):
        return Refused(f"annotation {names.GROUP!r}.{contradiction}")
    policy = pod_group or GroupPolicy(request.least or 1, request.within or "")
    return Group(
        key,
        policy.min,
        policy.within,
        request.prefer,
        request.rails,
        policy.priority,
        policy.as_a_whole,
        request.spares or 0,
        request.slices,
        request.roles,
    )


def _contradiction(pod_group: GroupPolicy, request: GroupRequest) -> str:
    """Return how an annotation contradicts its PodGroup; empty if it does not."""
    for field, own, group_value in (
        ("min", request.min, pod_group.min),
        ("within", request.within, pod_group.within or None),
        ("disruption", request.disruption, "group" if pod_group.as_a_whole else "pod"),
    ):
        if own is not None and own != group_value:
            says = "does not set it" if group_value is None else f"sets {group_value!r}"
            return f"{field}: {own!r} contradicts its PodGroup, which {says}"
    rule = slices_conflict(request.slices, pod_group.min, pod_group.within, request.spares or 0)
    if rule:
        return f"slices: {rule}"
    rule = roles_conflict(request, pod_group.min)
    return f"roles: {rule}" if rule else ""

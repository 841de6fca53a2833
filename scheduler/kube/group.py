"""A pod's group, and what it asks for.

A pod names its group by a PodGroup, by the annotation ``mooring.dev/group``, or by its controller (`read_membership`).
What the group asks for is in its PodGroup and in its waiting members' annotations, whatever the order of events
(`read_group`). While an API of PodGroups is not served, or this account may not read it, it has no PodGroups.
"""

from collections.abc import Collection, Mapping
from dataclasses import dataclass, replace
from typing import Literal, NamedTuple, get_args

from mooring import names
from mooring.annotations import group as annotation
from mooring.annotations.group import MOST_MEMBERS, GroupRequest, Rails, Slice
from mooring.errors import AnnotationError
from scheduler.kube.member_order import Order, by_index
from scheduler.kube.objects import Pod, unix_time
from scheduler.kube.outcomes import Refused
from scheduler.kube.workload_objects import AnyPodGroup, CoschedulingPodGroup, PodGroup, PodGroupSpec, SchedulingPolicy

# The source of a group's name: a PodGroup of scheduling.k8s.io or scheduling.x-k8s.io, the annotation, or a controller.
Naming = Literal["PodGroup", "coscheduling", "annotation", "controller"]
_APIS: Mapping[Naming, str] = {"PodGroup": "scheduling.k8s.io", "coscheduling": "scheduling.x-k8s.io"}
# Maximum number of different requests in a group: all nodes are evaluated for each. Labels do not count.
MOST_SHAPES = 64
# The disruption modes of the two versions.
_SINGLE, _WHOLE = frozenset({"Pod", "single"}), frozenset({"PodGroup", "all"})
_NO_REQUEST = GroupRequest()


class GroupKey(NamedTuple):
    """A group's identity; ``name`` is a controller's uid if the annotation has no name."""

    naming: Naming
    namespace: str
    name: str

    @property
    def entry(self) -> str:
        """Return the group's name in the scheduling queue; a pod's uid contains no colon."""
        return f"{self.naming}:{self.namespace}/{self.name}"

    @classmethod
    def of_entry(cls, entry: str) -> "GroupKey | None":
        """Return the group with this name in the queue; None for a pod's uid."""
        naming, _, namespaced_name = entry.partition(":")
        kind = next((kind for kind in get_args(Naming) if kind == naming), None)
        namespace, _, name = namespaced_name.partition("/")
        return None if kind is None else cls(kind, namespace, name)

    @property
    def has_pod_group(self) -> bool:
        return self.naming in ("PodGroup", "coscheduling")


class GroupMembership(NamedTuple):
    """A pod's group, its name in messages, and the pod's own annotation about it.

    A name that the annotation takes from a label is stored as the request's ``name``. ``owner`` is the uid of the pod's
    controller, empty if it has none. ``order`` is the pod's place by rank in a group with slices, and
    ``role`` its role in a group with roles.
    """

    key: GroupKey
    title: str
    request: GroupRequest = _NO_REQUEST
    owner: str = ""
    order: Order | None = None
    role: str = ""


class NodeTimes(NamedTuple):
    """When a pod was created and bound, in UNIX seconds by the API server's clock."""

    creation: float
    binding: float


def node_times(pod: Pod) -> NodeTimes | None:
    """Return None for a pod without a node."""
    if not pod.spec.node_name:
        return None
    creation = unix_time(pod.metadata.creation_timestamp, 0.0)
    condition = pod.condition("PodScheduled")
    binding = condition.last_transition_time if condition and condition.status == "True" else None
    return NodeTimes(creation, unix_time(binding, creation))


@dataclass(frozen=True, slots=True)
class Group:
    """A set of pods that start together or not at all.

    At least ``min`` of them start, all on nodes with one value of the label ``within``, if that is not empty. If
    possible, they are on nodes with one value of the first of the labels ``prefer`` (from narrow to wide). ``priority``
    is None if that of the members counts. Room for ``spares`` more members is kept. Each of the ``slices``, from wide
    to narrow, is in one domain of its label. Each of the ``roles`` has at least so many members at the start.
    """

    key: GroupKey
    min: int
    within: str = ""
    prefer: tuple[str, ...] = ()
    rails: Rails | None = None
    priority: int | None = None
    spares: int = 0
    slices: tuple[Slice, ...] = ()
    roles: tuple[tuple[str, int], ...] = ()


class PodGroupEntry(NamedTuple):
    """A PodGroup and what it says of the group, or why that is not supported; both are None if there is no PodGroup.

    ``is_whole``: the group may only be disrupted as a whole. An unreadable PodGroup, without ``item``, could say so.
    """

    group: Group | Refused | None = None
    item: AnyPodGroup | None = None
    is_whole: bool = False

    @property
    def min(self) -> int:
        """Return 0 if it is unknown."""
        return self.group.min if isinstance(self.group, Group) else 0

    @property
    def priority(self) -> int | None:
        return self.group.priority if isinstance(self.group, Group) else None


def read_membership(pod: Pod) -> GroupMembership | None:
    """Return a pod's group; None for a pod without one. Raise ValueError with the broken rule."""
    if pod.spec.workload_ref is not None:
        raise ValueError("spec.workloadRef (Kubernetes 1.35) is not supported: name a PodGroup by spec.schedulingGroup")
    scheduling_group, label = _pod_groups(pod)
    if scheduling_group and label:
        raise ValueError(
            f"the pod belongs to two PodGroups: {scheduling_group!r} by spec.schedulingGroup, and {label!r} by label "
            f"{names.POD_GROUP_LABEL!r}"
        )
    request, has_pod_group = annotation.read_group(pod.annotations), bool(scheduling_group or label)
    if request is None:
        return _by_pod_group(pod) if has_pod_group else None
    label_key = request.name_from
    if label_key is not None:
        request = replace(request, name=_label(pod, label_key, "name_from"), name_from=None)
    membership = _by_pod_group(pod) if has_pod_group else _by_annotation(pod, request)
    if has_pod_group and request.name not in (None, membership.title):
        source = "" if label_key is None else f", the value of label {label_key!r},"
        rule = f"{request.name!r}{source} is not the name of the pod's PodGroup, {membership.title!r}"
        raise AnnotationError(names.GROUP, "name" if label_key is None else "name_from", rule)
    if has_pod_group:
        # The name is redundant: members with and without it are equal.
        membership = membership._replace(request=request if request.name is None else replace(request, name=None))
    if request.slices or request.role_from:
        role = "" if request.role_from is None else _label(pod, request.role_from, "role_from")
        membership = membership._replace(order=by_index(pod) if request.slices else None, role=role)
    return membership


def membership_if_readable(pod: Pod) -> GroupMembership | None:
    """Return a pod's group; None if it has none or names it wrongly."""
    try:
        return read_membership(pod)
    except ValueError:
        return None


def membership_of_refused(pod: Pod) -> GroupMembership | None:
    """Return the group of a rejected pod; if it wrongly names a second group, that of its PodGroup."""
    membership = membership_if_readable(pod)
    return _by_pod_group(pod) if membership is None and any(_pod_groups(pod)) else membership


def _label(pod: Pod, key: str, field: str) -> str:
    """Return the label that a field of the annotation names."""
    value = (pod.metadata.labels or {}).get(key)
    if not value:
        raise AnnotationError(names.GROUP, field, f"label {key!r} of the pod is missing or empty")
    return value


def _pod_groups(pod: Pod) -> tuple[str, str]:
    """Return the names of a pod's PodGroups, of scheduling.k8s.io and of scheduler-plugins; empty for none."""
    name = pod.spec.scheduling_group.pod_group_name if pod.spec.scheduling_group else ""
    return name, (pod.metadata.labels or {}).get(names.POD_GROUP_LABEL) or ""


def _by_pod_group(pod: Pod) -> GroupMembership:
    scheduling_group, label = _pod_groups(pod)
    name, owner = scheduling_group or label, pod.metadata.controller
    key = GroupKey("PodGroup" if scheduling_group else "coscheduling", pod.metadata.namespace, name)
    return GroupMembership(key, name, owner=owner.uid if owner is not None else "")


def _by_annotation(pod: Pod, request: GroupRequest) -> GroupMembership:
    if request.least is None:
        raise AnnotationError(names.GROUP, "", "field 'min' is missing, and the pod names no PodGroup that has one")
    name, namespace, owner = request.name, pod.metadata.namespace, pod.metadata.controller
    if name is not None:
        owner_uid = owner.uid if owner is not None else ""
        return GroupMembership(GroupKey("annotation", namespace, name), name, request, owner_uid)
    if owner is None:
        raise AnnotationError(names.GROUP, "", "field 'name' is missing, and no controller owns the pod")
    return GroupMembership(GroupKey("controller", namespace, owner.uid), owner.name, request, owner.uid)


def read_group(key: GroupKey, entry: PodGroupEntry, requests: Collection[GroupRequest]) -> Group | Refused:
    """Return a group, or why its members are not scheduled; ``requests`` are the waiting members' annotations."""
    group = entry.group
    if isinstance(group, Refused):
        return group
    if group is None and key.has_pod_group:
        # The other API may have a PodGroup with this name.
        return Refused(f"its PodGroup ({_APIS[key.naming]}) does not exist, or the API server does not serve that API")
    if len(requests) > 1:
        return Refused(f"waiting members differ in annotation {names.GROUP!r}.{annotation.difference(requests)}")
    request = next(iter(requests), GroupRequest())
    if group is not None and (contradiction := _contradiction(group, request, is_whole=entry.is_whole)):
        return Refused(f"annotation {names.GROUP!r}.{contradiction}")
    return replace(
        group or Group(key, request.least or 1, request.within or ""),
        prefer=request.prefer,
        rails=request.rails,
        spares=request.spares or 0,
        slices=request.slices,
        roles=request.roles,
    )


def _contradiction(group: Group, request: GroupRequest, *, is_whole: bool) -> str:
    """Return how an annotation contradicts its PodGroup; empty if it does not."""
    for field, value, group_value in (
        ("min", request.min, group.min),
        ("within", request.within, group.within or None),
        ("disruption", request.disruption, "group" if is_whole else "pod"),
    ):
        if value is not None and value != group_value:
            says = "does not set it" if group_value is None else f"sets {group_value!r}"
            return f"{field}: {value!r} contradicts its PodGroup, which {says}"
    if rule := annotation.slices_conflict(request.slices, group.min, group.within, request.spares or 0):
        return f"slices: {rule}"
    rule = annotation.roles_conflict(request, group.min)
    return f"roles: {rule}" if rule else ""


def read_pod_group(key: GroupKey, pod_group: AnyPodGroup) -> Group:
    """Return what a PodGroup says of its group; raise ValueError with the unsupported field."""
    if isinstance(pod_group, CoschedulingPodGroup):
        return Group(key, _checked_count("minMember", max(pod_group.spec.min_member, 1)))
    spec = pod_group.spec
    if spec.parent_composite_pod_group_name:
        parent = spec.parent_composite_pod_group_name
        raise ValueError(f"its parentCompositePodGroupName {parent!r} (CompositePodGroup) is not supported")
    if spec.resource_claims:
        raise ValueError("its resourceClaims (dynamic resource allocation) are not supported")
    topology = spec.scheduling_constraints.topology if spec.scheduling_constraints else None
    if topology and (len(topology) > 1 or not topology[0].key):
        raise ValueError("schedulingConstraints.topology must name one key")
    if unknown_modes := sorted(_disruption_modes(spec) - _SINGLE - _WHOLE):
        raise ValueError(f"disruptionMode {unknown_modes[0]!r} is not known")
    within = topology[0].key if topology else ""
    return Group(key, _min_count(spec.scheduling_policy), within, priority=spec.priority)


def disrupted_as_a_whole(pod_group: AnyPodGroup) -> bool:
    """Return whether the members may only be disrupted all together; True also for an unknown mode."""
    return isinstance(pod_group, PodGroup) and bool(_disruption_modes(pod_group.spec) - _SINGLE)


def _disruption_modes(spec: PodGroupSpec) -> set[str]:
    mode = spec.disruption_mode
    return {mode} if isinstance(mode, str) else {name for name, value in (mode or {}).items() if value is not None}


def _min_count(policy: SchedulingPolicy | None) -> int:
    if policy is None or (policy.gang is None) == (policy.basic is None):
        raise ValueError("schedulingPolicy must be either gang or basic")
    return _checked_count("minCount", policy.gang.min_count) if policy.gang is not None else 1


def _checked_count(name: str, count: int) -> int:
    if not 1 <= count <= MOST_MEMBERS:
        raise ValueError(f"{name} {count} is not from 1 to {MOST_MEMBERS}")
    return count

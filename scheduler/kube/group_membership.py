"""The group that a pod names: by its PodGroup, by the annotation ``mooring.dev/group``, or by its controller."""

from dataclasses import replace
from typing import Literal, NamedTuple, get_args

from mooring import names
from mooring.annotations.group import GroupRequest, read_group
from mooring.errors import AnnotationError
from scheduler.kube.member_order import Order, by_index
from scheduler.kube.objects import Pod, unix_time

# The source of a group's name: a PodGroup of scheduling.k8s.io or scheduling.x-k8s.io, the annotation, or a controller.
Naming = Literal["PodGroup", "coscheduling", "annotation", "controller"]
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
    request, has_pod_group = read_group(pod.annotations), bool(scheduling_group or label)
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

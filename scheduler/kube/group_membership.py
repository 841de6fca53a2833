"""The group that a pod names: by its PodGroup, by the annotation ``mooring.dev/group``, or by its controller."""

from dataclasses import replace
from typing import Literal, NamedTuple, get_args

from mooring import names
from mooring.annotations.group import GroupRequest, read_group
from mooring.errors import AnnotationError
from scheduler.kube.member_order import Order, by_index
from scheduler.kube.objects import Owner, Pod

# The source of a group's name: a PodGroup of scheduling.k8s.io or scheduling.x-k8s.io, the annotation, or a controller.
Naming = Literal["PodGroup", "coscheduling", "annotation", "controller"]
_NOTHING = GroupRequest()


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
    request: GroupRequest = _NOTHING
    owner: str = ""
    order: Order | None = None
    role: str = ""


def read_membership(pod: Pod) -> GroupMembership | None:
    """Return a pod's group; None for a pod without one. Raise ValueError with the broken rule."""
    membership = _read_membership(pod)
    if membership is None or not (membership.request.slices or membership.request.role_from):
        return membership
    role = "" if membership.request.role_from is None else _label(pod, membership.request.role_from, "role_from")
    return membership._replace(order=by_index(pod) if membership.request.slices else None, role=role)


def _read_membership(pod: Pod) -> GroupMembership | None:
    if pod.spec.workload_ref is not None:
        raise ValueError("spec.workloadRef (Kubernetes 1.35) is not supported: name a PodGroup by spec.schedulingGroup")
    own, label = _pod_groups(pod)
    if not own and not label:
        group_request = _read_named(pod)
        return None if group_request is None else _by_annotation(pod, group_request)
    if own and label:
        raise ValueError(
            f"the pod belongs to two PodGroups: {own!r} by spec.schedulingGroup, and {label!r} by label "
            f"{names.POD_GROUP_LABEL!r}"
        )
    membership, group_request = _by_pod_group(pod), _read_named(pod) or _NOTHING
    if group_request.name not in (None, membership.title):
        key = group_request.name_from
        source = "" if key is None else f", the value of label {key!r},"
        rule = f"{group_request.name!r}{source} is not the name of the pod's PodGroup, {membership.title!r}"
        raise AnnotationError(names.GROUP, "name" if key is None else "name_from", rule)
    # The PodGroup's name in the annotation is redundant: members with and without it are equal.
    if group_request.name is not None:
        group_request = replace(group_request, name=None, name_from=None)
    return membership._replace(request=group_request)


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


def _read_named(pod: Pod) -> GroupRequest | None:
    """Return the content of a pod's annotation, with the name that a label gives; None if it has none."""
    group_request = read_group(pod.annotations)
    if group_request is None or group_request.name_from is None:
        return group_request
    return replace(group_request, name=_label(pod, group_request.name_from, "name_from"))


def _label(pod: Pod, key: str, field: str) -> str:
    """Return the label that a field of the annotation names."""
    value = (pod.metadata.labels or {}).get(key)
    if not value:
        raise AnnotationError(names.GROUP, field, f"label {key!r} of the pod is missing or empty")
    return value


def _pod_groups(pod: Pod) -> tuple[str, str]:
    """Return the names of a pod's PodGroups, of scheduling.k8s.io and of scheduler-plugins; empty for none."""
    own = pod.spec.scheduling_group.pod_group_name if pod.spec.scheduling_group else ""
    return own, (pod.metadata.labels or {}).get(names.POD_GROUP_LABEL) or ""


def _by_pod_group(pod: Pod) -> GroupMembership:
    own, label = _pod_groups(pod)
    naming: Naming = "PodGroup" if own else "coscheduling"
    owner = _controller(pod)
    key = GroupKey(naming, pod.metadata.namespace, own or label)
    return GroupMembership(key, own or label, owner=owner.uid if owner is not None else "")


def _by_annotation(pod: Pod, group_request: GroupRequest) -> GroupMembership:
    if group_request.least is None:
        raise AnnotationError(names.GROUP, "", "field 'min' is missing, and the pod names no PodGroup that has one")
    owner = _controller(pod)
    if (name := group_request.name) is not None:
        key = GroupKey("annotation", pod.metadata.namespace, name)
        # Equal annotations stay one object: thousands of members compare it.
        request = group_request if group_request.name_from is None else replace(group_request, name_from=None)
        return GroupMembership(key, name, request, owner.uid if owner is not None else "")
    if owner is None:
        raise AnnotationError(names.GROUP, "", "field 'name' is missing, and no controller owns the pod")
    key = GroupKey("controller", pod.metadata.namespace, owner.uid)
    return GroupMembership(key, owner.name, group_request, owner.uid)


def _controller(pod: Pod) -> Owner | None:
    """Return the reference to the controller of a pod; None if it has none."""
    return next((reference for reference in pod.metadata.owner_references or () if reference.controller), None)

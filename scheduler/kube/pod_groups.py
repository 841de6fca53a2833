"""PodGroups of both APIs, ``scheduling.k8s.io`` and scheduler-plugins', read into one type.

``scheduling.k8s.io/v1alpha2`` is Kubernetes 1.36's, ``v1beta1`` 1.37's. They differ in ``disruptionMode``, which is a
word in the first (``Pod``, ``PodGroup``) and an object with one field in the second (``single``, ``all``). With
``parentCompositePodGroupName`` (KEP-6012, 1.37) several PodGroups may only start together.
``scheduling.x-k8s.io/v1alpha1`` is scheduler-plugins' API (apis/scheduling/v1alpha1/types.go there).
"""

from collections.abc import Mapping
from dataclasses import dataclass
from types import MappingProxyType

import msgspec

from mooring.annotations.group import MOST_MEMBERS
from scheduler.kube.objects import Condition, Int32, Metadata, NamedItem, Struct

# The versions of scheduling.k8s.io, the newest first, with the type of the condition that reports whether enough
# members have a node. Source: PodGroupInitiallyScheduled in v1beta1/types.go; a server of 1.36 shows PodGroupScheduled.
CONDITION_TYPES: Mapping[str, str] = MappingProxyType(
    {"v1beta1": "PodGroupInitiallyScheduled", "v1alpha2": "PodGroupScheduled"}
)
# The disruption modes of the two versions.
_SINGLE, _WHOLE = frozenset({"Pod", "single"}), frozenset({"PodGroup", "all"})


class Gang(Struct):
    min_count: Int32 = 0


class SchedulingPolicy(Struct):
    """One of the two: all or nothing (gang), or one by one (basic)."""

    gang: Gang | None = None
    basic: dict[str, object] | None = None


class TopologyConstraint(Struct):
    key: str = ""


class SchedulingConstraints(Struct):
    topology: list[TopologyConstraint] | None = None


class PodGroupSpec(Struct):
    scheduling_policy: SchedulingPolicy | None = None
    scheduling_constraints: SchedulingConstraints | None = None
    resource_claims: list[NamedItem] | None = None
    disruption_mode: str | dict[str, object] | None = None
    priority: Int32 | None = None
    parent_composite_pod_group_name: str | None = None


class PodGroupStatus(Struct):
    conditions: list[Condition] | None = None


class PodGroupMetadata(Metadata):
    """An object's metadata, with the number that changes with its spec."""

    generation: int = 0


class PodGroup(Struct):
    metadata: PodGroupMetadata
    spec: PodGroupSpec = msgspec.field(default_factory=PodGroupSpec)
    status: PodGroupStatus = msgspec.field(default_factory=PodGroupStatus)


class CoschedulingSpec(Struct):
    min_member: Int32 = 0


class CoschedulingPodGroup(Struct):
    """The PodGroup of scheduler-plugins; its minResources and scheduleTimeoutSeconds affect no decision here."""

    metadata: Metadata
    spec: CoschedulingSpec = msgspec.field(default_factory=CoschedulingSpec)


@dataclass(frozen=True, slots=True)
class GroupPolicy:
    """The content of a PodGroup; ``is_whole`` if its members may only be preempted all together."""

    min: int
    within: str = ""
    is_whole: bool = False
    priority: int | None = None


def read_pod_group(pod_group: PodGroup | CoschedulingPodGroup) -> GroupPolicy:
    """Return the content of a PodGroup; raise ValueError with the unsupported field."""
    if isinstance(pod_group, CoschedulingPodGroup):
        return GroupPolicy(_checked_count("minMember", max(pod_group.spec.min_member, 1)))
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
    within, is_whole = topology[0].key if topology else "", disrupted_as_a_whole(pod_group)
    return GroupPolicy(_min_count(spec.scheduling_policy), within, is_whole, spec.priority)


def disrupted_as_a_whole(pod_group: PodGroup | CoschedulingPodGroup) -> bool:
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

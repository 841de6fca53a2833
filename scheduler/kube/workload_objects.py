"""Objects by which workloads say what belongs together: PodGroups, and Jobs.

The APIs of PodGroups are optional. ``scheduling.k8s.io/v1alpha2`` is Kubernetes 1.36's, ``v1beta1`` 1.37's. They differ
in ``disruptionMode``, which is a word in the first (``Pod``, ``PodGroup``) and an object with one field in the second
(``single``, ``all``). With ``parentCompositePodGroupName`` (KEP-6012, 1.37) several PodGroups may only start together.
``scheduling.x-k8s.io/v1alpha1`` is scheduler-plugins' API (apis/scheduling/v1alpha1/types.go there).
"""

from collections.abc import Mapping
from types import MappingProxyType

import msgspec

from scheduler.kube.objects import Condition, Int32, Metadata, NamedItem, Object, Struct

# The versions of scheduling.k8s.io, the newest first, with the type of the condition that reports whether enough
# members have a node. Source: PodGroupInitiallyScheduled in v1beta1/types.go; a server of 1.36 shows PodGroupScheduled.
CONDITION_TYPES: Mapping[str, str] = MappingProxyType(
    {"v1beta1": "PodGroupInitiallyScheduled", "v1alpha2": "PodGroupScheduled"}
)


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


AnyPodGroup = PodGroup | CoschedulingPodGroup
# Where each kind is listed; the first path that is served counts.
POD_GROUP_PATHS: Mapping[type[AnyPodGroup], tuple[str, ...]] = {
    PodGroup: tuple(f"/apis/scheduling.k8s.io/{version}/podgroups" for version in CONDITION_TYPES),
    CoschedulingPodGroup: ("/apis/scheduling.x-k8s.io/v1alpha1/podgroups",),
}
# Where Jobs are listed: an optional kind.
JOB_PATHS = ("/apis/batch/v1/jobs",)


class JobStatus(Struct):
    """How many pods have succeeded, deleted ones included. Source: JobStatus in batch/v1/types.go of k8s.io/api."""

    succeeded: Int32 | None = None


class Job(Object):
    status: JobStatus = msgspec.field(default_factory=JobStatus)

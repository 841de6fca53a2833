"""The fields of the objects that the scheduler reads, as the API server writes them; all others are ignored.

Everything but the name may be missing or null; the defaults here are those of the API server. Weights of preferences
are from 1 to 100.
"""

from datetime import datetime
from typing import Annotated

import msgspec

# The API's integers; a larger number makes an object unreadable.
Int32 = Annotated[int, msgspec.Meta(ge=-(1 << 31), le=(1 << 31) - 1)]
Int64 = Annotated[int, msgspec.Meta(ge=-(1 << 63), le=(1 << 63) - 1)]
Quantity = str | int | float
Quantities = dict[str, Quantity]
# The fields of every kind of affinity.
_REQUIRED = "requiredDuringSchedulingIgnoredDuringExecution"
_PREFERRED = "preferredDuringSchedulingIgnoredDuringExecution"
# Where RuntimeClasses are listed.
RUNTIME_CLASS_PATHS = ("/apis/node.k8s.io/v1/runtimeclasses",)


def unix_time(text: str | None, default: float) -> float:
    """Return an RFC 3339 time as UNIX seconds; ``default`` if the text is not a time."""
    try:
        time = datetime.fromisoformat(text or "")
        return default if time.tzinfo is None else time.timestamp()
    except (ValueError, OverflowError):
        return default


class Struct(msgspec.Struct, rename="camel", gc=False):
    """The base of all types here: camelCase fields, not tracked by the garbage collector."""


class Metadata(Struct):
    name: str
    namespace: str = ""
    uid: str = ""
    resource_version: str = ""
    creation_timestamp: str | None = None
    deletion_timestamp: str | None = None
    labels: dict[str, str] | None = None
    annotations: dict[str, str] | None = None


class OwnedMetadata(Metadata):
    """The metadata of objects whose owners are read; for other kinds, any number of owners costs nothing."""

    owner_references: list["Owner"] | None = None

    @property
    def controller(self) -> "Owner | None":
        return next((owner for owner in self.owner_references or () if owner.controller), None)


class Object(Struct):
    """The base of all kinds of object."""

    metadata: Metadata

    @property
    def key(self) -> str:
        return f"{self.metadata.namespace}/{self.metadata.name}"

    @property
    def annotations(self) -> dict[str, str]:
        return self.metadata.annotations or {}


class Owner(Struct):
    """An owner reference. The API server rejects one without a name, which limits their number in an object.

    Source: validateOwnerReference in k8s.io/apimachinery's pkg/api/validation.
    """

    name: str
    api_version: str = ""
    kind: str = ""
    uid: str = ""
    controller: bool | None = None


class Resources(Struct):
    requests: Quantities | None = None
    limits: Quantities | None = None


class Port(Struct):
    host_port: Int32 = 0
    protocol: str = "TCP"
    host_ip: str = msgspec.field(name="hostIP", default="")


class Container(Struct):
    name: str
    image: str = ""
    resources: Resources | None = None
    restart_policy: str | None = None
    ports: list[Port] | None = None

    @property
    def is_sidecar(self) -> bool:
        """Return whether an init container continues to run with the containers."""
        return self.restart_policy == "Always"

    @property
    def limits(self) -> Quantities:
        return (self.resources.limits if self.resources else None) or {}


class Requirement(msgspec.Struct, rename="camel", gc=False, frozen=True):
    """An expression of a selector; its values are a set, because the label of each object may be looked up in it."""

    key: str
    operator: str
    values: frozenset[str] | None = None


class NodeSelectorTerm(Struct):
    match_expressions: list[Requirement] | None = None
    match_fields: list[Requirement] | None = None


class NodeSelector(Struct):
    node_selector_terms: list[NodeSelectorTerm] | None = None


class PreferredNodes(Struct):
    weight: Int32 = 0
    preference: NodeSelectorTerm = msgspec.field(default_factory=NodeSelectorTerm)


class NodeAffinity(Struct):
    required: NodeSelector | None = msgspec.field(name=_REQUIRED, default=None)
    preferred: list[PreferredNodes] | None = msgspec.field(name=_PREFERRED, default=None)


class LabelSelector(Struct):
    """A selector of pods or namespaces; its operators are In, NotIn, Exists and DoesNotExist."""

    match_labels: dict[str, str] | None = None
    match_expressions: list[Requirement] | None = None


class PodAffinityTerm(Struct):
    topology_key: str = ""
    label_selector: LabelSelector | None = None
    namespaces: list[str] | None = None
    namespace_selector: LabelSelector | None = None
    match_label_keys: list[str] | None = None
    mismatch_label_keys: list[str] | None = None


class PreferredPods(Struct):
    weight: Int32 = 0
    term: PodAffinityTerm = msgspec.field(name="podAffinityTerm", default_factory=PodAffinityTerm)


class PodAffinity(Struct):
    required: list[PodAffinityTerm] | None = msgspec.field(name=_REQUIRED, default=None)
    preferred: list[PreferredPods] | None = msgspec.field(name=_PREFERRED, default=None)


class Affinity(Struct):
    node_affinity: NodeAffinity | None = None
    pod_affinity: PodAffinity | None = None
    pod_anti_affinity: PodAffinity | None = None


class Toleration(Struct):
    key: str | None = None
    operator: str | None = None
    value: str | None = None
    effect: str | None = None


class SpreadConstraint(Struct):
    max_skew: Int32 = 1
    topology_key: str = ""
    when_unsatisfiable: str = ""
    label_selector: LabelSelector | None = None
    min_domains: Int32 | None = None
    node_affinity_policy: str | None = None
    node_taints_policy: str | None = None
    match_label_keys: list[str] | None = None


class ImageSource(Struct):
    reference: str = ""


class ClaimSource(Struct):
    claim_name: str = ""


class Present(Struct):
    """An object of which only the existence matters."""


class Volume(Struct):
    """A volume, with the sources that restrict or influence the choice of a node."""

    name: str = ""
    persistent_volume_claim: ClaimSource | None = None
    ephemeral: Present | None = None
    image: ImageSource | None = None


# This many of a pod's images are compared with those of each node; they are only a preference.
MOST_IMAGES = 64


class NamedItem(Struct):
    """A scheduling gate, or a resource claim of a group."""

    name: str = ""


class PodResourceClaim(Struct):
    """A resource claim of a pod; if it is created from a template, the pod's status has the claim's name."""

    name: str = ""
    resource_claim_name: str | None = None


class SchedulingGroup(Struct):
    """The PodGroup of scheduling.k8s.io to which a pod belongs; since Kubernetes 1.36."""

    pod_group_name: str = ""


class Condition(Struct):
    type: str
    status: str = ""
    reason: str | None = None
    message: str | None = None
    last_transition_time: str | None = None


class PodTarget(Struct):
    scheduler_name: str = ""
    node_name: str | None = None


class PodPhase(Struct):
    phase: str | None = None
    conditions: list[Condition] | None = None


class PodOutline(Object):
    """The fields of a pod in a list. Decoding all others takes twice the time, and nearly three times the memory."""

    spec: PodTarget = msgspec.field(default_factory=PodTarget)
    status: PodPhase = msgspec.field(default_factory=PodPhase)

    @property
    def is_over(self) -> bool:
        """Return whether its containers have ended for good, so that it uses nothing."""
        return self.status.phase in ("Succeeded", "Failed")

    def condition(self, kind: str) -> Condition | None:
        for condition in self.status.conditions or ():
            if condition.type == kind:
                return condition
        return None


class PodSpec(PodTarget):
    containers: list[Container] | None = None
    init_containers: list[Container] | None = None
    node_selector: dict[str, str] | None = None
    affinity: Affinity | None = None
    tolerations: list[Toleration] | None = None
    priority: Int32 | None = None
    preemption_policy: str | None = None
    restart_policy: str | None = None
    active_deadline_seconds: Int64 | None = None
    host_network: bool | None = None
    overhead: Quantities | None = None
    resources: Resources | None = None
    scheduling_gates: list[NamedItem] | None = None
    resource_claims: list[PodResourceClaim] | None = None
    topology_spread_constraints: list[SpreadConstraint] | None = None
    volumes: list[Volume] | None = None
    scheduling_group: SchedulingGroup | None = None
    # Kubernetes 1.35's reference to a group inside a Workload.
    workload_ref: Present | None = None
    runtime_class_name: str | None = None

    @property
    def always_restarts(self) -> bool:
        return self.restart_policy in (None, "Always")

    @property
    def all_containers(self) -> tuple[Container, ...]:
        """Return the init containers, then the others."""
        return (*(self.init_containers or ()), *(self.containers or ()))

    @property
    def images(self) -> list[str]:
        """Return the images of its containers and volumes, each as often as it is used, the first `MOST_IMAGES`."""
        images = [container.image for container in self.all_containers if container.image]
        images += [volume.image.reference for volume in self.volumes or () if volume.image and volume.image.reference]
        return images[:MOST_IMAGES]


class ContainerState(Struct):
    running: Present | None = None
    terminated: Present | None = None


class ContainerStatus(Struct):
    """Whether a container has ever run, and what the kubelet has allocated to it while it is resized in place."""

    name: str = ""
    resources: Resources | None = None
    allocated_resources: Quantities | None = None
    state: ContainerState | None = None
    last_state: ContainerState | None = None
    restart_count: Int32 = 0


class PodStatus(PodPhase):
    reason: str | None = None
    container_statuses: list[ContainerStatus] | None = None
    init_container_statuses: list[ContainerStatus] | None = None
    start_time: str | None = None
    nominated_node_name: str | None = None
    resource_claim_statuses: list[PodResourceClaim] | None = None
    # For the pod as a whole: pod-level resources are resized in place, too.
    resources: Resources | None = None
    allocated_resources: Quantities | None = None


class Pod(PodOutline):
    metadata: OwnedMetadata
    spec: PodSpec = msgspec.field(default_factory=PodSpec)
    status: PodStatus = msgspec.field(default_factory=PodStatus)

    @property
    def rank(self) -> tuple[int, str]:
        """The sort key of waiting pods: the priority, and the RFC 3339 time of creation."""
        return self.spec.priority or 0, self.metadata.creation_timestamp or ""


class Taint(Struct):
    key: str
    effect: str = ""
    value: str | None = None


class NodeSpec(Struct):
    unschedulable: bool | None = None
    taints: list[Taint] | None = None


class NodeSystemInfo(Struct):
    boot_id: str = msgspec.field(name="bootID", default="")


class Image(Struct):
    names: list[str] | None = None
    size_bytes: Int64 = 0


class NodeHealth(Struct):
    conditions: list[Condition] | None = None
    node_info: NodeSystemInfo | None = None


class NodeOutline(Object):
    """The fields of a node in a list; decoding everything takes four times the time."""

    status: NodeHealth = msgspec.field(default_factory=NodeHealth)

    def condition(self, kind: str) -> Condition | None:
        return next((condition for condition in self.status.conditions or () if condition.type == kind), None)


class NodeStatus(NodeHealth):
    allocatable: Quantities | None = None
    capacity: Quantities | None = None
    images: list[Image] | None = None


class Node(NodeOutline):
    spec: NodeSpec = msgspec.field(default_factory=NodeSpec)
    status: NodeStatus = msgspec.field(default_factory=NodeStatus)


class RuntimeClass(Object):
    """The handler that a node's container runtime has for a class. It never changes.

    Source: ValidateRuntimeClassUpdate in pkg/apis/node/validation/validation.go of Kubernetes.
    """

    handler: str

"""The fields of the storage objects that the scheduler reads, and the claims of a pod.

Everything but the name may be missing or null, as in `scheduler.kube.objects`.
"""

import msgspec

from scheduler.kube.objects import (
    Int32,
    LabelSelector,
    NodeSelector,
    Object,
    OwnedMetadata,
    Pod,
    Quantities,
    Quantity,
    Resources,
    Struct,
)

# Annotations that the scheduler, the volume controller and provisioners exchange.
# Source: k8s.io/component-helpers storage/volume.
SELECTED_NODE = "volume.kubernetes.io/selected-node"
BIND_COMPLETED = "pv.kubernetes.io/bind-completed"
BOUND_BY_CONTROLLER = "pv.kubernetes.io/bound-by-controller"
_CLASS = "volume.beta.kubernetes.io/storage-class"
# The provisioner of classes whose volumes are all created by hand.
NO_PROVISIONER = "kubernetes.io/no-provisioner"
ONCE_PER_POD = "ReadWriteOncePod"
# Each claim of a pod is looked up on every node.
MOST_CLAIMS = 256


class ClaimSpec(Struct):
    access_modes: list[str] | None = None
    resources: Resources | None = None
    selector: LabelSelector | None = None
    storage_class_name: str | None = None
    volume_mode: str | None = None
    volume_name: str = ""
    volume_attributes_class_name: str | None = None


class Phase(Struct):
    phase: str = ""


class PersistentVolumeClaim(Object):
    metadata: OwnedMetadata
    spec: ClaimSpec = msgspec.field(default_factory=ClaimSpec)
    status: Phase = msgspec.field(default_factory=Phase)

    @property
    def storage_class(self) -> str:
        return _class_of(self, self.spec.storage_class_name)

    @property
    def selected_node(self) -> str:
        """Return the node for which a provisioner is to create the volume; empty if there is none."""
        return self.annotations.get(SELECTED_NODE, "")

    @property
    def is_bound(self) -> bool:
        """Return whether claim and volume are bound to each other, and the volume controller has finished."""
        return bool(self.spec.volume_name) and BIND_COMPLETED in self.annotations


class Reference(Struct):
    """The claim for which a volume is reserved; without a uid, any claim with that name."""

    namespace: str = ""
    name: str = ""
    uid: str = ""

    @property
    def key(self) -> str:
        return f"{self.namespace}/{self.name}"


class CsiSource(Struct):
    driver: str = ""
    volume_handle: str = ""


class VolumeAffinity(Struct):
    required: NodeSelector | None = None


class VolumeSpec(Struct):
    capacity: Quantities | None = None
    access_modes: list[str] | None = None
    claim_ref: Reference | None = None
    csi: CsiSource | None = None
    node_affinity: VolumeAffinity | None = None
    storage_class_name: str | None = None
    volume_mode: str | None = None
    volume_attributes_class_name: str | None = None


class PersistentVolume(Object):
    spec: VolumeSpec = msgspec.field(default_factory=VolumeSpec)
    status: Phase = msgspec.field(default_factory=Phase)

    @property
    def storage_class(self) -> str:
        return _class_of(self, self.spec.storage_class_name)

    @property
    def affinity(self) -> NodeSelector | None:
        return self.spec.node_affinity.required if self.spec.node_affinity else None


class TopologyLabel(Struct):
    key: str
    values: frozenset[str] | None = None


class TopologyTerm(Struct):
    match_label_expressions: list[TopologyLabel] | None = None


class StorageClass(Object):
    provisioner: str = ""
    volume_binding_mode: str | None = None
    allowed_topologies: list[TopologyTerm] | None = None


class DriverLimit(Struct):
    count: Int32 | None = None


class Driver(Struct):
    name: str = ""
    allocatable: DriverLimit | None = None
    topology_keys: list[str] | None = None


class Drivers(Struct):
    drivers: list[Driver] | None = None


class CSINode(Object):
    """A node's CSI drivers; it has the node's name."""

    spec: Drivers = msgspec.field(default_factory=Drivers)

    @property
    def limits(self) -> dict[str, int]:
        """Return how many volumes each driver can attach to the node; a driver without a number has no limit."""
        drivers = self.spec.drivers or ()
        counts = ((driver.name, driver.allocatable.count) for driver in drivers if driver.allocatable is not None)
        return {name: count for name, count in counts if count is not None}

    @property
    def topology_keys(self) -> dict[str, tuple[str, ...]]:
        """Return by driver the node labels that determine where its volumes can be used."""
        return {driver.name: tuple(driver.topology_keys) for driver in self.spec.drivers or () if driver.topology_keys}


class DriverSpec(Struct):
    storage_capacity: bool | None = None


class CSIDriver(Object):
    """The capabilities of a CSI driver; it has the driver's name."""

    spec: DriverSpec = msgspec.field(default_factory=DriverSpec)


class CSIStorageCapacity(Object):
    """How much capacity a driver has for volumes of a class on certain nodes."""

    storage_class_name: str = ""
    node_topology: LabelSelector | None = None
    capacity: Quantity | None = None
    maximum_volume_size: Quantity | None = None


class AttachedSource(Struct):
    persistent_volume_name: str | None = None


class AttachmentSpec(Struct):
    node_name: str = ""
    source: AttachedSource = msgspec.field(default_factory=AttachedSource)


class VolumeAttachment(Object):
    """A volume that is attached to a node, or is to be."""

    spec: AttachmentSpec = msgspec.field(default_factory=AttachmentSpec)


def _class_of(item: Object, class_name: str | None) -> str:
    """Return a class's name; the deprecated annotation has precedence, as for the volume controller."""
    return item.annotations.get(_CLASS, class_name or "")


class ClaimUse(msgspec.Struct, frozen=True, gc=False):
    """A claim by key (namespace/name); ``owner`` is the pod's uid if the claim must belong to the pod."""

    key: str
    owner: str = ""

    @property
    def name(self) -> str:
        return self.key.partition("/")[2]


def read_claims(pod: Pod) -> tuple[ClaimUse, ...]:
    """Return the claims of a pod's volumes; raise ValueError if there are too many."""
    claims: list[ClaimUse] = []
    for volume in pod.spec.volumes or ():
        if volume.persistent_volume_claim is not None:
            claims.append(ClaimUse(f"{pod.metadata.namespace}/{volume.persistent_volume_claim.claim_name}"))
        elif volume.ephemeral is not None:
            claims.append(ClaimUse(f"{pod.metadata.namespace}/{pod.metadata.name}-{volume.name}", pod.metadata.uid))
    if len(claims) > MOST_CLAIMS:
        raise ValueError(f"{len(claims)} volume claims exceed the limit of {MOST_CLAIMS}")
    return tuple(dict.fromkeys(claims))

"""The cluster's storage as received from the watches, with the plans that are assumed for pods. Pure.

An object that cannot be read counts as absent: a pod that needs it waits, and its message names it.
"""

from collections import Counter
from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass, field
from types import MappingProxyType
from typing import Any, NamedTuple

from mooring.kube.events import Change, Changed, Identity
from scheduler.cache.column import shallow_copy
from scheduler.cache.counters import shift
from scheduler.cache.volumes.plan import VolumePlan, VolumePlans
from scheduler.cache.volumes.storage_index import Capacities, PvIndex
from scheduler.kube.cluster_event import NO_EVENT, ClusterEvent
from scheduler.kube.storage_objects import (
    ClaimUse,
    CSIDriver,
    CSINode,
    CSIStorageCapacity,
    PersistentVolume,
    PersistentVolumeClaim,
    StorageClass,
    VolumeAttachment,
)

StorageObject = (
    PersistentVolumeClaim
    | PersistentVolume
    | StorageClass
    | CSIDriver
    | CSIStorageCapacity
    | CSINode
    | VolumeAttachment
)
PATHS: Mapping[type[StorageObject], str] = {
    PersistentVolumeClaim: "/api/v1/persistentvolumeclaims",
    PersistentVolume: "/api/v1/persistentvolumes",
    StorageClass: "/apis/storage.k8s.io/v1/storageclasses",
    CSINode: "/apis/storage.k8s.io/v1/csinodes",
    CSIDriver: "/apis/storage.k8s.io/v1/csidrivers",
    CSIStorageCapacity: "/apis/storage.k8s.io/v1/csistoragecapacities",
    VolumeAttachment: "/apis/storage.k8s.io/v1/volumeattachments",
}
_IN_NAMESPACE = (PersistentVolumeClaim, CSIStorageCapacity)


class _CsiNode(NamedTuple):
    """By driver the number of volumes a node can attach, if limited, and the labels that say where they can be used."""

    limits: Mapping[str, int]
    topology_keys: Mapping[str, Collection[str]]


_NO_CSI_NODE = _CsiNode(MappingProxyType({}), MappingProxyType({}))


@dataclass(frozen=True, slots=True)
class StorageChange:
    """The meaning of a change: its cluster event, and its claims."""

    helps: ClusterEvent = NO_EVENT
    claims: frozenset[str] = frozenset()

    def __or__(self, other: "StorageChange") -> "StorageChange":
        return StorageChange(self.helps | other.helps, self.claims | other.claims)


@dataclass(slots=True)
class Usage:
    """The claims that assigned pods use on each node, and the nodes of each claim, with the number of pods."""

    _claims_on: dict[str, Counter[str]] = field(default_factory=dict)
    _nodes_of: dict[str, Counter[str]] = field(default_factory=dict)

    def copy(self) -> "Usage":
        return Usage(self._claims_on.copy(), self._nodes_of.copy())

    def shift(self, node: str, claims: Iterable[ClaimUse], by: int) -> None:
        """Add a pod's claims on a node (``by`` 1), or remove them (-1)."""
        for claim in claims:
            for counters, key, item in ((self._claims_on, node, claim.key), (self._nodes_of, claim.key, node)):
                # A copy of the usage may share the counter.
                counters[key] = Counter(counters.get(key))
                shift(counters[key], item, by)
                if not counters[key]:
                    del counters[key]

    def is_used(self, claim: str) -> bool:
        return claim in self._nodes_of

    def claims_on(self, node: str) -> Collection[str]:
        return self._claims_on.get(node, ())


class VolumeCache:
    """All storage objects: namespaced ones by namespace/name, the others by name."""

    def __init__(self) -> None:
        self.capacities = Capacities()
        self.usage = Usage()
        self.plans = VolumePlans()
        self.pv_index = PvIndex(self.plans)
        self._claims: dict[str, PersistentVolumeClaim] = {}
        self._classes: dict[str, StorageClass] = {}
        self._csi_nodes: dict[str, _CsiNode] = {}
        self._attachments: dict[str, VolumeAttachment] = {}
        self._attached_to: dict[str, dict[str, VolumeAttachment]] = {}
        # Counts all changes except those of what pods use, which a change of their node's row shows.
        self.changes = 0

    def snapshot(self, *, has_volumes: bool) -> "VolumeCache":
        """Return the current storage; without ``has_volumes`` only what pods use of it."""
        snapshot = shallow_copy(self)
        snapshot.usage = self.usage.copy()
        if has_volumes:
            snapshot.plans = self.plans.copy()
            snapshot.pv_index = self.pv_index.copy(snapshot.plans)
            snapshot._csi_nodes = self._csi_nodes.copy()
            snapshot._claims, snapshot._classes = self._claims.copy(), self._classes.copy()
            snapshot._attachments = self._attachments.copy()
            snapshot._attached_to = {node: attachments.copy() for node, attachments in self._attached_to.items()}
        return snapshot

    def claim(self, key: str) -> PersistentVolumeClaim | None:
        return self._claims.get(key)

    def storage_class(self, name: str) -> StorageClass | None:
        return self._classes.get(name)

    def limits(self, node: str) -> Mapping[str, int]:
        """Return how many volumes each driver can attach to a node, if it publishes a limit."""
        return self._csi_nodes.get(node, _NO_CSI_NODE).limits

    @property
    def has_limits(self) -> bool:
        return any(csi_node.limits for csi_node in self._csi_nodes.values())

    def attached_to(self, node: str) -> Collection[VolumeAttachment]:
        attachments = self._attached_to.get(node)
        return () if attachments is None else attachments.values()

    def selected_node(self, claim: PersistentVolumeClaim) -> str:
        """Return the node for which a claim's volume is, or will be, provisioned; empty if none is selected yet."""
        return self.plans.node_of(claim.key) or claim.selected_node

    def is_only_tried(self, claim: PersistentVolumeClaim) -> bool:
        """Return whether a claim's node is selected only by the group decision in progress."""
        return not claim.selected_node and self.plans.is_only_tried(claim.key)

    def topology_keys(self, node: str, driver: str) -> Collection[str]:
        """Return the node labels that determine where a driver's volumes can be used; none if the node has no such
        driver.

        Source: topologyKeys of CSINodeDriver in staging/src/k8s.io/api/storage/v1/types.go of Kubernetes.
        """
        return self._csi_nodes.get(node, _NO_CSI_NODE).topology_keys.get(driver, ())

    def owner(self, volume: PersistentVolume) -> tuple[str, str]:
        """Return the claim for which a volume is reserved, and its uid if known; empty if the volume is free."""
        assumed_for = self.plans.claim_of(volume.metadata.name)
        if assumed_for:
            return assumed_for, ""
        reference = volume.spec.claim_ref
        return (reference.key, reference.uid) if reference is not None else ("", "")

    def is_free(self, volume: PersistentVolume) -> bool:
        """Return whether a volume is reserved for no claim, neither by its claimRef nor by an assumed plan."""
        return volume.spec.claim_ref is None and not self.plans.claim_of(volume.metadata.name)

    def assume(self, uid: str, plan: VolumePlan, *, is_tried: bool = False) -> None:
        """Let later decisions see what was decided for a pod, or is tried for a member of a group, until `forget`."""
        self.changes += 1
        self.pv_index.count_plan(plan, -1)
        self.plans.add(uid, plan, is_tried=is_tried)
        self.pv_index.count_plan(plan, 1)

    def forget(self, uid: str) -> None:
        self.changes += 1
        if (plan := self.plans.by_uid.get(uid)) is not None:
            self.pv_index.count_plan(plan, -1)
            self.plans.drop(uid)
            self.pv_index.count_plan(plan, 1)

    def take(self, kind: type[StorageObject], event: Change[StorageObject]) -> StorageChange:
        self.changes += 1
        return self._put(event.item) if isinstance(event, Changed) else self._remove(kind, _key(kind, event.identity))

    def keep(self, kind: type[StorageObject], identities: Iterable[Identity]) -> StorageChange:
        self.changes += 1
        keys, change = {_key(kind, identity) for identity in identities}, StorageChange()
        for key in sorted(set(self._keys(kind)) - keys):
            change |= self._remove(kind, key)
        return change

    def check(self) -> None:
        self.capacities.check()
        self.pv_index.check()
        names = {name for attachments in self._attached_to.values() for name in attachments}
        assert names == self._attachments.keys(), "the attachments by node are not those that are there"

    def _keys(self, kind: type[StorageObject]) -> Iterable[str]:
        keys: Mapping[Any, Iterable[str]] = {
            PersistentVolumeClaim: self._claims,
            PersistentVolume: self.pv_index.names(),
            StorageClass: self._classes,
            CSINode: self._csi_nodes,
            CSIDriver: self.capacities.drivers(),
            CSIStorageCapacity: self.capacities.keys(),
            VolumeAttachment: self._attachments,
        }
        return keys[kind]

    def _put(self, item: StorageObject) -> StorageChange:
        name, helps, claims = item.metadata.name, NO_EVENT, frozenset[str]()
        match item:
            case PersistentVolumeClaim():
                old_claim, self._claims[item.key] = self._claims.get(item.key), item
                claims = frozenset((item.key,))
                helps = _event(ClusterEvent.CLAIM, old_claim is None or _substance(old_claim) != _substance(item))
            case PersistentVolume():
                old_volume = self.pv_index.get(name)
                self.pv_index.put(item)
                claims = self._claims_of(item) | self._claims_of(old_volume)
                helps = _event(ClusterEvent.VOLUME, old_volume is None or _substance(old_volume) != _substance(item))
            case StorageClass():
                old_class, self._classes[name] = self._classes.get(name), item
                is_change = old_class is None or old_class.allowed_topologies != item.allowed_topologies
                helps = _event(ClusterEvent.STORAGE_CLASS, is_change)
            case CSIDriver():
                helps = _event(ClusterEvent.STORAGE_CLASS, self.capacities.put_driver(item))
            case CSIStorageCapacity():
                helps = _event(ClusterEvent.STORAGE_CLASS, self.capacities.put(item))
            case CSINode():
                old_node, self._csi_nodes[name] = self._csi_nodes.get(name), _CsiNode(item.limits, item.topology_keys)
                helps = _event(ClusterEvent.ATTACHMENTS, old_node is None or old_node.limits != item.limits)
                # Members that share a claim may be allowed on other nodes.
                is_change = (old_node or _NO_CSI_NODE).topology_keys != item.topology_keys
                helps |= _event(ClusterEvent.STORAGE_CLASS, is_change)
            case VolumeAttachment():
                old_attachment = self._attachments.get(name)
                # An attachment's status changes; only its existence counts.
                if old_attachment is None or old_attachment.spec != item.spec:
                    helps = self._remove(VolumeAttachment, name).helps
                    self._attachments[name] = item
                    self._attached_to.setdefault(item.spec.node_name, {})[name] = item
        return StorageChange(helps, claims)

    def _remove(self, kind: type[StorageObject], key: str) -> StorageChange:
        helps, claims = NO_EVENT, frozenset[str]()
        if kind is PersistentVolumeClaim:
            # A pod that waits for the claim need not wait any longer.
            claims = frozenset([key] if self._claims.pop(key, None) is not None else ())
        elif kind is PersistentVolume:
            claims = self._claims_of(self.pv_index.remove(key))
        elif kind is StorageClass:
            self._classes.pop(key, None)
        elif kind is CSIDriver:
            helps = _event(ClusterEvent.STORAGE_CLASS, self.capacities.remove_driver(key))
        elif kind is CSIStorageCapacity:
            self.capacities.remove(key)
        elif kind is CSINode:
            helps = _event(ClusterEvent.ATTACHMENTS, bool(self._csi_nodes.pop(key, _NO_CSI_NODE).limits))
        elif (attachment := self._attachments.pop(key, None)) is not None:
            helps, attachments = ClusterEvent.ATTACHMENTS, self._attached_to[attachment.spec.node_name]
            del attachments[key]
            if not attachments:
                del self._attached_to[attachment.spec.node_name]
        return StorageChange(helps, claims)

    def _claims_of(self, volume: PersistentVolume | None) -> frozenset[str]:
        """Return the claims for which a volume is reserved, by its claimRef or by a plan."""
        if volume is None:
            return frozenset()
        claim = volume.spec.claim_ref.key if volume.spec.claim_ref is not None else ""
        return frozenset(filter(None, (claim, self.plans.claim_of(volume.metadata.name))))


def _event(cluster_event: ClusterEvent, is_change: bool) -> ClusterEvent:
    return cluster_event if is_change else NO_EVENT


def _key(kind: type[StorageObject], identity: Identity) -> str:
    return f"{identity.namespace}/{identity.name}" if kind in _IN_NAMESPACE else identity.name


def _substance(item: PersistentVolumeClaim | PersistentVolume) -> tuple[object, ...]:
    """Return all fields of an object that a plugin may read, without its version."""
    meta = item.metadata
    return item.spec, item.status, meta.uid, meta.labels, meta.annotations, meta.deletion_timestamp

"""The cluster's storage as received from the watches, with the plans that are assumed for pods. Pure.

An object that cannot be read counts as absent: a pod that needs it waits, and its message names it.
"""

from collections import Counter
from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass
from typing import Any

from mooring.kube.events import Change, Changed, Identity
from scheduler.cache.volumes.plan import AssumedVolumes, VolumePlan
from scheduler.cache.volumes.pv_index import PvIndex
from scheduler.cache.volumes.storage_capacity import Capacities
from scheduler.cache.volumes.usage import Usage
from scheduler.kube.cluster_event import NO_EVENT, ClusterEvent
from scheduler.kube.storage_objects import (
    CSIDriver,
    CSINode,
    CSIStorageCapacity,
    PersistentVolume,
    PersistentVolumeClaim,
    StorageClass,
    VolumeAttachment,
)

# What new volumes are provisioned from, and how large they may be.
VolumeSource = StorageClass | CSIDriver | CSIStorageCapacity
StorageObject = PersistentVolumeClaim | PersistentVolume | VolumeSource | CSINode | VolumeAttachment
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
_NO_LIMITS: Mapping[str, int] = {}
_NO_KEYS: Mapping[str, Collection[str]] = {}


@dataclass(frozen=True, slots=True)
class StorageChange:
    """The meaning of a change: its cluster event, and its claims."""

    helps: ClusterEvent = NO_EVENT
    claims: frozenset[str] = frozenset()

    def __or__(self, other: "StorageChange") -> "StorageChange":
        return StorageChange(self.helps | other.helps, self.claims | other.claims)


class VolumeCache:
    """All storage objects: namespaced ones by namespace/name, the others by name."""

    def __init__(self) -> None:
        self.pv_index = PvIndex()
        self.capacities = Capacities()
        self.usage = Usage()
        self.assumed = AssumedVolumes()
        self._claims: dict[str, PersistentVolumeClaim] = {}
        self._classes: dict[str, StorageClass] = {}
        self._limits: dict[str, Mapping[str, int]] = {}
        self._topology_keys: dict[str, Mapping[str, Collection[str]]] = {}
        self._attachments: dict[str, VolumeAttachment] = {}
        self._attached_to: dict[str, dict[str, VolumeAttachment]] = {}
        # Counts all changes except those of what pods use, which a change of their node's row shows.
        self.changes = 0

    def snapshot(self, *, has_volumes: bool) -> "VolumeCache":
        """Return the current storage; without ``has_volumes`` only what pods use of it."""
        snapshot = VolumeCache()
        snapshot.usage, snapshot.changes = self.usage.copy(), self.changes
        if has_volumes:
            snapshot.pv_index, snapshot.assumed, snapshot.capacities = (
                self.pv_index.copy(),
                self.assumed.copy(),
                self.capacities,
            )
            snapshot._claims, snapshot._classes, snapshot._limits = (
                self._claims.copy(),
                self._classes.copy(),
                self._limits.copy(),
            )
            snapshot._topology_keys, snapshot._attachments = self._topology_keys.copy(), self._attachments.copy()
            snapshot._attached_to = {node: attachments.copy() for node, attachments in self._attached_to.items()}
        return snapshot

    def claim(self, key: str) -> PersistentVolumeClaim | None:
        return self._claims.get(key)

    def storage_class(self, name: str) -> StorageClass | None:
        return self._classes.get(name)

    def limits(self, node: str) -> Mapping[str, int]:
        """Return how many volumes each driver can attach to a node, if it publishes a limit."""
        return self._limits.get(node, _NO_LIMITS)

    @property
    def has_limits(self) -> bool:
        return any(self._limits.values())

    def attached_to(self, node: str) -> Collection[VolumeAttachment]:
        attachments = self._attached_to.get(node)
        return () if attachments is None else attachments.values()

    def selected_node(self, claim: PersistentVolumeClaim) -> str:
        """Return the node for which a claim's volume is, or will be, provisioned; empty if none is selected yet."""
        return self.assumed.node_of(claim.key) or claim.selected_node

    def is_only_tried(self, claim: PersistentVolumeClaim) -> bool:
        """Return whether a claim's node is selected only by the group decision in progress."""
        return not claim.selected_node and self.assumed.is_only_tried(claim.key)

    def topology_keys(self, node: str, driver: str) -> Collection[str]:
        """Return the node labels that determine where a driver's volumes can be used; none if the node has no such
        driver.

        Source: topologyKeys of CSINodeDriver in staging/src/k8s.io/api/storage/v1/types.go of Kubernetes.
        """
        return self._topology_keys.get(node, _NO_KEYS).get(driver, ())

    def owner(self, volume: PersistentVolume) -> tuple[str, str]:
        """Return the claim for which a volume is reserved, and its uid if known; empty if the volume is free."""
        assumed_for = self.assumed.claim_of(volume.metadata.name)
        if assumed_for:
            return assumed_for, ""
        reference = volume.spec.claim_ref
        return (reference.key, reference.uid) if reference is not None else ("", "")

    def is_free(self, volume: PersistentVolume) -> bool:
        """Return whether a volume is reserved for no claim, neither by its claimRef nor by an assumed plan."""
        return volume.spec.claim_ref is None and not self.assumed.claim_of(volume.metadata.name)

    def assume(self, uid: str, plan: VolumePlan, *, is_tried: bool = False) -> None:
        """Let later decisions see what was decided for a pod, or is tried for a member of a group, until `forget`."""
        self.changes += 1
        self.assumed.add(uid, plan, is_tried=is_tried)
        for match in plan.matches:
            self.pv_index.count_assumed(match.volume.metadata.name, 1)

    def forget(self, uid: str) -> None:
        self.changes += 1
        plan = self.assumed.drop(uid)
        for match in plan.matches if plan is not None else ():
            self.pv_index.count_assumed(match.volume.metadata.name, -1)

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
        plans = self.assumed.plans.values()
        self.capacities.check()
        self.pv_index.check(Counter(match.volume.metadata.name for plan in plans for match in plan.matches))
        names = {name for attachments in self._attached_to.values() for name in attachments}
        assert names == self._attachments.keys(), "the attachments by node are not those that are there"

    def _keys(self, kind: type[StorageObject]) -> Iterable[str]:
        keys: Mapping[Any, Iterable[str]] = {
            PersistentVolumeClaim: self._claims,
            PersistentVolume: self.pv_index.names(),
            StorageClass: self._classes,
            CSINode: self._limits,
            CSIDriver: self.capacities.drivers(),
            CSIStorageCapacity: self.capacities.keys(),
            VolumeAttachment: self._attachments,
        }
        return keys[kind]

    def _put(self, item: StorageObject) -> StorageChange:
        name = item.metadata.name
        match item:
            case PersistentVolumeClaim():
                previous, self._claims[item.key] = self._claims.get(item.key), item
                is_change = previous is None or _substance(previous) != _substance(item)
                return StorageChange(ClusterEvent.CLAIM if is_change else NO_EVENT, frozenset((item.key,)))
            case PersistentVolume():
                old_volume = self.pv_index.get(name)
                self.pv_index.put(item)
                is_change = old_volume is None or _substance(old_volume) != _substance(item)
                claims = self._claims_of(item) | (
                    self._claims_of(old_volume) if old_volume is not None else frozenset()
                )
                return StorageChange(ClusterEvent.VOLUME if is_change else NO_EVENT, claims)
            case StorageClass() | CSIDriver() | CSIStorageCapacity():
                return StorageChange(ClusterEvent.STORAGE_CLASS if self._adds_sources(item) else NO_EVENT)
            case CSINode():
                limits, self._limits[name] = self._limits.get(name), item.limits
                keys, self._topology_keys[name] = self._topology_keys.get(name, _NO_KEYS), item.topology_keys
                helps = ClusterEvent.ATTACHMENTS if limits != item.limits else NO_EVENT
                if keys != item.topology_keys:
                    # Members that share a claim may be allowed on other nodes.
                    helps |= ClusterEvent.STORAGE_CLASS
                return StorageChange(helps)
            case VolumeAttachment():
                old_attachment = self._attachments.get(name)
                if old_attachment is not None and old_attachment.spec == item.spec:
                    # An attachment's status changes; only its existence counts.
                    return StorageChange()
                change = self._remove(VolumeAttachment, name)
                self._attachments[name] = item
                self._attached_to.setdefault(item.spec.node_name, {})[name] = item
                return change

    def _remove(self, kind: type[StorageObject], key: str) -> StorageChange:
        if kind is PersistentVolumeClaim:
            # A pod that waits for the claim need not wait any longer.
            return (
                StorageChange(claims=frozenset((key,))) if self._claims.pop(key, None) is not None else StorageChange()
            )
        if kind is PersistentVolume:
            volume = self.pv_index.remove(key)
            return StorageChange(claims=self._claims_of(volume)) if volume is not None else StorageChange()
        if kind in (StorageClass, CSIDriver, CSIStorageCapacity):
            return StorageChange(ClusterEvent.STORAGE_CLASS if self._adds_sources_without(kind, key) else NO_EVENT)
        if kind is CSINode:
            self._topology_keys.pop(key, None)
            return StorageChange(ClusterEvent.ATTACHMENTS if self._limits.pop(key, None) else NO_EVENT)
        attachment = self._attachments.pop(key, None)
        if attachment is None:
            return StorageChange()
        node = attachment.spec.node_name
        del self._attached_to[node][key]
        if not self._attached_to[node]:
            del self._attached_to[node]
        return StorageChange(ClusterEvent.ATTACHMENTS)

    def _adds_sources(self, item: VolumeSource) -> bool:
        """Record it; return whether volumes can be provisioned now that could not be before."""
        match item:
            case StorageClass():
                name = item.metadata.name
                old, self._classes[name] = self._classes.get(name), item
                return old is None or old.allowed_topologies != item.allowed_topologies
            case CSIDriver():
                return self.capacities.put_driver(item)
            case CSIStorageCapacity():
                return self.capacities.put(item)

    def _adds_sources_without(self, kind: type[StorageObject], key: str) -> bool:
        if kind is CSIDriver:
            return self.capacities.remove_driver(key)
        if kind is CSIStorageCapacity:
            self.capacities.remove(key)
        else:
            self._classes.pop(key, None)
        return False

    def _claims_of(self, volume: PersistentVolume) -> frozenset[str]:
        """Return the claims for which a volume is reserved, by its claimRef or by an assumed plan."""
        claim = volume.spec.claim_ref.key if volume.spec.claim_ref is not None else ""
        return frozenset(key for key in (claim, self.assumed.claim_of(volume.metadata.name)) if key)


def _key(kind: type[StorageObject], identity: Identity) -> str:
    return f"{identity.namespace}/{identity.name}" if kind in _IN_NAMESPACE else identity.name


def _substance(item: PersistentVolumeClaim | PersistentVolume) -> tuple[object, ...]:
    """Return all fields of an object that a plugin may read, without its version."""
    meta = item.metadata
    return item.spec, item.status, meta.uid, meta.labels, meta.annotations, meta.deletion_timestamp

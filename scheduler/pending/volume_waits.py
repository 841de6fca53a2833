"""Pods and their volumes: which events requeue pods, and which scheduled pods wait until their volumes are bound.

The node and VFs of a pod that waits stay reserved. A wait is checked when one of its objects changes, not periodically.
Pure: time is an argument. Source: checkBindings of kube-scheduler's volumebinding.
"""

from collections.abc import Callable, Iterable, Iterator, Mapping, Set
from dataclasses import dataclass
from itertools import takewhile

from mooring.kube.events import Change, Identity
from scheduler.cache.node_info import NodeInfo
from scheduler.cache.volumes.plan import Match, Provision, VolumePlan
from scheduler.cache.volumes.volume_cache import StorageChange, StorageObject, VolumeCache
from scheduler.cycle.decisions import Bind
from scheduler.kube.cluster_event import ClusterEvent
from scheduler.kube.outcomes import Refused
from scheduler.kube.pod_info import PodInfo
from scheduler.kube.storage_objects import PersistentVolume, PersistentVolumeClaim
from scheduler.plugins.volume_rules.volume_binding import claim_in_deletion, no_such_claim, no_such_volume
from scheduler.plugins.volume_rules.volume_matching import affinity_holds
from scheduler.queue.queue import Queue

# kube-scheduler's bindTimeoutSeconds.
PATIENCE_S = 600.0
_TIMED_OUT = "context deadline exceeded"


@dataclass(slots=True)
class _Case:
    """``versions`` are the versions of volumes and claims after our writes, by name; None until these are done."""

    decision: Bind
    plan: VolumePlan
    deadline: float
    versions: Mapping[str, str] | None = None


class VolumeWaits:
    """Decisions by pod uid; the volume cache assumes their plans while they wait."""

    def __init__(self, storage: VolumeCache, queue: Queue, node: Callable[[str], NodeInfo | None]) -> None:
        self._storage, self._queue, self._node = storage, queue, node
        self._cases: dict[str, _Case] = {}
        self._by_claim, self._by_node, self._queued_by_claim = UidIndex(), UidIndex(), UidIndex()
        # Pods with a changed claim, in the order of the changes.
        self._changed_uids: dict[str, None] = {}

    def __contains__(self, uid: str) -> bool:
        return uid in self._cases

    def take(self, kind: type[StorageObject], event: Change[StorageObject], now: float) -> None:
        self._change(self._storage.take(kind, event), now)

    def keep(self, kind: type[StorageObject], identities: Iterable[Identity], now: float) -> None:
        self._change(self._storage.keep(kind, identities), now)

    def _change(self, change: StorageChange, now: float) -> None:
        self._changed_uids |= dict.fromkeys(self._by_claim.of(change.claims))
        if change.helps & ClusterEvent.CLAIM:
            self._queue.move_pods_on_event(self._queued_by_claim.of(change.claims), ClusterEvent.CLAIM, now)
        self._queue.move_on_event(change.helps & ~ClusterEvent.CLAIM, now)

    def touch_node(self, node: str) -> None:
        self._changed_uids |= dict.fromkeys(self._by_node.of((node,)))

    def add_to_queue(self, uid: str, pod_info: PodInfo | Refused) -> None:
        """Record which claims a pod in the queue uses."""
        volumes = pod_info.volumes if isinstance(pod_info, PodInfo) else ()
        self._queued_by_claim.put(uid, [claim.key for claim in volumes])

    def delete(self, uid: str, now: float) -> None:
        self._queued_by_claim.drop(uid)
        if self.drop(uid) is not None:
            self.give_up(now)

    def give_up(self, now: float) -> None:
        """Cancel a plan: the volumes and nodes of its claims must be chosen again."""
        self._queue.move_on_event(ClusterEvent.CLAIM | ClusterEvent.VOLUME, now)

    def add(self, decision: Bind, now: float) -> None:
        assert decision.plan is not None, "what has no plan need not wait"
        uid, plan = decision.pod_info.uid, decision.plan
        self._cases[uid] = _Case(decision, plan, now + PATIENCE_S)
        self._storage.assume(uid, plan)
        self._by_claim.put(uid, plan.claims())
        self._by_node.put(uid, (plan.node,))

    def drop(self, uid: str) -> Bind | None:
        case = self._cases.pop(uid, None)
        if case is None:
            return None
        self._changed_uids.pop(uid, None)
        self._storage.forget(uid)
        self._by_claim.drop(uid)
        self._by_node.drop(uid)
        return case.decision

    def finish_write(self, decision: Bind, versions: Mapping[str, str]) -> None:
        if self._is_current(decision):
            self._cases[decision.pod_info.uid].versions = versions
            self._changed_uids[decision.pod_info.uid] = None

    def fail_write(self, decision: Bind) -> bool:
        """Drop a decision that could not be written; return whether it still waited."""
        return self._is_current(decision) and self.drop(decision.pod_info.uid) is not None

    def _is_current(self, decision: Bind) -> bool:
        case = self._cases.get(decision.pod_info.uid)
        return case is not None and case.decision is decision

    def outcomes(self, now: float) -> Iterator[tuple[Bind, str]]:
        """Drop and yield finished waits, with the reason why the volumes cannot be bound; empty if they are bound."""
        # The first to start is the first to time out.
        overdue = takewhile(lambda item: item[1].deadline <= now, self._cases.items())
        for uid in [*self._changed_uids, *(uid for uid, _ in overdue)]:
            if (case := self._cases.get(uid)) is None:
                continue
            reason = self._outcome(case)
            if reason is None and case.deadline <= now:
                reason = _TIMED_OUT
            if reason is not None:
                self.drop(uid)
                yield case.decision, reason
        self._changed_uids.clear()

    def next_due(self) -> float | None:
        """Return when `outcomes` may have something; None if nothing waits."""
        if self._changed_uids:
            return 0.0
        return next((case.deadline for case in self._cases.values()), None)

    def check(self, pending_uids: Set[str]) -> None:
        """Raise AssertionError unless the plans of waiting pods are assumed, and only pending pods are indexed."""
        assert self._storage.plans.by_uid == {uid: case.plan for uid, case in self._cases.items()}
        assert self._queued_by_claim.uids() <= pending_uids

    def _outcome(self, case: _Case) -> str | None:
        """Return None while the pod must wait, otherwise the result for `outcomes`."""
        plan, versions = case.plan, case.versions
        if versions is None:
            return None
        node = self._node(plan.node)
        if node is None:
            return f'failed to get node "{plan.node}": node "{plan.node}" not found'
        results = [
            *(self._match_outcome(match, versions, node) for match in plan.matches),
            *(self._provision_outcome(provision, versions, node) for provision in plan.provisions),
        ]
        return next(filter(None, results), None if None in results else "")

    def _match_outcome(self, match: Match, versions: Mapping[str, str], node: NodeInfo) -> str | None:
        name = match.volume.metadata.name
        volume, claim = self._storage.pv_index.get(name), self._claim(match.claim)
        if volume is None:
            return f"failed to check binding: {no_such_volume(name)}"
        if isinstance(claim, Refused):
            return f"failed to check binding: {claim.reason}"
        if _is_older(volume, versions.get(name)):
            return None
        if fault := _node_mismatch(volume, node) or _claim_mismatch(volume, claim):
            return fault
        return "" if claim.is_bound else None

    def _provision_outcome(self, provision: Provision, versions: Mapping[str, str], node: NodeInfo) -> str | None:
        claim = self._claim(provision.claim)
        if isinstance(claim, Refused):
            return f"failed to check provisioning pvc: {claim.reason}"
        if _is_older(claim, versions.get(claim.key)):
            return None
        if claim.selected_node != provision.node:
            # A provisioner that fails removes the annotation, so that another node is chosen.
            return f'provisioning failed for PVC "{claim.metadata.name}"'
        volume = self._storage.pv_index.get(claim.spec.volume_name)
        if volume is not None and (fault := _node_mismatch(volume, node)):
            return fault
        return "" if claim.is_bound and volume is not None else None

    def _claim(self, old_claim: PersistentVolumeClaim) -> PersistentVolumeClaim | Refused:
        """Return a claim's current object, or why it can no longer be used."""
        claim, name = self._storage.claim(old_claim.key), old_claim.metadata.name
        if claim is None or claim.metadata.uid != old_claim.metadata.uid:
            return Refused(no_such_claim(name))
        if claim.metadata.deletion_timestamp is not None:
            return Refused(claim_in_deletion(name))
        return claim


def _node_mismatch(volume: PersistentVolume, node: NodeInfo) -> str:
    if affinity_holds(volume.affinity, node.labels):
        return ""
    mismatch = f'pv "{volume.metadata.name}" node affinity doesn\'t match node "{node.name}"'
    return f"{mismatch}: no matching NodeSelectorTerms"


def _claim_mismatch(volume: PersistentVolume, claim: PersistentVolumeClaim) -> str:
    """Return why a volume and its chosen claim will not be bound to each other; empty if they may."""
    name, volume_name = volume.metadata.name, claim.spec.volume_name
    if volume.spec.claim_ref is None or not volume.spec.claim_ref.uid:
        return f'ClaimRef got reset for pv "{name}"'
    if volume_name not in ("", name):
        # Another controller has chosen that volume, which may be usable only on other nodes. kube-scheduler does not
        # check this.
        return f'PVC "{claim.metadata.name}" is bound to pv "{volume_name}", not to "{name}"'
    return ""


def _is_older(item: PersistentVolume | PersistentVolumeClaim, write: str | None) -> bool:
    """Return whether the watch has not yet delivered our write; versions can be compared as numbers."""
    version = item.metadata.resource_version
    return write is not None and version.isdecimal() and write.isdecimal() and int(version) < int(write)


class UidIndex:
    """The uids of pods by names, such as those of claims; a pod may have several."""

    def __init__(self) -> None:
        self._names: dict[str, tuple[str, ...]] = {}
        self._uids: dict[str, set[str]] = {}

    def put(self, uid: str, names: Iterable[str]) -> None:
        self.drop(uid)
        if unique_names := tuple(dict.fromkeys(names)):
            self._names[uid] = unique_names
        for name in unique_names:
            self._uids.setdefault(name, set()).add(uid)

    def drop(self, uid: str) -> None:
        for name in self._names.pop(uid, ()):
            self._uids[name].discard(uid)
            if not self._uids[name]:
                del self._uids[name]

    def uids(self) -> Set[str]:
        return self._names.keys()

    def of(self, names: Iterable[str]) -> list[str]:
        return sorted({uid for name in names for uid in self._uids.get(name, ())})

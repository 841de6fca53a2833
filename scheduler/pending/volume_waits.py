"""Scheduled pods that wait until their volumes are bound; their node and VFs stay reserved.

Pure: time is an argument. A wait is checked when one of its objects changes, not periodically. Source: checkBindings of
kube-scheduler's volumebinding.
"""

from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass
from itertools import takewhile

from scheduler.cache.node_info import NodeInfo
from scheduler.cache.volumes.plan import Match, Provision
from scheduler.cache.volumes.volume_cache import VolumeCache
from scheduler.cycle.decisions import Bind
from scheduler.kube.outcomes import Refused
from scheduler.kube.storage_objects import PersistentVolume, PersistentVolumeClaim
from scheduler.plugins.volume_rules.volume_binding import claim_in_deletion, no_such_claim, no_such_volume
from scheduler.plugins.volume_rules.volume_matching import affinity_holds

# kube-scheduler's bindTimeoutSeconds.
PATIENCE_S = 600.0
_TIMED_OUT = "context deadline exceeded"
_Node = Callable[[str], NodeInfo | None]


@dataclass(slots=True)
class _Case:
    """``versions`` are the versions of volumes and claims after our writes, by name; None until these are done."""

    decision: Bind
    deadline: float
    versions: Mapping[str, str] | None = None


class VolumeWaits:
    """Decisions by pod uid; the volume cache assumes their plans while they wait."""

    def __init__(self, storage: VolumeCache, node: _Node) -> None:
        self._storage = storage
        self._node = node
        self._cases: dict[str, _Case] = {}
        self._by_claim, self._by_node = UidIndex(), UidIndex()
        # Pods with a changed claim, in the order of the changes.
        self._changed_uids: dict[str, None] = {}

    def __len__(self) -> int:
        return len(self._cases)

    def __contains__(self, uid: str) -> bool:
        return uid in self._cases

    def add(self, decision: Bind, now: float) -> None:
        assert decision.plan is not None, "what has no plan need not wait"
        uid = decision.pod_info.uid
        self._cases[uid] = _Case(decision, now + PATIENCE_S)
        self._storage.assume(uid, decision.plan)
        self._by_claim.put(uid, decision.plan.claims())
        self._by_node.put(uid, (decision.plan.node,))

    def written(self, decision: Bind, versions: Mapping[str, str]) -> None:
        """Record that the plan is written."""
        case = self._cases.get(decision.pod_info.uid)
        if case is not None and case.decision is decision:
            case.versions = versions
            self._changed_uids[decision.pod_info.uid] = None

    def drop(self, uid: str) -> Bind | None:
        case = self._cases.pop(uid, None)
        if case is None or case.decision.plan is None:
            return None
        self._changed_uids.pop(uid, None)
        self._storage.forget(uid)
        self._by_claim.drop(uid)
        self._by_node.drop(uid)
        return case.decision

    def touch(self, claims: Iterable[str]) -> None:
        """Check the pods again that wait for these claims."""
        for claim in claims:
            self._changed_uids |= dict.fromkeys(self._by_claim.of((claim,)))

    def touch_node(self, node: str) -> None:
        self._changed_uids |= dict.fromkeys(self._by_node.of((node,)))

    def failed(self, decision: Bind) -> bool:
        """Drop a decision that could not be written; return whether it still waited."""
        case = self._cases.get(decision.pod_info.uid)
        if case is None or case.decision is not decision:
            return False
        self.drop(decision.pod_info.uid)
        return True

    def settled(self, now: float) -> Iterator[tuple[Bind, str]]:
        """Yield and drop finished waits, with the reason why the volumes cannot be bound; empty if they are bound."""
        # The first to start is the first to time out.
        overdue = [uid for uid, _ in takewhile(lambda item: item[1].deadline <= now, self._cases.items())]
        for uid in [*self._changed_uids, *overdue]:
            case = self._cases.get(uid)
            reason = self._look(case) if case is not None else None
            if case is not None and reason is None and case.deadline <= now:
                reason = _TIMED_OUT
            if case is not None and reason is not None:
                self.drop(uid)
                yield case.decision, reason
        self._changed_uids.clear()

    def next_due(self) -> float | None:
        """Return when `settled` may have something; None if nothing waits."""
        if self._changed_uids:
            return 0.0
        first = next(iter(self._cases.values()), None)
        return first.deadline if first is not None else None

    def check(self) -> None:
        """Raise AssertionError unless exactly the plans of waiting pods are assumed."""
        plans = {uid: case.decision.plan for uid, case in self._cases.items()}
        assert self._storage.plans.by_uid == plans

    def _look(self, case: _Case) -> str | None:
        """Return None while the pod must wait, otherwise the result for `settled`."""
        plan = case.decision.plan
        if plan is None or case.versions is None:
            return None
        node = self._node(plan.node)
        if node is None:
            return f'failed to get node "{plan.node}": node "{plan.node}" not found'
        verdicts = [
            *(self._look_at_match(match, case.versions, node) for match in plan.matches),
            *(self._look_at_provision(provision, case.versions, node) for provision in plan.provisions),
        ]
        bad = next((verdict for verdict in verdicts if verdict), None)
        return bad if bad is not None else None if None in verdicts else ""

    def _look_at_match(self, match: Match, versions: Mapping[str, str], node: NodeInfo) -> str | None:
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

    def _look_at_provision(self, provision: Provision, versions: Mapping[str, str], node: NodeInfo) -> str | None:
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
        """Add a pod, or replace its names."""
        self.drop(uid)
        self._names[uid] = tuple(names)
        for name in self._names[uid]:
            self._uids.setdefault(name, set()).add(uid)

    def drop(self, uid: str) -> None:
        for name in dict.fromkeys(self._names.pop(uid, ())):
            self._uids[name].discard(uid)
            if not self._uids[name]:
                del self._uids[name]

    def of(self, names: Iterable[str]) -> list[str]:
        """Return the pods that have any of these names."""
        return sorted({uid for name in names for uid in self._uids.get(name, ())})

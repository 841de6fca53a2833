"""The patches that get a pod's volumes bound: bodies only, pure.

As in kube-scheduler's PreBind, a volume gets its claim, and a claim the node that its volume is to be made for; the
rest is done by the volume controller and the provisioner. The version is a precondition: an object that has changed
since the decision is not the one that was decided about.
"""

from collections.abc import Iterator
from dataclasses import dataclass

import msgspec

from scheduler.cache.volumes.plan import Match, VolumePlan
from scheduler.kube.storage_objects import (
    BOUND_BY_CONTROLLER,
    SELECTED_NODE,
    PersistentVolume,
    PersistentVolumeClaim,
)


@dataclass(frozen=True, slots=True)
class Write:
    """One merge patch; ``key`` is the volume's name or the claim's namespace/name, ``value`` what it will say."""

    key: str
    path: str
    body: bytes
    kind: type[PersistentVolume] | type[PersistentVolumeClaim]
    value: str

    def read(self, answer: bytes) -> PersistentVolume | PersistentVolumeClaim:
        """Return the object of an answer; raise MsgspecError if it is not one."""
        return msgspec.json.decode(answer, type=self.kind)

    def is_done(self, shown: PersistentVolume | PersistentVolumeClaim) -> bool:
        """Return whether an object already has what is to be written."""
        if isinstance(shown, PersistentVolume):
            return shown.spec.claim_ref is not None and shown.spec.claim_ref.uid == self.value
        return shown.selected_node == self.value


def writes(plan: VolumePlan) -> Iterator[Write]:
    """Yield what is not written yet, volumes first."""
    for match in plan.matches:
        reference = match.volume.spec.claim_ref
        if reference is None or not reference.uid:
            yield _tell_volume(match)
    for claim in plan.provisions:
        if claim.selected_node != plan.node:
            yield _tell_claim(claim, plan.node)


def _tell_volume(match: Match) -> Write:
    volume, claim = match.volume.metadata, match.claim.metadata
    reference = {
        "apiVersion": "v1",
        "kind": "PersistentVolumeClaim",
        "namespace": claim.namespace,
        "name": claim.name,
        "uid": claim.uid,
        "resourceVersion": claim.resource_version,
    }
    metadata: dict[str, object] = {"uid": volume.uid, "resourceVersion": volume.resource_version}
    if match.volume.spec.claim_ref is None:
        # A volume whose claimRef its owner has set keeps it when the claim goes.
        metadata["annotations"] = {BOUND_BY_CONTROLLER: "yes"}
    body = msgspec.json.encode({"metadata": metadata, "spec": {"claimRef": reference}})
    return Write(volume.name, f"/api/v1/persistentvolumes/{volume.name}", body, PersistentVolume, claim.uid)


def _tell_claim(claim: PersistentVolumeClaim, node: str) -> Write:
    about = claim.metadata
    metadata = {
        "uid": about.uid,
        "resourceVersion": about.resource_version,
        "annotations": {SELECTED_NODE: node},
    }
    path = f"/api/v1/namespaces/{about.namespace}/persistentvolumeclaims/{about.name}"
    return Write(claim.key, path, msgspec.json.encode({"metadata": metadata}), PersistentVolumeClaim, node)

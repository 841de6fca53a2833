"""PreBind: write what a pod's volumes need before the Binding; each patch is repeated until its answer is definite.

As in kube-scheduler's PreBind, a volume gets its claim, and a claim the node for which its volume is to be created. The
volume controller and the provisioner do the rest. The version is a precondition: an object that has changed since the
decision is not the one that was decided about. An answer that cannot be read proves no more than a conflict does: the
object is read back, once, to check what is written.
"""

from collections.abc import Iterator
from dataclasses import dataclass

import msgspec

from mooring.kube.answers import check_object
from mooring.kube.client import MERGE_PATCH, Client
from mooring.kube.failures import Conflict, KubeError, Throttled, Unknown
from mooring.kube.retry import until_definite
from mooring.kube.write import Write
from scheduler.cache.volumes.plan import Match, VolumePlan
from scheduler.cycle.instructions import PreBind, PreBindResult
from scheduler.kube.storage_objects import (
    BOUND_BY_CONTROLLER,
    SELECTED_NODE,
    PersistentVolume,
    PersistentVolumeClaim,
)


@dataclass(frozen=True, slots=True)
class _Patch:
    """One merge patch; ``key`` is the volume's name or the claim's namespace/name, ``value`` the value to write."""

    key: str
    path: str
    body: bytes
    kind: type[PersistentVolume] | type[PersistentVolumeClaim]
    value: str

    def read(self, answer: bytes) -> PersistentVolume | PersistentVolumeClaim:
        """Return the object in a response; raise MsgspecError if it is missing or incomplete."""
        try:
            return msgspec.json.decode(check_object(self.kind.__name__, answer), type=self.kind)
        except Unknown as incomplete:
            raise msgspec.ValidationError(str(incomplete)) from incomplete

    def is_done(self, stored: PersistentVolume | PersistentVolumeClaim) -> bool:
        if isinstance(stored, PersistentVolume):
            return stored.spec.claim_ref is not None and stored.spec.claim_ref.uid == self.value
        return stored.selected_node == self.value


async def pre_bind(client: Client, order: PreBind) -> PreBindResult:
    """Write a plan and return the result; if a later write fails, nothing is undone."""
    versions: dict[str, str] = {}
    try:
        for patch in _patches(order.plan):
            versions[patch.key] = await _carry_out(client, patch)
    except (Unknown, Throttled):
        raise
    except KubeError as refused:
        return PreBindResult(fault=refused.status.message)
    except msgspec.MsgspecError as unreadable:
        return PreBindResult(fault=f"the API server's answer cannot be read: {unreadable}")
    return PreBindResult(versions)


async def _carry_out(client: Client, patch: _Patch) -> str:
    """Return the version of the object with the written fields; raise MsgspecError if none can be read."""
    try:
        stored = patch.read(await Write(client, "PATCH", patch.path, patch.body, MERGE_PATCH).send())
    except (Conflict, msgspec.MsgspecError):
        # The conflict may be with our own write, whose answer was lost.
        stored = patch.read(await _get(client, patch.path))
        if not patch.is_done(stored):
            raise
    return stored.metadata.resource_version


@until_definite
async def _get(client: Client, path: str) -> bytes:
    return await client.request("GET", path)


def _patches(plan: VolumePlan) -> Iterator[_Patch]:
    """Yield the patches that are not written yet, volumes first."""
    for match in plan.matches:
        reference = match.volume.spec.claim_ref
        if reference is None or not reference.uid:
            yield _tell_volume(match)
    for provision in plan.provisions:
        if provision.claim.selected_node != provision.node:
            yield _tell_claim(provision.claim, provision.node)


def _tell_volume(match: Match) -> _Patch:
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
        # A volume whose claimRef was set by its owner keeps it when the claim is deleted.
        metadata["annotations"] = {BOUND_BY_CONTROLLER: "yes"}
    body = msgspec.json.encode({"metadata": metadata, "spec": {"claimRef": reference}})
    return _Patch(volume.name, f"/api/v1/persistentvolumes/{volume.name}", body, PersistentVolume, claim.uid)


def _tell_claim(claim: PersistentVolumeClaim, node: str) -> _Patch:
    about = claim.metadata
    metadata = {
        "uid": about.uid,
        "resourceVersion": about.resource_version,
        "annotations": {SELECTED_NODE: node},
    }
    path = f"/api/v1/namespaces/{about.namespace}/persistentvolumeclaims/{about.name}"
    return _Patch(claim.key, path, msgspec.json.encode({"metadata": metadata}), PersistentVolumeClaim, node)

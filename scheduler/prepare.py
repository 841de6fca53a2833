"""Write what a pod's volumes need before it is bound, each patch repeated until its answer is definite."""

import msgspec

from mooring.kube.client import JSON, MERGE_PATCH, Client
from mooring.kube.failures import Conflict, KubeError, Status, Throttled, Unknown
from mooring.kube.persist import until_definite
from scheduler.instructions import Prepare, Prepared
from scheduler.volumes.objects import PersistentVolume, PersistentVolumeClaim
from scheduler.volumes.writes import Write, writes


async def prepare(client: Client, order: Prepare) -> Prepared:
    """Write a plan and return what became of it; nothing is taken back where a later write fails."""
    versions: dict[str, str] = {}
    try:
        for write in writes(order.plan):
            versions[write.key] = await _carry_out(client, write)
    except (Unknown, Throttled):
        raise
    except KubeError as refused:
        return Prepared(fault=refused.status.message)
    return Prepared(versions)


async def _carry_out(client: Client, write: Write) -> str:
    """Return the version of the object that says what was to be written."""
    try:
        shown = await _send(client, "PATCH", write.path, write)
    except Conflict:
        # Maybe with our own write, whose answer was lost.
        shown = await _send(client, "GET", write.path, write)
        if not write.is_done(shown):
            raise
    return shown.metadata.resource_version


@until_definite
async def _send(client: Client, method: str, path: str, write: Write) -> PersistentVolume | PersistentVolumeClaim:
    patching = method == "PATCH"
    answer = await client.request(method, path, write.body if patching else None, MERGE_PATCH if patching else JSON)
    try:
        return msgspec.json.decode(answer, type=write.kind)
    except msgspec.MsgspecError as unreadable:
        raise Unknown(Status(200, message=f"{method} {path}: {unreadable}")) from unreadable

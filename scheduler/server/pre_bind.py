"""PreBind: write what a pod's volumes need before the bind, each patch repeated until its answer is definite.

An answer that cannot be read shows no more than a conflict does: the object is read back, once, to see what is written.
"""

import msgspec

from mooring.kube.client import JSON, MERGE_PATCH, Client
from mooring.kube.failures import Conflict, KubeError, Throttled, Unknown
from mooring.kube.retry import until_definite
from scheduler.cycle.instructions import PreBind, PreBindResult
from scheduler.server.volume_patches import Write, writes


async def prepare(client: Client, order: PreBind) -> PreBindResult:
    """Write a plan and return the result; nothing is undone if a later write fails."""
    versions: dict[str, str] = {}
    try:
        for write in writes(order.plan):
            versions[write.key] = await _carry_out(client, write)
    except (Unknown, Throttled):
        raise
    except KubeError as refused:
        return PreBindResult(fault=refused.status.message)
    except msgspec.MsgspecError as unreadable:
        return PreBindResult(fault=f"the API server's answer cannot be read: {unreadable}")
    return PreBindResult(versions)


async def _carry_out(client: Client, write: Write) -> str:
    """Return the version of the object with the written fields; raise MsgspecError if none can be read."""
    try:
        shown = write.read(await _send(client, "PATCH", write.path, write.body, MERGE_PATCH))
    except (Conflict, msgspec.MsgspecError):
        # The conflict may be with our own write, whose answer was lost.
        shown = write.read(await _send(client, "GET", write.path))
        if not write.is_done(shown):
            raise
    return shown.metadata.resource_version


@until_definite
async def _send(client: Client, method: str, path: str, body: bytes = b"", kind: str = JSON) -> bytes:
    return await client.request(method, path, body, kind)

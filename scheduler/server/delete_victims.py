"""Delete the victims of a preemption: first patch the condition with the reason, then delete; the uid guards both.

Source: kube-scheduler's PreemptPod.
"""

import asyncio
from datetime import UTC, datetime

import msgspec
import structlog

from mooring.kube.client import JSON, STRATEGIC_PATCH, Client
from mooring.kube.failures import Conflict, KubeError, NotFound, Throttled, Unknown
from mooring.kube.retry import until_definite
from scheduler.cache.assigned_pod import PREEMPTED
from scheduler.cache.cache import AssignedPod
from scheduler.cycle.instructions import DeleteVictims, DeleteVictimsResult

_log = structlog.get_logger()
# How many of an order are deleted at once, so that a group's many victims keep no other write waiting. Source: the
# Parallelizer's 16 (DefaultParallelism in framework/parallelize of kube-scheduler), by which prepareCandidate in
# framework/preemption deletes victims.
_AT_ONCE = 16
# The API server's response to a patch that names another uid: the field is immutable.
_ANOTHER_UID = 422
# Part of the message of a 409 that means the same.
_NOT_MET = "Precondition failed"


def disruption(assigned: AssignedPod, scheduler_name: str, now: str) -> bytes:
    """Return the strategic merge patch of pods/status with the reason of the deletion; ``now`` is RFC 3339."""
    condition = {
        "type": "DisruptionTarget",
        "status": "True",
        "reason": PREEMPTED,
        "message": f"{scheduler_name}: preempting to accommodate a higher priority pod",
        "lastTransitionTime": now,
    }
    return msgspec.json.encode({"metadata": {"uid": assigned.uid}, "status": {"conditions": [condition]}})


def deletion(assigned: AssignedPod) -> bytes:
    """Return the delete options; the uid in them is a precondition."""
    return msgspec.json.encode(
        {"apiVersion": "v1", "kind": "DeleteOptions", "preconditions": {"uid": assigned.uid}},
    )


async def delete_victims(client: Client, order: DeleteVictims, scheduler_name: str) -> DeleteVictimsResult:
    """Delete all victims, some at once; return which were deleted, once the API server has answered for each."""
    turns = asyncio.Semaphore(_AT_ONCE)

    async def delete(assigned: AssignedPod) -> str | None:
        async with turns:
            return await _delete(client, order, assigned, scheduler_name)

    endings = await asyncio.gather(*map(delete, order.victims))
    deleted = tuple(assigned for assigned, refused in zip(order.victims, endings, strict=True) if refused == "")
    return DeleteVictimsResult(deleted, next((refused for refused in endings if refused), ""))


async def _delete(client: Client, order: DeleteVictims, assigned: AssignedPod, scheduler_name: str) -> str | None:
    """Return empty if the pod was deleted, the reason if it was not, None if it no longer existed."""
    path = "/api/v1/namespaces/{}/pods/{}".format(*assigned.pod.split("/", 1))
    fields = {"pod": assigned.pod, "uid": assigned.uid, "node": assigned.node, "for_pod": order.pod.key}
    now = datetime.now(UTC).strftime("%Y-%m-%dT%H:%M:%SZ")
    try:
        await _send(client, "PATCH", f"{path}/status", disruption(assigned, scheduler_name, now), STRATEGIC_PATCH)
        await _send(client, "DELETE", path, deletion(assigned), JSON)
    except (Unknown, Throttled):
        raise
    except KubeError as failed:
        if _is_gone(failed):
            _log.info("pod to preempt is gone, or another has its name", **fields, answer=str(failed))
            return None
        _log.warning("pod not preempted", **fields, answer=str(failed))
        return str(failed)
    _log.warning("pod preempted", **fields)
    return ""


def _is_gone(failed: KubeError) -> bool:
    """Return whether the pod no longer exists. A conflict with another write does not show that."""
    if isinstance(failed, Conflict):
        return _NOT_MET in failed.status.message
    return isinstance(failed, NotFound) or failed.status.code == _ANOTHER_UID


@until_definite
async def _send(client: Client, method: str, path: str, body: bytes, kind: str) -> bytes:
    return await client.request(method, path, body, kind)

"""Delete the victims of a preemption: first patch the condition with the reason on all, then delete them. Uids guard
both.

All are marked before the first is deleted. After a crash, every marked pod was therefore a chosen victim. If one cannot
be marked, none is deleted. If the deletion of a victim is rejected, its mark is removed. Source: kube-scheduler's
PreemptPod, which marks and deletes one after another.
"""

import asyncio
from collections.abc import Awaitable, Callable, Sequence

import msgspec
import structlog

from mooring.kube.client import STRATEGIC_PATCH, Client
from mooring.kube.failures import Conflict, Denied, KubeError, NotFound, Throttled, Unknown
from mooring.kube.write import Write
from scheduler.cache.assigned_pod import PREEMPTED, AssignedPod
from scheduler.cycle.instructions import DeleteVictims, DeleteVictimsResult
from scheduler.server.reporting.writer import timestamp

_log = structlog.get_logger()
# Number of victims of an order that are deleted at once, so that a group's many victims delay no other write. Source:
# the Parallelizer's 16 (DefaultParallelism in framework/parallelize of kube-scheduler), with which prepareCandidate in
# framework/preemption deletes victims.
_AT_ONCE = 16
# The API server's response to a patch with another uid: the field is immutable.
_ANOTHER_UID = 422
# Part of the message of a 409 with the same meaning.
_NOT_MET = "Precondition failed"


def disruption(assigned_pod: AssignedPod, message: str, now: str, *, is_victim: bool = True) -> bytes:
    """Return the strategic merge patch of pods/status with the reason for the deletion; ``now`` is RFC 3339."""
    condition = {
        "type": "DisruptionTarget",
        "status": "True" if is_victim else "False",
        "reason": PREEMPTED,
        "message": message,
        "lastTransitionTime": now,
    }
    return msgspec.json.encode({"metadata": {"uid": assigned_pod.uid}, "status": {"conditions": [condition]}})


def deletion(assigned_pod: AssignedPod) -> bytes:
    """Return the delete options; the uid in them is a precondition."""
    return msgspec.json.encode(
        {"apiVersion": "v1", "kind": "DeleteOptions", "preconditions": {"uid": assigned_pod.uid}},
    )


async def delete_victims(client: Client, order: DeleteVictims, scheduler_name: str) -> DeleteVictimsResult:
    """Delete all victims, some at once; return which were deleted, once the API server has answered for each."""
    victims = _Victims(client, order, scheduler_name)
    marked_pods, reason = await victims.each(victims.mark, order.victims)
    if reason:
        await victims.each(victims.take_back, marked_pods)
        return DeleteVictimsResult((), reason)
    deleted_pods, reason = await victims.each(victims.delete, marked_pods)
    if reason:
        await victims.each(victims.take_back, [pod for pod in marked_pods if pod.uid in victims.refused])
    return DeleteVictimsResult(deleted_pods, reason)


class _Victims:
    """The writes to each victim of one order."""

    def __init__(self, client: Client, order: DeleteVictims, scheduler_name: str) -> None:
        self._client, self._order, self._name = client, order, scheduler_name
        self._turns = asyncio.Semaphore(_AT_ONCE)
        # The uids of victims whose last write was rejected.
        self.refused: set[str] = set()

    async def each(
        self, write: Callable[[AssignedPod], Awaitable[None]], victims: Sequence[AssignedPod]
    ) -> tuple[tuple[AssignedPod, ...], str]:
        """Write to each, some at once; return those that were accepted, and why the first of the others was not."""
        endings = await asyncio.gather(*(self._written(write, pod) for pod in victims))
        successes = tuple(pod for pod, reason in zip(victims, endings, strict=True) if reason == "")
        return successes, next((reason for reason in endings if reason), "")

    async def mark(self, assigned_pod: AssignedPod) -> None:
        message = f"{self._name}: preempting to accommodate a higher priority pod"
        await self._patch_status(assigned_pod, disruption(assigned_pod, message, timestamp()))

    async def take_back(self, assigned_pod: AssignedPod) -> None:
        message = f"{self._name}: the API server rejected the preemption"
        await self._patch_status(assigned_pod, disruption(assigned_pod, message, timestamp(), is_victim=False))
        _log.info("preemption of pod canceled", **self._fields(assigned_pod))

    async def delete(self, assigned_pod: AssignedPod) -> None:
        await Write(self._client, "DELETE", _path(assigned_pod), deletion(assigned_pod)).send()
        _log.warning("pod preempted", **self._fields(assigned_pod))

    async def _written(self, write: Callable[[AssignedPod], Awaitable[None]], assigned_pod: AssignedPod) -> str | None:
        """Return an empty text if the write was accepted, the reason if it was not, None if the pod no
        longer existed.
        """
        try:
            async with self._turns:
                await write(assigned_pod)
        except (Unknown, Throttled):
            raise
        except KubeError as failed:
            if _is_gone(failed):
                _log.info(
                    "pod to preempt is already gone or was recreated", **self._fields(assigned_pod), answer=str(failed)
                )
                return None
            _log.warning("pod not preempted", **self._fields(assigned_pod), answer=str(failed))
            self.refused.add(assigned_pod.uid)
            return str(failed)
        return ""

    async def _patch_status(self, assigned_pod: AssignedPod, body: bytes) -> None:
        await Write(self._client, "PATCH", f"{_path(assigned_pod)}/status", body, STRATEGIC_PATCH).send()

    def _fields(self, assigned_pod: AssignedPod) -> dict[str, str]:
        about = {"pod": assigned_pod.pod, "uid": assigned_pod.uid, "node": assigned_pod.node}
        return {**about, "for_pod": self._order.pod.key}


def _path(assigned_pod: AssignedPod) -> str:
    return "/api/v1/namespaces/{}/pods/{}".format(*assigned_pod.pod.split("/", 1))


def _is_gone(error: KubeError) -> bool:
    """Return whether the pod no longer exists. A conflict with another write does not prove that."""
    if isinstance(error, Denied):
        return False
    if isinstance(error, Conflict):
        return _NOT_MET in error.status.message
    return isinstance(error, NotFound) or error.status.code == _ANOTHER_UID

"""Evict a pod through policy/v1, or delete the victims of a preemption; uids guard all writes.

Victims first get the condition with the reason, all before the first is deleted. After a crash, every marked pod was
therefore a chosen victim. If one cannot be marked, none is deleted. If the deletion of a victim is rejected, its mark
is removed. Source: kube-scheduler's PreemptPod, which marks and deletes one after another.
"""

import asyncio
from collections.abc import Awaitable, Callable, Sequence

import msgspec
import structlog

from mooring.kube.client import STRATEGIC_PATCH, Client
from mooring.kube.failures import Conflict, Denied, KubeError, NotFound
from mooring.kube.write import PATIENCE_S, Write
from scheduler.cache.assigned_pod import PREEMPTED, AssignedPod
from scheduler.cycle.instructions import DeleteVictims, DeleteVictimsResult, Evict, EvictionResult
from scheduler.server.report_writer import timestamp
from scheduler.server.reports import condition, condition_patch, pod_path

_log = structlog.get_logger()
# Number of concurrent writes to the victims of an order, so that a group's many victims delay no other write. Source:
# the Parallelizer's 16 (DefaultParallelism in framework/parallelize of kube-scheduler), with which prepareCandidate in
# framework/preemption deletes victims.
_PARALLELISM = 16
# The API server's response to a patch with another uid: the field is immutable.
_ANOTHER_UID = 422
# Part of the message of a 409 with the same meaning.
_ANOTHER_UID_TEXT = "Precondition failed"


async def evict(client: Client, order: Evict) -> EvictionResult:
    """Send one request; disruption budgets and admission apply. The machine tries again if it is rejected or lost."""
    pod = order.pod.metadata
    eviction = {
        "apiVersion": "policy/v1",
        "kind": "Eviction",
        "metadata": {"name": pod.name, "namespace": pod.namespace},
        "deleteOptions": {"preconditions": {"uid": pod.uid}},
    }
    fields = {"pod": order.pod.key, "uid": pod.uid, "reason": order.reason}
    try:
        path = f"{pod_path(order.pod.key)}/eviction"
        await client.request("POST", path, msgspec.json.encode(eviction), patience_s=PATIENCE_S)
    except (NotFound, Conflict) as absence:
        _log.info("pod to evict is already gone", **fields, answer=str(absence))
        return "gone"
    except KubeError as error:
        _log.warning("pod not evicted", **fields, answer=str(error))
        return "refused"
    _log.warning("pod evicted", **fields)
    return "evicted"


async def delete_victims(client: Client, order: DeleteVictims, scheduler_name: str) -> DeleteVictimsResult:
    """Delete all victims; return which were deleted, once the API server has answered for each."""
    writes = _VictimWrites(client, order, scheduler_name)
    marked_pods, reason = await writes.run(writes.mark, order.victims)
    if reason:
        await writes.run(writes.unmark, marked_pods)
        return DeleteVictimsResult((), reason)
    deleted_pods, reason = await writes.run(writes.delete, marked_pods)
    if reason:
        await writes.run(writes.unmark, [pod for pod in marked_pods if pod.uid in writes.refused_uids])
    return DeleteVictimsResult(deleted_pods, reason)


class _VictimWrites:
    """The writes to the victims of one order; ``refused_uids`` are victims whose last write was rejected."""

    def __init__(self, client: Client, order: DeleteVictims, scheduler_name: str) -> None:
        self._client, self._order, self._name = client, order, scheduler_name
        self.refused_uids: set[str] = set()

    async def run(
        self, write: Callable[[AssignedPod], Awaitable[None]], victims: Sequence[AssignedPod]
    ) -> tuple[tuple[AssignedPod, ...], str]:
        """Write to all, some at once; return the victims whose write was accepted, and the first rejection's reason."""
        faults: list[str | None] = [None] * len(victims)
        queue = iter(enumerate(victims))

        async def write_some() -> None:
            for number, victim in queue:
                faults[number] = await self._fault(write, victim)

        # Not a task for each: thousands would all start in one iteration of the event loop.
        await asyncio.gather(*(write_some() for _ in range(_PARALLELISM)))
        successes = tuple(pod for pod, fault in zip(victims, faults, strict=True) if fault == "")
        return successes, next(filter(None, faults), "")

    async def mark(self, victim: AssignedPod) -> None:
        await self._write_condition(victim, "True", "preempting to accommodate a higher priority pod")

    async def unmark(self, victim: AssignedPod) -> None:
        await self._write_condition(victim, "False", "the API server rejected the preemption")
        _log.info("preemption of pod canceled", **self._fields(victim))

    async def delete(self, victim: AssignedPod) -> None:
        options = {"apiVersion": "v1", "kind": "DeleteOptions", "preconditions": {"uid": victim.uid}}
        await Write(self._client, "DELETE", pod_path(victim.pod), msgspec.json.encode(options)).send()
        _log.warning("pod preempted", **self._fields(victim))

    async def _fault(self, write: Callable[[AssignedPod], Awaitable[None]], victim: AssignedPod) -> str | None:
        """Return why the write was rejected; empty if it was accepted, None if the pod no longer exists."""
        try:
            await write(victim)
        except KubeError as error:
            fields = self._fields(victim) | {"answer": str(error)}
            if _is_gone(error):
                _log.info("pod to preempt is already gone or was recreated", **fields)
                return None
            _log.warning("pod not preempted", **fields)
            self.refused_uids.add(victim.uid)
            return str(error)
        return ""

    async def _write_condition(self, victim: AssignedPod, status: str, message: str) -> None:
        target = condition("DisruptionTarget", status, PREEMPTED, f"{self._name}: {message}", timestamp())
        patch = condition_patch({"uid": victim.uid}, target)
        await Write(self._client, "PATCH", f"{pod_path(victim.pod)}/status", patch, STRATEGIC_PATCH).send()

    def _fields(self, victim: AssignedPod) -> dict[str, str]:
        return {"pod": victim.pod, "uid": victim.uid, "node": victim.node, "for_pod": self._order.pod.key}


def _is_gone(error: KubeError) -> bool:
    """Return whether the pod no longer exists. A conflict with another write does not prove that."""
    if isinstance(error, Denied):
        return False
    if isinstance(error, Conflict):
        return _ANOTHER_UID_TEXT in error.status.message
    return isinstance(error, NotFound) or error.status.code == _ANOTHER_UID

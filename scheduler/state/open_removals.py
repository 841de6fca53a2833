"""Pods whose deletion or eviction is ordered and not shown yet: their groups have them no longer. Pure.

Between an order and the watch event that shows it, other preemptions are decided about. Without this two of them could
each take the one member that a group can spare.
"""

from collections.abc import Iterable

from scheduler.cache.assigned_pod import AssignedPod
from scheduler.cycle.instructions import DeleteVictims, DeleteVictimsResult, Evict, Instruction, Order, Result
from scheduler.kube.objects import Pod
from scheduler.pending.part import Part


class OpenRemovals(Part):
    """Keeps ``uids``, which others read."""

    def __init__(self, uids: set[str]) -> None:
        self._uids = uids

    def begin(self, instructions: Iterable[Instruction]) -> None:
        """Record which of these remove pods."""
        for instruction in instructions:
            self._uids.update(_uids_of(instruction))

    def finished(self, order: Order, result: Result, now: float) -> Iterable[Instruction]:
        """Forget those that stay because the API server has refused."""
        if isinstance(result, DeleteVictimsResult):
            self._uids -= _uids_of(order) - {assigned_pod.uid for assigned_pod in result.deleted}
        elif isinstance(order, Evict) and result != "evicted":
            self._uids -= _uids_of(order)
        return ()

    def pod_updated(self, pod: Pod, now: float) -> None:
        if pod.metadata.deletion_timestamp is not None:
            self._uids.discard(pod.metadata.uid)

    def pod_deleted(self, uid: str, assigned_pod: AssignedPod | None, now: float) -> None:
        self._uids.discard(uid)


def _uids_of(instruction: Instruction) -> set[str]:
    if isinstance(instruction, DeleteVictims):
        return {assigned_pod.uid for assigned_pod in instruction.victims}
    return {instruction.pod.metadata.uid} if isinstance(instruction, Evict) else set()

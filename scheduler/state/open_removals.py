"""Pods whose deletion or eviction is ordered and not received yet: they no longer count for their groups. Pure.

Between an order and the watch event that confirms it, other preemptions are decided. Without this, two of them could
each take the one member that a group can spare.
"""

from collections.abc import Iterable

from scheduler.cache.assigned_pod import AssignedPod
from scheduler.cycle.instructions import DeleteVictims, DeleteVictimsResult, Evict, Instruction, Order, Result
from scheduler.kube.objects import Pod
from scheduler.pending.part import Part


class OpenRemovals(Part):
    """Keeps ``uids``, which other parts read."""

    def __init__(self, uids: set[str]) -> None:
        self._uids = uids

    def note_begun(self, instructions: Iterable[Instruction]) -> None:
        """Record the instructions that remove pods."""
        for instruction in instructions:
            self._uids.update(_uids_of(instruction))

    def finished(self, order: Order, result: Result, now: float) -> Iterable[Instruction]:
        """Drop pods that stay because the API server has rejected their removal."""
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

"""Pods that their node did not keep: rejected by the kubelet, or with a VF that is lost there. Pure."""

from collections.abc import Iterable

from scheduler.cache.cache import Cache
from scheduler.cycle.instructions import Instruction
from scheduler.cycle.refusing_nodes import RefusingNodes
from scheduler.kube.objects import Pod
from scheduler.pending.part import Part
from scheduler.state.vfs.never_started import has_run
from scheduler.state.vfs.node_claims import NodeClaims


class RefusedPods(Part):
    """Records the node of each such pod when it ends. Pods that ended before this scheduler started are not
    recorded.
    """

    def __init__(self, cache: Cache, refusing_nodes: RefusingNodes) -> None:
        self._cache, self._refusing_nodes = cache, refusing_nodes

    def pod_updated(self, pod: Pod, now: float) -> None:
        assigned_pod = self._cache.assigned(pod.metadata.uid)
        if assigned_pod is None or not (pod.is_over or pod.metadata.deletion_timestamp is not None):
            return
        node, assignment = assigned_pod.node, assigned_pod.assignment
        # As `rejectPod` writes it; a pod that ran has the statuses of its containers.
        is_rejected = pod.status.phase == "Failed" and bool(pod.status.reason) and not has_run(pod)
        if is_rejected or (assignment is not None and NodeClaims(self._cache.node(node)).has_lost_vf(assignment)):
            self._refusing_nodes.note(pod, node, now)

    def tick(self, now: float) -> Iterable[Instruction]:
        self._refusing_nodes.forget(now)
        return ()

    def next_due(self) -> float | None:
        return self._refusing_nodes.next_end()

"""What follows when a pod is nominated, and when it is no longer: who may look for a place again. Pure."""

from scheduler.cycle.node_dry_run import assigned_pod_for
from scheduler.cycle.nominations import Nomination, Nominations
from scheduler.kube.pod_info import PodInfo
from scheduler.pending.event_hints import of_leaving
from scheduler.pending.pending_pod import PendingPod
from scheduler.queue import Queue


class Nominator:
    """Changes the nominations, and requeues the pods in the queue whom a change can help."""

    def __init__(self, nominations: Nominations, queue: Queue) -> None:
        self._nominations = nominations
        self._queue = queue

    def nominate(self, nomination: Nomination, now: float) -> None:
        """Keep room for a pod on a node; less important pods that waited for room there look for another place."""
        uid = nomination.assigned.uid
        if self._nominations.node_of(uid) != nomination.node:
            self.renounce(uid, now)
        self._nominations.put(nomination)
        for assigned in self._nominations.on(nomination.node):
            if assigned.priority < nomination.assigned.priority:
                self.reject(assigned.uid, now)

    def renounce(self, uid: str, now: float) -> None:
        """Keep no room for a pod any more, if any was kept; others may take it."""
        ended = self._nominations.end(uid)
        if ended is not None:
            self._queue.move_on_event(of_leaving(ended.assigned), now)

    def reject(self, uid: str, now: float) -> None:
        """Take a nomination away from a pod that waits on it: it looks for another place."""
        self.renounce(uid, now)
        self._queue.requeue(uid)

    def close(self, node: str, now: float) -> None:
        """Record that a node is gone."""
        for assigned in self._nominations.on(node):
            self.reject(assigned.uid, now)

    def adopt(self, pending: PendingPod, now: float) -> None:
        """Believe where a pod is said to be nominated, until it is decided about here: who leads knows better."""
        uid, node = pending.pod.metadata.uid, pending.pod.status.nominated_node_name or ""
        if pending.attempts or self._nominations.node_of(uid) == node:
            return
        self.renounce(uid, now)
        if node and isinstance(pending.pod_info, PodInfo):
            self.nominate(Nomination(assigned_pod_for(pending.pod_info, node)), now)

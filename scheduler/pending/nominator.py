"""What follows when a pod is nominated, and when it is no longer: who may look for a place again. Pure."""

from scheduler.cycle.node_dry_run import stand_for
from scheduler.cycle.nominations import Nomination, Nominations
from scheduler.kube.pod_info import Task
from scheduler.pending.event_hints import of_leaving
from scheduler.pending.pending_pod import Pending
from scheduler.queue import Queue


class Nominating:
    """Changes the nominations, and wakes the pods in the queue whom a change can help."""

    def __init__(self, nominations: Nominations, queue: Queue) -> None:
        self._nominations = nominations
        self._queue = queue

    def nominate(self, nomination: Nomination, now: float) -> None:
        """Keep room for a pod on a node; less important pods that waited for room there look for another place."""
        uid = nomination.seat.uid
        if self._nominations.node_of(uid) != nomination.node:
            self.renounce(uid, now)
        self._nominations.put(nomination)
        for seat in self._nominations.on(nomination.node):
            if seat.priority < nomination.seat.priority:
                self.reject(seat.uid, now)

    def renounce(self, uid: str, now: float) -> None:
        """Keep no room for a pod any more, if any was kept; others may take it."""
        ended = self._nominations.end(uid)
        if ended is not None:
            self._queue.wake(of_leaving(ended.seat), now)

    def reject(self, uid: str, now: float) -> None:
        """Take a nomination away from a pod that waits on it: it looks for another place."""
        self.renounce(uid, now)
        self._queue.rouse(uid)

    def close(self, node: str, now: float) -> None:
        """Take it that a node is gone."""
        for seat in self._nominations.on(node):
            self.reject(seat.uid, now)

    def adopt(self, pending: Pending, now: float) -> None:
        """Believe where a pod is said to be nominated, until it is decided about here: who leads knows better."""
        uid, node = pending.pod.metadata.uid, pending.pod.status.nominated_node_name or ""
        if pending.attempts or self._nominations.node_of(uid) == node:
            return
        self.renounce(uid, now)
        if node and isinstance(pending.task, Task):
            self.nominate(Nomination(stand_for(pending.task, node)), now)

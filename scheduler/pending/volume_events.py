"""The machine's part that is about volumes: what the watches tell of storage, whom it wakes, and who waits. Pure."""

from collections.abc import Iterable, Sequence

from mooring.kube.events import Change, Identity
from scheduler.cache.cache import Cluster
from scheduler.cache.volumes.volume_cache import Stored, Told
from scheduler.kube.pod_info import Refusal, Task
from scheduler.pending.claim_index import Asking
from scheduler.pending.volume_waits import Waiting
from scheduler.queue import Happening, Queue


class Storage:
    """Takes the watches' word; what may help a pod wakes it, what concerns one that waits for volumes is looked at."""

    def __init__(self, cluster: Cluster, queue: Queue) -> None:
        self._catalogue = cluster.storage
        self._queue = queue
        self._asking = Asking()
        self.waiting = Waiting(cluster.storage, cluster.node)

    def take(self, kind: type[Stored], event: Change[Stored], now: float) -> Sequence[tuple[Identity, str]]:
        """Take what a watch tells of one kind; return which objects are left out and why."""
        told = self._catalogue.take(kind, event)
        self._heed(told, now)
        return told.left_out

    def keep(self, kind: type[Stored], there: Iterable[Identity], now: float) -> None:
        """Take it that there are no objects of this kind but these."""
        self._heed(self._catalogue.keep(kind, there), now)

    def offer(self, uid: str, task: Task | Refusal) -> None:
        """Know what a pod in the queue asks for."""
        if isinstance(task, Task) and task.volumes:
            self._asking.put(uid, task.volumes)
        else:
            self._asking.drop(uid)

    def forget(self, uid: str, now: float) -> None:
        """Know of a pod no more: it is bound, or it is gone."""
        self._asking.drop(uid)
        if self.waiting.drop(uid) is not None:
            self.give_up(now)

    def give_up(self, now: float) -> None:
        """Take it that a plan comes to nothing: the volumes and nodes of its claims are to be chosen anew."""
        self._queue.wake(Happening.CLAIM | Happening.VOLUME, now)

    def _heed(self, told: Told, now: float) -> None:
        self.waiting.touch(told.claims)
        if told.helps & Happening.CLAIM:
            self._queue.wake_pods(self._asking.for_claims(told.claims), Happening.CLAIM, now)
        self._queue.wake(told.helps & ~Happening.CLAIM, now)

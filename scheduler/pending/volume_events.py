"""Watch events about storage: which pods they requeue, and which waiting volumes they concern. Pure."""

from collections.abc import Iterable

from mooring.kube.events import Change, Identity
from scheduler.cache.volumes.volume_cache import StorageChange, StorageObject, VolumeCache
from scheduler.kube.cluster_event import ClusterEvent
from scheduler.kube.outcomes import Refused
from scheduler.kube.pod_info import PodInfo
from scheduler.pending.volume_waits import UidIndex, VolumeWaits
from scheduler.queue.queue import Queue


class VolumeEvents:
    """Processes events of volumes and claims: requeues the pods that they may help, and checks those that wait for
    volumes.
    """

    def __init__(self, volume_cache: VolumeCache, queue: Queue, volume_waits: VolumeWaits) -> None:
        self._volume_cache = volume_cache
        self._queue = queue
        self._volume_waits = volume_waits
        self._uids_by_claim = UidIndex()

    def take(self, kind: type[StorageObject], event: Change[StorageObject], now: float) -> None:
        """Apply a watch event of one kind."""
        self._requeue(self._volume_cache.take(kind, event), now)

    def keep(self, kind: type[StorageObject], identities: Iterable[Identity], now: float) -> None:
        """Apply a list of all objects of one kind."""
        self._requeue(self._volume_cache.keep(kind, identities), now)

    def add(self, uid: str, pod_info: PodInfo | Refused) -> None:
        """Record which claims a pod in the queue uses."""
        if isinstance(pod_info, PodInfo) and pod_info.volumes:
            self._uids_by_claim.put(uid, (claim.key for claim in pod_info.volumes))
        else:
            self._uids_by_claim.drop(uid)

    def delete(self, uid: str, now: float) -> None:
        """Delete the data about a pod that is bound or deleted."""
        self._uids_by_claim.drop(uid)
        if self._volume_waits.drop(uid) is not None:
            self.give_up(now)

    def give_up(self, now: float) -> None:
        """Cancel a plan: the volumes and nodes of its claims must be chosen again."""
        self._queue.move_on_event(ClusterEvent.CLAIM | ClusterEvent.VOLUME, now)

    def _requeue(self, change: StorageChange, now: float) -> None:
        self._volume_waits.touch(change.claims)
        if change.helps & ClusterEvent.CLAIM:
            self._queue.move_pods_on_event(self._uids_by_claim.of(change.claims), ClusterEvent.CLAIM, now)
        self._queue.move_on_event(change.helps & ~ClusterEvent.CLAIM, now)

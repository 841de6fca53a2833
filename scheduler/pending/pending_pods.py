"""The pods of this scheduler without a node: those in the queue, and those with scheduling gates. Pure."""

from collections.abc import Iterable, Mapping
from typing import Literal

from scheduler.cache.cache import Cache
from scheduler.cache.groups.group_cache import GroupCache
from scheduler.cache.groups.group_members import Member
from scheduler.constraints.kinds import Kinds
from scheduler.cycle.decisions import Why
from scheduler.cycle.instructions import Instruction, Report
from scheduler.kube.group_membership import GroupMembership, membership_of_refused
from scheduler.kube.objects import Pod
from scheduler.kube.outcomes import Refused
from scheduler.kube.pod_info import PodInfo, read_pod_info
from scheduler.pending.event_hints import of_leaving
from scheduler.pending.groups.pending_groups import PendingGroups
from scheduler.pending.pending_pod import PendingPod, asks_the_same
from scheduler.pending.reservations import Reservations
from scheduler.pending.volume_events import VolumeEvents
from scheduler.queue.queue import Queue

# Far longer than kube-scheduler's messages; a user's text may be part of a message.
_LONGEST_MESSAGE = 4096
# States of group members that do not wait.
_ON_A_NODE = ("placed", "leaving", "succeeded", "failed")


class PendingPods:
    """Pods by uid; deleting a pod also deletes its place in the queue, its reserved room and its volumes."""

    def __init__(
        self,
        cache: Cache,
        queue: Queue,
        reservations: Reservations,
        volume_events: VolumeEvents,
        pending_groups: PendingGroups,
        group_cache: GroupCache,
        kinds: Kinds,
    ) -> None:
        self._cache = cache
        self._queue = queue
        self._reservations = reservations
        self._volume_events = volume_events
        self._pending_groups = pending_groups
        self._group_cache = group_cache
        self._kinds = kinds
        self.pending: dict[str, PendingPod] = {}
        self._gated_uids: set[str] = set()
        # Pods of other schedulers that have no node.
        self._foreign_uids: set[str] = set()
        # Pods that were never tried, and whose status shows another nominated node than they have.
        self.nominated_in_status: dict[str, None] = {}

    def __getitem__(self, uid: str) -> PendingPod:
        return self.pending[uid]

    def get(self, uid: str) -> PendingPod | None:
        return self.pending.get(uid)

    def uids(self) -> list[str]:
        return [*self.pending, *self._gated_uids, *self._foreign_uids]

    def add(self, pod: Pod, now: float) -> None:
        """Add a pod to the queue, or requeue it if its request has changed."""
        uid, pending = pod.metadata.uid, self.pending.get(pod.metadata.uid)
        self._gated_uids.discard(uid)
        if pending is None:
            pending = self.pending[uid] = PendingPod(pod, read_pod_info(pod, self._kinds), now)
            is_changed = True
        else:
            is_changed = pending.take(pod, self._kinds)
        self.nominated_in_status.pop(uid, None)
        if not pending.attempts and (pod.status.nominated_node_name or "") != self._reservations.node_of(uid):
            self.nominated_in_status[uid] = None
        if is_changed:
            self._enter(uid, pending, now)

    def _enter(self, uid: str, pending: PendingPod, now: float) -> None:
        """Put a pod where its current request belongs: in the queue, or in its group."""
        pod, membership = pending.pod, _membership(pending)
        self._volume_events.add(uid, pending.pod_info)
        if isinstance(pending.pod_info, Refused):
            # A pod that is rejected until its owner changes it reserves no room.
            self._reservations.delete(uid, now)
        reservation = self._reservations.of(uid)
        if reservation is not None and reservation.owner != (membership.key if membership is not None else uid):
            # Its room was reserved by another decision than the next one about it.
            self._reservations.delete(uid, now)
        if membership is not None:
            self._queue.delete(uid)
            self._pending_groups.put(uid, membership, Member("waiting", rank=_rank(pod)), now)
            return
        group = membership_of_refused(pod) if isinstance(pending.pod_info, Refused) else None
        if group is None:
            self._pending_groups.drop(uid, now)
        else:
            self._pending_groups.put(uid, group, Member("refused"), now)
        self._queue.add(uid, *_rank(pod), now)

    def has_changed(self, pod: Pod) -> bool:
        """Return whether a pod with a decision now has another request."""
        pending = self.pending.get(pod.metadata.uid)
        return pending is not None and not asks_the_same(pending.pod, pod)

    def renew(self, pod: Pod) -> None:
        """Update a pod whose Binding is in progress, or done and not received yet."""
        pending = self.pending.get(pod.metadata.uid)
        if pending is not None:
            pending.pod, pending.pod_info = pod, read_pod_info(pod, self._kinds)

    def gate(self, uid: str, now: float) -> None:
        """Let a pod wait until its gates are removed."""
        self.delete(uid, now)
        self._gated_uids.add(uid)

    def leave_to_others(self, uid: str, now: float) -> None:
        """Let a pod wait until another scheduler binds it."""
        self.delete(uid, now)
        self._foreign_uids.add(uid)

    def waits_for_others(self, uid: str) -> bool:
        return uid in self._foreign_uids

    def delete(self, uid: str, now: float) -> None:
        """Record that a pod no longer waits; room of a group stays, because a member may be made again."""
        self._reservations.end(uid, now)
        self.nominated_in_status.pop(uid, None)
        self.pending.pop(uid, None)
        membership = self._group_cache.of(uid)
        if membership is not None and self._group_cache.state(uid) not in _ON_A_NODE:
            self._pending_groups.drop(uid, now)
        if membership is not None and self._pending_groups.get(membership.key) is None:
            self._reservations.end(membership.key, now)
        self._gated_uids.discard(uid)
        self._foreign_uids.discard(uid)
        self._volume_events.delete(uid, now)
        self._queue.delete(uid)

    def forget_assumed(self, uid: str, now: float) -> None:
        """Release what is assumed for a pod."""
        self.forget_all_assumed([uid], now)

    def forget_all_assumed(self, uids: Iterable[str], now: float) -> None:
        """Release what is assumed for pods; members of groups wait again."""
        pods = [assigned_pod for uid in uids if (assigned_pod := self._cache.forget(uid, now)) is not None]
        for assigned_pod in pods:
            self._queue.move_on_event(of_leaving(assigned_pod), now)
        uids = [assigned_pod.uid for assigned_pod in pods if self._group_cache.of(assigned_pod.uid) is not None]
        if uids:
            ranks = {uid: _rank(self.pending[uid].pod) for uid in uids if uid in self.pending}
            self._pending_groups.release(uids, ranks, now)
        for assigned_pod in pods:
            pending = self.pending.get(assigned_pod.uid)
            if pending is not None and _membership(pending) != self._group_cache.of(assigned_pod.uid):
                # It has changed since it was scheduled.
                self._enter(assigned_pod.uid, pending, now)

    def give_up_volumes(self, now: float) -> None:
        """Release the volumes that were chosen for pods that no longer have a decision."""
        self._volume_events.give_up(now)

    def report_unschedulable(
        self,
        pending: PendingPod,
        reason: Literal["Unschedulable", "InvalidRequest"],
        message: str,
        reason_counts: Why | None = None,
    ) -> list[Instruction]:
        """Report to a pod's owner, unless the last report was the same."""
        message = message[:_LONGEST_MESSAGE]
        node, shown_node = self._reservations.node_of(pending.pod.metadata.uid), pending.shown_node
        if pending.knows(message, node):
            return []
        pending.reported_message, pending.reported_node = message, node
        return [Report(pending.pod, reason, message, reason_counts or {"v": 1}, node if node or shown_node else None)]

    def waited(self, uid: str) -> tuple[float, int]:
        """Return since when a pending pod has been in the queue, and how often it was tried."""
        pending = self.pending[uid]
        return pending.since, pending.attempts

    def depths(self) -> Mapping[str, int]:
        """Count the waiting pods by place; gated ones wait until their gates are removed."""
        return self._queue.depths() | {"gated": len(self._gated_uids)}

    def check(self) -> None:
        """Raise AssertionError if the queue has pods that are not here, or a reservation outlives its owner."""
        for one in self._reservations.all():
            key = one.group
            if one.cause == "spare":
                continue
            waits = one.owner in self.pending if key is None else self._pending_groups.get(key) is not None
            assert waits, f"room is reserved for {one.owner}, which does not wait"
        uids = {uid for uid in self.pending if self._group_cache.state(uid) in (None, "refused")}
        # A member with a Binding in progress has no place in the queue.
        entries = uids | self._pending_groups.entries()
        assert set(self._queue.uids()) == entries, "the queue and the pending pods differ"


def _membership(pending: PendingPod) -> GroupMembership | None:
    return pending.pod_info.membership if isinstance(pending.pod_info, PodInfo) else None


def _rank(pod: Pod) -> tuple[int, str]:
    """Return the sort key of pods: the priority, and the RFC 3339 time of creation."""
    return pod.spec.priority or 0, pod.metadata.creation_timestamp or ""

"""The pods of this scheduler without a node: those in the queue, in groups, and with scheduling gates. Pure."""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Literal

import msgspec

from mooring import names
from scheduler.cache.cache import Cache
from scheduler.cache.groups.group_cache import GroupCache
from scheduler.constraints.kinds import Kinds, asked_kinds
from scheduler.cycle.decisions import Unschedulable, Why
from scheduler.cycle.instructions import Instruction, Report
from scheduler.kube.group import GroupMembership
from scheduler.kube.objects import Pod
from scheduler.kube.outcomes import Refused
from scheduler.kube.pod_info import PodInfo, read_pod_info
from scheduler.pending.event_hints import of_departure
from scheduler.pending.groups.pending_groups import PendingGroups
from scheduler.pending.reservations import Reservations
from scheduler.pending.volume_waits import VolumeWaits
from scheduler.queue.queue import Queue

# The annotations with a pod's request; of all others only the size matters.
_DECISION_KEYS = (names.REQUEST, names.RIT_REQUEST, names.PLACEMENT, names.ASSIGNMENT, names.GROUP, names.RUNS)
# Far longer than kube-scheduler's messages; a user's text may be part of a message.
_LONGEST_MESSAGE = 4096
# States of group members that do not wait.
_ON_A_NODE = ("placed", "leaving", "succeeded", "failed")


@dataclass(slots=True)
class PendingPod:
    """A pending pod: since when it waits, how often it was tried, and the last message reported to its owner.

    ``is_oversized``: its annotations are too large, and any change of them may help. ``answer`` is why it was
    unschedulable, and for which state of the nodes (`NodeColumns.renewals`) that holds.
    """

    pod: Pod
    pod_info: PodInfo | Refused
    since: float
    reported_message: str = ""
    # The nominated node in the last report; None before the first report.
    reported_node: str | None = None
    attempts: int = 0
    is_oversized: bool = False
    answer: tuple[int, Unschedulable] | None = None

    def take(self, pod: Pod, kinds: Kinds) -> bool:
        """Store the pod's current object; return whether its request changed, and not only its status."""
        is_changed = not _is_same_request(self.pod, pod) or (
            self.is_oversized and self.pod.annotations != pod.annotations
        )
        self.pod = pod
        if is_changed:
            self.pod_info = read_pod_info(pod, kinds)
        elif isinstance(self.pod_info, PodInfo):
            # The annotations of a Binding must fit in addition to those that the pod has by then.
            self.pod_info = msgspec.structs.replace(self.pod_info, pod=pod)
        return is_changed

    @property
    def membership(self) -> GroupMembership | None:
        return self.pod_info.membership if isinstance(self.pod_info, PodInfo) else None

    @property
    def condition_message(self) -> str:
        """Why the pod is not scheduled, as its status says."""
        condition = self.pod.condition("PodScheduled")
        return condition.message or "" if condition is not None and condition.status == "False" else ""


def _is_same_request(old: Pod, new: Pod) -> bool:
    """Return whether nothing of a pod has changed that decisions read."""
    return (
        all(old.annotations.get(key) == new.annotations.get(key) for key in _DECISION_KEYS)
        and asked_kinds(old.annotations) == asked_kinds(new.annotations)
        and old.metadata.owner_references == new.metadata.owner_references
        and old.spec == new.spec
        and old.metadata.labels == new.metadata.labels
    )


@dataclass(slots=True)
class PendingPods:
    """Pods by uid; deleting a pod also deletes its place in the queue, its reserved room and its volumes."""

    cache: Cache
    queue: Queue
    reservations: Reservations
    volume_waits: VolumeWaits
    pending_groups: PendingGroups
    group_cache: GroupCache
    kinds: Kinds
    pending: dict[str, PendingPod] = field(default_factory=dict)
    # Pods with scheduling gates, and pods of other schedulers that have no node.
    _idle_pods: dict[str, Literal["gated", "foreign"]] = field(default_factory=dict)
    # Pods that were never tried, and whose status shows another nominated node than they have.
    nominated_in_status: dict[str, None] = field(default_factory=dict)

    def __getitem__(self, uid: str) -> PendingPod:
        return self.pending[uid]

    def get(self, uid: str) -> PendingPod | None:
        return self.pending.get(uid)

    def uids(self) -> list[str]:
        return [*self.pending, *self._idle_pods]

    def put(self, pod: Pod, now: float) -> PendingPod | None:
        """Record a pod that waits; return it if it is new or its request has changed, so that it is queued."""
        uid, pending = pod.metadata.uid, self.pending.get(pod.metadata.uid)
        self._idle_pods.pop(uid, None)
        if pending is None:
            pending = self.pending[uid] = PendingPod(pod, read_pod_info(pod, self.kinds), now)
            is_changed = True
        else:
            is_changed = pending.take(pod, self.kinds)
        self.nominated_in_status.pop(uid, None)
        if not pending.attempts and (pod.status.nominated_node_name or "") != self.reservations.node_of(uid):
            self.nominated_in_status[uid] = None
        if is_changed:
            self._renew_claims(uid, pending.pod_info, now)
        return pending if is_changed else None

    def _renew_claims(self, uid: str, pod_info: PodInfo | Refused, now: float) -> None:
        """Record which volumes a new request uses; a room that another decision has reserved is released."""
        self.volume_waits.add_to_queue(uid, pod_info)
        reservation, owner = self.reservations.of(uid), None if isinstance(pod_info, Refused) else pod_info.owner
        if reservation is not None and reservation.owner != owner:
            self.reservations.delete(uid, now)

    def has_changed(self, pod: Pod) -> bool:
        """Return whether a pod with a decision now has another request."""
        pending = self.pending.get(pod.metadata.uid)
        return pending is not None and not _is_same_request(pending.pod, pod)

    def renew(self, pod: Pod) -> None:
        """Update a pod whose Binding is in progress, or done and not received yet."""
        pending = self.pending.get(pod.metadata.uid)
        if pending is not None:
            pending.pod, pending.pod_info = pod, read_pod_info(pod, self.kinds)

    def put_off(self, uid: str, cause: Literal["gated", "foreign"], now: float) -> None:
        """Let a pod wait until its gates are removed, or until another scheduler binds it."""
        self.delete(uid, now)
        self._idle_pods[uid] = cause

    def is_foreign(self, uid: str) -> bool:
        return self._idle_pods.get(uid) == "foreign"

    def delete(self, uid: str, now: float) -> None:
        """Record that a pod no longer waits; room of a group stays, because a member may be made again."""
        self.reservations.end(uid, now)
        self.nominated_in_status.pop(uid, None)
        self.pending.pop(uid, None)
        membership = self.group_cache.of(uid)
        if membership is not None and self.group_cache.state(uid) not in _ON_A_NODE:
            self.pending_groups.drop(uid, now)
        if membership is not None and self.pending_groups.get(membership.key) is None:
            self.reservations.end(membership.key, now)
        self._idle_pods.pop(uid, None)
        self.volume_waits.delete(uid, now)
        self.queue.delete(uid)

    def release(self, uids: Iterable[str], now: float) -> None:
        """Release what is assumed for pods; members of groups wait again."""
        pods = [assigned_pod for uid in uids if (assigned_pod := self.cache.forget(uid, now)) is not None]
        for assigned_pod in pods:
            self.queue.move_on_event(of_departure(assigned_pod), now)
        ranks = {pod.uid: self.pending[pod.uid].pod.rank if pod.uid in self.pending else None for pod in pods}
        self.pending_groups.release(ranks, now)
        for assigned_pod in pods:
            pending = self.pending.get(assigned_pod.uid)
            if pending is not None and pending.membership != self.group_cache.of(assigned_pod.uid):
                # It has changed since it was scheduled.
                self._renew_claims(assigned_pod.uid, pending.pod_info, now)
                self.pending_groups.take_waiting_pod(pending.pod, pending.pod_info, now)

    def report_unschedulable(
        self,
        pending: PendingPod,
        reason: Literal["Unschedulable", "InvalidRequest"],
        message: str,
        why: Why | None = None,
    ) -> list[Instruction]:
        """Report to a pod's owner, unless the last report was the same, by this process or in the pod's status."""
        message, node = message[:_LONGEST_MESSAGE], self.reservations.node_of(pending.pod.metadata.uid)
        shown_node = pending.reported_node
        if shown_node is None:
            shown_node = pending.pod.status.nominated_node_name or ""
        if (message, node) == (pending.reported_message or pending.condition_message, shown_node):
            return []
        pending.reported_message, pending.reported_node = message, node
        return [Report(pending.pod, reason, message, why or {"v": 1}, node if node or shown_node else None)]

    def depths(self) -> Mapping[str, int]:
        """Count the waiting pods by place; gated ones wait until their gates are removed."""
        return self.queue.depths() | {"gated": sum(cause == "gated" for cause in self._idle_pods.values())}

    def check(self) -> None:
        """Raise AssertionError if the queue has pods that are not here, or a reservation outlives its owner."""
        for reservation in self.reservations.all():
            owner, key = reservation.owner, reservation.group
            is_waiting = owner in self.pending if key is None else self.pending_groups.get(key) is not None
            assert is_waiting or reservation.cause == "spare", f"room is reserved for {owner}, which does not wait"
        uids = {uid for uid in self.pending if self.group_cache.state(uid) in (None, "refused")}
        # A member with a Binding in progress has no place in the queue.
        entries = uids | self.pending_groups.entries()
        assert set(self.queue.uids()) == entries, "the queue and the pending pods differ"

"""Keep the nominations of the previous leader until this leader has scheduled their pods. Pure.

Method: before the next decision, pods whose status names a node are nominated there; all such members of a group
together. No other pod of the same or a lower priority then takes the room for which pods were already preempted, or
which is reserved for a group. The reservation includes exact VFs, also those of pods that are leaving.

Correctness: this is done only for pods that are in the queue and were never tried here, so a decision about them
follows soon, and replaces or deletes these nominations. If only some members of a group have a node in their status,
room is reserved for these: that of the others was not written yet, or there was none. A group that is rejected reserves
none, and one that is incomplete only for a while (`scheduler.state.nomination_waits`).

Cost: a dry run for each such pod, on its node alone, in portions.
"""

from collections import deque
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from itertools import islice

from mooring.annotations.group import MOST_MEMBERS
from scheduler.cache.assigned_pod import AssignedPod
from scheduler.cycle.groups.rails import on_rails
from scheduler.cycle.node_dry_run import DryRuns
from scheduler.cycle.reservations import Reservation, reserve
from scheduler.kube.group_membership import GroupKey
from scheduler.kube.pod_info import PodInfo
from scheduler.pending.groups.promises import read_promise
from scheduler.pending.pending_pod import PendingPod
from scheduler.placement.steps import Steps
from scheduler.state.shared_state import SharedState

# Number of pods that are processed in one step, about 0.2 ms each; moving this many other pods on its node takes as
# long.
_PORTION, _MOVES_PER_POD = 64, 8


@dataclass(slots=True)
class _Lot:
    """A pod without a group, or the waiting members of a group: those not yet processed, and what others reserve."""

    key: GroupKey | None
    pods: Sequence[PendingPod]
    rest: deque[PendingPod]
    assigned_pods: dict[str, list[AssignedPod]] = field(default_factory=dict)


@dataclass(slots=True)
class NominationTakeover:
    """Processes the pods that `PendingPods` has recorded."""

    state: SharedState
    _lot: _Lot | None = None

    @property
    def is_under_way(self) -> bool:
        """Return whether pods are being processed that need another step."""
        return self._lot is not None

    def proceed(self, now: float) -> bool:
        """Take over some nominations; return whether that was a step by itself, after which others may remain."""
        lot = self._lot
        # A pod that fails because of a bug is not processed again.
        self._lot = None
        if lot is None or not self._is_decided_soon(lot):
            lot = self._next()
        if lot is None:
            return False
        nominated_pods, pod_count = self._nominated_pods(lot), 0
        while lot.rest and pod_count < _PORTION:
            pod_count += 1 + self._look_at(lot, lot.rest.popleft(), nominated_pods) // _MOVES_PER_POD
        if lot.rest or (pod_count and len(lot.pods) > _PORTION):
            # Nominating many pods is a step by itself.
            self._lot = lot
        else:
            self._nominate(lot, now)
        return True

    def _next(self) -> _Lot | None:
        nominated_uids = self.state.pending_pods.nominated_in_status
        while nominated_uids:
            first = self.state.pending_pods[next(iter(nominated_uids))]
            key = _key_of(first)
            pods = [first] if key is None else self._members(key)
            for pending in (first, *pods):
                nominated_uids.pop(pending.pod.metadata.uid, None)
            lot = _Lot(key, pods, deque(pods))
            if pods and self._is_decided_soon(lot):
                return lot
        return None

    def _members(self, key: GroupKey) -> list[PendingPod]:
        uids = self.state.pending_groups.members(key).of("waiting")
        return [self.state.pending_pods[uid] for uid in islice(uids, MOST_MEMBERS)]

    def _is_decided_soon(self, lot: _Lot) -> bool:
        groups = self.state.pending_groups
        if lot.key is not None and (not groups.waits(lot.key) or groups.is_rejected(lot.key)):
            return False
        return not any(pending.attempts for pending in lot.rest)

    def _nominated_pods(self, lot: _Lot) -> Mapping[str, list[AssignedPod]]:
        """Return by node the nominated pods that are not being processed."""
        uids, pods_by_node = {pending.pod.metadata.uid for pending in lot.pods}, dict[str, list[AssignedPod]]()
        for uid in self.state.reservations:
            if uid not in uids and (room := self.state.reservations.room_of(uid)) is not None:
                pods_by_node.setdefault(room.node, []).append(room)
        return pods_by_node

    def _look_at(self, lot: _Lot, pending: PendingPod, nominated_pods: Mapping[str, list[AssignedPod]]) -> int:
        """Find what a pod reserves on its node, with the VFs that it gets when the leaving pods are gone.

        Return how many pods were moved for that.
        """
        pod_info, node = pending.pod_info, pending.pod.status.nominated_node_name or ""
        row = self.state.cache.nodes.row_of.get(node)
        if row is None or not isinstance(pod_info, PodInfo):
            return 0
        priority = pod_info.priority
        if lot.key is not None:
            # It is reserved against all pods that the group precedes, whatever its members' own priorities.
            group, priority = self.state.pending_groups.group(lot.key), self.state.pending_groups.priority(lot.key)
            (pod_info,) = on_rails([pod_info], group, ()) if group.rails == "index" else (pod_info,)
        lot_pods, node_pods = lot.assigned_pods.setdefault(node, []), self.state.cache.assigned_pods_on(node)
        rivals = [
            assigned_pod
            for assigned_pod in (*nominated_pods.get(node, ()), *lot_pods)
            if assigned_pod.priority >= priority
        ]
        leaving_pods = [
            assigned_pod
            for assigned_pod in node_pods
            if assigned_pod.affinity_info is not None and assigned_pod.affinity_info.terminating
        ]
        with DryRuns(pod_info, self.state.cache, Steps(), reserves_only=True).on(
            row, rivals, off=leaving_pods
        ) as dry_run:
            lot_pods.append(replace(dry_run.assigned(), priority=priority))
        return len(rivals) + len(leaving_pods)

    def _nominate(self, lot: _Lot, now: float) -> None:
        """Nominate the processed pods that still wait; delete the nomination of a pod that no longer has a node."""
        pending_pods = self.state.pending_pods.pending
        lot_pods = [assigned_pod for pods in lot.assigned_pods.values() for assigned_pod in pods]
        nominated_pods = [
            assigned_pod
            for assigned_pod in lot_pods
            if assigned_pod.uid in pending_pods and _key_of(pending_pods[assigned_pod.uid]) == lot.key
        ]
        if lot.key is not None and nominated_pods:
            self.state.reservations.put(self._of_group(lot, lot.key, nominated_pods), now)
        elif lot.key is not None:
            self.state.reservations.end(lot.key, now)
        else:
            uids = {assigned_pod.uid for assigned_pod in nominated_pods}
            for uid in {pending.pod.metadata.uid for pending in lot.pods} - uids:
                self.state.reservations.delete(uid, now)
            for assigned_pod in nominated_pods:
                self.state.reservations.put(reserve(assigned_pod.uid, [assigned_pod]), now)

    def _of_group(self, lot: _Lot, key: GroupKey, nominated_pods: Sequence[AssignedPod]) -> Reservation:
        """Reserve the room of a group, from its promised start on if the last leader has written one."""
        offset_s = self.state.run_times.unix_offset_s
        promise = next(filter(None, (read_promise(pending.condition_message, offset_s) for pending in lot.pods)), None)
        if promise is None:
            return reserve(key, nominated_pods)
        run_times = [assigned_pod.runs_s for assigned_pod in nominated_pods]
        ends = [promise.at + runs_s for runs_s in run_times if runs_s is not None]
        until = max(ends) if len(ends) == len(run_times) else None
        return replace(reserve(key, nominated_pods, "backfill"), since=promise.at, until=until)


def _key_of(pending: PendingPod) -> GroupKey | None:
    membership = pending.pod_info.membership if isinstance(pending.pod_info, PodInfo) else None
    return membership.key if membership is not None else None

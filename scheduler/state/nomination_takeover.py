"""What the last leader kept for nominated pods: a new one keeps it until it has decided about them. Pure.

What it is: before the next decision, pods that wait on a node by their status are nominated there; all such members of
a group together. So no other pod of the same or a lower priority takes the room for which pods were sent away already,
or on which a group has first call. What is kept are exact VFs too, also those of pods that are leaving.

Why it is right: it is done only for pods that are in the queue and were never tried here, so that a decision about them
comes soon, and replaces these nominations or ends them. If only some members of a group have a node in their status,
the room of these is kept: that of the others was not written yet, or there was none. A group that is not decided about,
since it is incomplete or refused, keeps none.

What it costs: a dry run for each such pod, on its node alone, in portions.
"""

from collections import deque
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from itertools import islice, takewhile

from mooring.annotations.group import MOST_MEMBERS
from scheduler.cache.cache import AssignedPod
from scheduler.cycle.groups.rails import on_rails
from scheduler.cycle.node_dry_run import DryRuns
from scheduler.cycle.nominations import Nomination
from scheduler.kube.group_membership import GroupKey
from scheduler.kube.pod_info import PodInfo
from scheduler.pending.pending_pod import PendingPod
from scheduler.placement.steps import Steps
from scheduler.state.shared_state import SharedState

# Pods that are looked at in one step: some 0.2 ms each; so many others that are moved on its node take as long.
_PORTION, _MOVED_AS_LONG = 64, 8


@dataclass(slots=True)
class _Lot:
    """Pods on their own, or the waiting members of a group; those that are left, and what the others count for."""

    key: GroupKey | None
    pods: Sequence[PendingPod]
    left: deque[PendingPod]
    found: dict[str, list[AssignedPod]] = field(default_factory=dict)


@dataclass(slots=True)
class NominationTakeover:
    """The pods that are still to be looked at are noted by `PendingPods`."""

    state: SharedState
    _lot: _Lot | None = None

    @property
    def is_under_way(self) -> bool:
        """Return whether pods are looked at that take another step."""
        return self._lot is not None

    def proceed(self, now: float) -> bool:
        """Take over some nominations; return whether that was a step by itself, after which others may be left."""
        lot = self._lot
        # One that fails by a bug is not looked at again.
        self._lot = None
        if lot is None or not self._is_decided_soon(lot):
            lot = self._next()
        if lot is None:
            return False
        others, spent = self._others(lot), 0
        while lot.left and spent < _PORTION:
            spent += 1 + self._look_at(lot, lot.left.popleft(), others) // _MOVED_AS_LONG
        if lot.left or (spent and len(lot.pods) > _PORTION):
            # To nominate many takes a step by itself.
            self._lot = lot
        else:
            self._nominate(lot, now)
        return True

    def _next(self) -> _Lot | None:
        """Return the next pods that are to be looked at, and that were never tried here."""
        noted = self.state.pending_pods.nominated_in_status
        while noted:
            first = self.state.pending_pods[next(iter(noted))]
            key = _key_of(first)
            pods = self._alone() if key is None else self._members(key)
            for one in (first, *pods):
                noted.pop(one.pod.metadata.uid, None)
            lot = _Lot(key, pods, deque(pods))
            if pods and self._is_decided_soon(lot):
                return lot
        return None

    def _alone(self) -> list[PendingPod]:
        noted = (self.state.pending_pods[uid] for uid in islice(self.state.pending_pods.nominated_in_status, _PORTION))
        return list(takewhile(lambda one: _key_of(one) is None, noted))

    def _members(self, key: GroupKey) -> list[PendingPod]:
        waiting = self.state.pending_groups.members(key).of("waiting")
        return [self.state.pending_pods[uid] for uid in islice(waiting, MOST_MEMBERS)]

    def _is_decided_soon(self, lot: _Lot) -> bool:
        if lot.key is not None and not self.state.pending_groups.is_queued(lot.key):
            return False
        return not any(one.attempts for one in lot.left)

    def _others(self, lot: _Lot) -> Mapping[str, list[AssignedPod]]:
        """Return by node the nominated pods that are not looked at."""
        uids, found = {one.pod.metadata.uid for one in lot.pods}, dict[str, list[AssignedPod]]()
        for uid in self.state.nominator:
            if uid not in uids and (nomination := self.state.nominator.of(uid)) is not None:
                found.setdefault(nomination.node, []).append(nomination.assigned)
        return found

    def _look_at(self, lot: _Lot, pending: PendingPod, others: Mapping[str, list[AssignedPod]]) -> int:
        """Find what a pod counts for on its node, with the VFs that it gets when those that leave are gone.

        Return how many pods were moved for that.
        """
        pod_info, node = pending.pod_info, pending.pod.status.nominated_node_name or ""
        row = self.state.cache.nodes.row_of.get(node)
        if row is None or not isinstance(pod_info, PodInfo):
            return 0
        priority = pod_info.priority
        if lot.key is not None:
            # It is kept from all that the group comes before, whatever its members' own priorities.
            group, priority = self.state.pending_groups.group(lot.key), self.state.pending_groups.priority(lot.key)
            (pod_info,) = on_rails([pod_info], group, ()) if group.rails == "index" else (pod_info,)
        there, here = lot.found.setdefault(node, []), self.state.cache.assigned_pods_on(node)
        beside = [one for one in (*others.get(node, ()), *there) if one.priority >= priority]
        leaving = [one for one in here if one.affinity_info is not None and one.affinity_info.terminating]
        with DryRuns(pod_info, self.state.cache, Steps(), reserves_only=True).on(row, beside, off=leaving) as dry_run:
            there.append(replace(dry_run.assigned(), priority=priority))
        return len(beside) + len(leaving)

    def _nominate(self, lot: _Lot, now: float) -> None:
        """Nominate those that were looked at and still wait; end what was kept for one that has no node any more."""
        waiting = self.state.pending_pods.pending
        found = [one for there in lot.found.values() for one in there]
        kept = [one for one in found if one.uid in waiting and _key_of(waiting[one.uid]) == lot.key]
        if lot.key is None:
            uids = {one.uid for one in kept}
            for one in lot.pods:
                if one.pod.metadata.uid not in uids:
                    self.state.nominator.delete(one.pod.metadata.uid, now)
        elif not kept:
            self.state.nominator.delete_group(lot.key, now)
        self.state.nominator.nominate_all([Nomination(one, group=lot.key) for one in kept], now)


def _key_of(pending: PendingPod) -> GroupKey | None:
    membership = pending.pod_info.membership if isinstance(pending.pod_info, PodInfo) else None
    return membership.key if membership is not None else None

"""Evict members of groups that are disrupted as a whole if a crash interrupted the preemption of the group. Pure.

A preemption marks all victims with the condition DisruptionTarget before it deletes the first one. A member that has
this scheduler's mark and is not being deleted was therefore a chosen victim whose deletion was not carried out. It is
evicted after a waiting time if it is certain that other members were deleted: some are being deleted with the same
mark, or fewer than the group needs are placed. If any member with a node has no mark, none is evicted: either the
marking was incomplete, or the group is alive again. Members that are placed later have no mark, and are never evicted
here.

A mark on a live group stays until kube-controller-manager removes it after two minutes, if the pod is not being deleted
(stalePodDisruptionTimeout in its pkg/controller/disruption/disruption.go). A mark is therefore young when it is first
received, and a leader must receive it within its first minute to act on it.

Source of the condition: PreemptPod of kube-scheduler.
"""

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from math import inf
from typing import Literal

from scheduler.cache.assigned_pod import mark_of, pod_reference
from scheduler.cache.cache import Cache
from scheduler.cache.groups.placed_groups import PlacedGroups
from scheduler.cycle.instructions import Evict, Instruction, Order, Result
from scheduler.kube.group_membership import GroupKey, membership_if_readable
from scheduler.kube.objects import Pod
from scheduler.pending.part import Part

# Seconds for which the deletions of an order may be in progress.
PATIENCE_S = 60.0
_CHECK_S = 5.0
# Seconds; a mark first received earlier does not belong to an order that a crash has just interrupted.
_OLDEST_S = 600.0
# Maximum number of evictions in one check, and of remembered members.
_AT_ONCE = 64
_MAX_MEMBERS = 8192


@dataclass(slots=True)
class _MarkedMember:
    """When a mark was first received, and when to act on it; ``is_evident``: other members were being deleted then.

    ``stage``: a standby received it, a leader waits until it is due, the member is being deleted, or it stays because
    its order was not carried out. Later events about a member that stays are ignored.
    """

    seen_at: float
    # The text as the API server has it: another text is another mark.
    transition: str
    stage: Literal["seen", "waiting", "deleting", "staying"] = "seen"
    due: float = inf
    is_evident: bool = False


class MarkedMembers(Part):
    """The members of groups with the mark of ``scheduler_name``; time counts from the first check of a leader."""

    def __init__(self, scheduler_name: str, cache: Cache, groups: PlacedGroups) -> None:
        self._scheduler_name, self._cache, self._groups = scheduler_name, cache, groups
        # By uid.
        self._members: dict[str, _MarkedMember] = {}
        self._has_undecided = False
        self._next_check = 0.0

    def __len__(self) -> int:
        return len(self._members)

    def pod_updated(self, pod: Pod, now: float) -> None:
        uid = pod.metadata.uid
        mark = mark_of(pod, self._scheduler_name) if pod.spec.node_name else None
        if mark is not None and membership_if_readable(pod) is None:
            mark = None
        member = self._members.get(uid)
        if mark is None:
            if member is not None and member.stage in ("seen", "waiting"):
                del self._members[uid]
            return
        transition = mark.last_transition_time or ""
        if member is None:
            member = self._members[uid] = _MarkedMember(now, transition)
            self._has_undecided = True
        if pod.metadata.deletion_timestamp is not None:
            member.stage = "deleting"
        elif member.transition != transition:
            member.seen_at, member.transition = now, transition
        if len(self) > _MAX_MEMBERS:
            self._drop_deleted_pods()

    def tick(self, now: float) -> Iterator[Evict]:
        """Yield the evictions of members that are due."""
        if not self._has_undecided or now < self._next_check:
            return
        self._next_check = now + _CHECK_S
        self._look(now)
        self._has_undecided = any(member.stage in ("seen", "waiting") for member in self._members.values())
        cut_short = dict[GroupKey, bool]()
        due = [uid for uid, member in self._members.items() if member.stage == "waiting" and member.due <= now]
        for uid in due[:_AT_ONCE]:
            membership, assigned_pod = self._groups.groups_by_pod.of(uid), self._cache.assigned(uid)
            if membership is None or assigned_pod is None:
                del self._members[uid]
                continue
            key = membership.key
            if key not in cut_short:
                cut_short[key] = self._is_cut_short(key)
            if not cut_short[key]:
                self._members[uid].stage = "staying"
                continue
            # Wait until its result is known.
            self._members[uid].due = inf
            reason = f"group {key.name}: it may only be disrupted as a whole, and its preemption was interrupted"
            yield Evict(pod_reference(assigned_pod), reason, "Preempted")

    def finished(self, order: Order, result: Result, now: float) -> Iterable[Instruction]:
        """Schedule another attempt for an eviction that the API server rejected."""
        if isinstance(order, Evict) and result == "refused" and order.pod.metadata.uid in self._members:
            self._members[order.pod.metadata.uid].due = now + PATIENCE_S
        return ()

    def next_due(self) -> float | None:
        return self._next_check if self._has_undecided else None

    def _look(self, now: float) -> None:
        """Start the waiting time of new members, and record the groups whose other members are being deleted now."""
        self._drop_deleted_pods()
        memberships = {uid: self._groups.groups_by_pod.of(uid) for uid in self._members}
        deleted_from = {memberships[uid] for uid, member in self._members.items() if member.stage == "deleting"}
        keys = {membership.key for membership in deleted_from if membership is not None}
        for uid, member in self._members.items():
            if member.stage == "seen" and now - member.seen_at > _OLDEST_S:
                # A standby may have received it long before it became the leader.
                member.stage = "staying"
            elif member.stage == "seen":
                member.stage, member.due = "waiting", now + PATIENCE_S
            membership = memberships[uid]
            member.is_evident |= membership is not None and membership.key in keys

    def _is_cut_short(self, key: GroupKey) -> bool:
        """Return whether it is certain that an order deleted some members of a group and was to delete the others."""
        members, min_members = self._groups.groups_by_pod.get(key), self._groups.whole_min(key)
        if members is None or not min_members:
            return False
        marks = [self._members.get(uid) for uid in members.of("placed")]
        waiting_marks = [mark for mark in marks if mark is not None and mark.stage == "waiting"]
        if len(waiting_marks) < len(marks):
            return False
        return members.counted_as_placed < min_members or any(mark.is_evident for mark in waiting_marks)

    def _drop_deleted_pods(self) -> None:
        self._members = {uid: member for uid, member in self._members.items() if self._cache.assigned(uid) is not None}

"""Groups that go as a whole, of which a crash in the middle of a preemption left some members. Pure.

A preemption marks all victims, by the condition DisruptionTarget, before it deletes the first of them. So a member that
bears this scheduler's mark and is not being deleted was chosen, and its deletion was not carried out. It is evicted
once the patience is over, if it is certain that others of its group were deleted: some are being deleted with the same
mark, or fewer than the group needs are placed. A member without the mark that has a node ends the matter: marking was
not complete, or the group lives again. Whoever is placed later bears no mark, and is never evicted here.

What is left on a group that lives is not taken back here. kube-controller-manager does that after two minutes, where
the pod is not being deleted (stalePodDisruptionTimeout in its pkg/controller/disruption/disruption.go). So a mark is
young when it is first seen, and a leader has to see it in its first minute to act on it.

Source of the condition: PreemptPod of kube-scheduler.
"""

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from itertools import islice
from math import inf

from scheduler.cache.assigned_pod import mark_of, pod_reference
from scheduler.cache.cache import Cache
from scheduler.cache.groups.placed_groups import PlacedGroups
from scheduler.cycle.instructions import Evict, Instruction, Order, Result
from scheduler.kube.group_membership import GroupKey
from scheduler.kube.objects import Pod
from scheduler.kube.pod_groups import GroupPolicy
from scheduler.pending.part import Part

# So long the deletions of an order may be under way.
PATIENCE_S = 60.0
_CHECK_S = 5.0
# A mark that was first seen earlier is not of an order that a crash has just cut short.
_OLDEST_S = 600.0
# Evictions in one look, and members that are remembered.
_AT_ONCE = 64
_MAX_MEMBERS = 8192


@dataclass(slots=True)
class _MarkedMember:
    """When a mark was first seen, and is acted on; whether a leader saw it, and one of its group being deleted then."""

    seen_at: float
    # As the API server shows it: another text is another mark.
    transition: str
    due: float = inf
    is_known: bool = False
    is_evident: bool = False


class MarkedMembers(Part):
    """The members of groups that bear the mark of ``scheduler_name``; time counts from the first look of a leader."""

    def __init__(self, scheduler_name: str, cache: Cache, groups: PlacedGroups) -> None:
        self._scheduler_name, self._cache, self._groups = scheduler_name, cache, groups
        # By uid; beside them those that are being deleted.
        self._members: dict[str, _MarkedMember] = {}
        self._deletions: set[str] = set()
        # Those whose order was not carried out though they bear its mark: what happens to them later is no part of it.
        self._ignored_uids: set[str] = set()
        self._next_check = 0.0

    def __len__(self) -> int:
        return len(self._members) + len(self._deletions) + len(self._ignored_uids)

    def pod_updated(self, pod: Pod, now: float) -> None:
        uid = pod.metadata.uid
        is_member = pod.spec.scheduling_group is not None and bool(pod.spec.node_name)
        mark = mark_of(pod, self._scheduler_name) if is_member else None
        if mark is None:
            self._members.pop(uid, None)
            return
        transition = mark.last_transition_time or ""
        if pod.metadata.deletion_timestamp is not None:
            self._members.pop(uid, None)
            self._deletions.add(uid)
        elif uid not in self._ignored_uids:
            member = self._members.setdefault(uid, _MarkedMember(now, transition))
            if member.transition != transition:
                member.seen_at, member.transition = now, transition
        if len(self) > _MAX_MEMBERS:
            self._drop_deleted_pods()

    def tick(self, now: float) -> Iterator[Evict]:
        """Yield the evictions of members whose time has come."""
        if not self._members or now < self._next_check:
            return
        self._next_check = now + _CHECK_S
        self._look(now)
        due = islice((uid for uid, member in self._members.items() if member.due <= now), _AT_ONCE)
        cut_short = dict[GroupKey, bool]()
        for uid in list(due):
            membership, assigned_pod = self._groups.groups_by_pod.of(uid), self._cache.assigned(uid)
            if membership is None or assigned_pod is None:
                del self._members[uid]
                continue
            key = membership.key
            if key not in cut_short:
                cut_short[key] = self._is_cut_short(key)
            if not cut_short[key]:
                del self._members[uid]
                self._ignored_uids.add(uid)
                continue
            # Nothing more until its result is known.
            self._members[uid].due = inf
            reason = f"group {key.name}: it may only be disrupted as a whole, and its preemption was cut short"
            yield Evict(pod_reference(assigned_pod), reason, "Preempted")

    def finished(self, order: Order, result: Result, now: float) -> Iterable[Instruction]:
        """Try an eviction again later that the API server did not accept."""
        if isinstance(order, Evict) and result == "refused" and order.pod.metadata.uid in self._members:
            self._members[order.pod.metadata.uid].due = now + PATIENCE_S
        return ()

    def next_due(self) -> float | None:
        return self._next_check if self._members else None

    def _look(self, now: float) -> None:
        """Begin to wait for what is new, and note of which groups others are being deleted now."""
        self._drop_deleted_pods()
        memberships = map(self._groups.groups_by_pod.of, self._deletions)
        keys = {membership.key for membership in memberships if membership is not None}
        # What a scheduler saw while it stood by may be of long ago when it leads.
        self._ignored_uids |= {
            uid for uid, member in self._members.items() if not member.is_known and _is_old(member, now)
        }
        self._members = {uid: member for uid, member in self._members.items() if uid not in self._ignored_uids}
        for uid, member in self._members.items():
            if not member.is_known:
                member.due, member.is_known = now + PATIENCE_S, True
            membership = self._groups.groups_by_pod.of(uid)
            member.is_evident |= membership is not None and membership.key in keys

    def _is_cut_short(self, key: GroupKey) -> bool:
        """Return whether it is certain that some of a group were deleted by an order, and the others were to be."""
        policy, members = self._groups.known_pod_groups.of(key), self._groups.groups_by_pod.get(key)
        if (
            members is None
            or not isinstance(policy, GroupPolicy)
            or key not in self._groups.known_pod_groups.whole_groups
        ):
            return False
        marks = [self._members.get(uid) for uid in members.of("placed")]
        if None in marks:
            return False
        return members.counting < policy.min or any(member is not None and member.is_evident for member in marks)

    def _drop_deleted_pods(self) -> None:
        self._deletions = {uid for uid in self._deletions if self._cache.assigned(uid) is not None}
        self._ignored_uids = {uid for uid in self._ignored_uids if self._cache.assigned(uid) is not None}
        self._members = {uid: member for uid, member in self._members.items() if self._cache.assigned(uid) is not None}


def _is_old(member: _MarkedMember, now: float) -> bool:
    return now - member.seen_at > _OLDEST_S

"""Evict what is left of groups of which fewer members than they need have a node, and which run for nothing. Pure.

`HalfGroups` (`--end-half-groups`): after a crash, a rejected Binding or a lost member, the others may wait for ever. If
the placed ones are evicted, the controller starts again, and other pods get the room.

`MarkedMembers`: a preemption of a whole group marks all victims with the condition DisruptionTarget before it deletes
the first one (PreemptPod of kube-scheduler). If too few members are placed, and all of them have this scheduler's mark,
the deletion was cut short. If one has no mark, or enough members are placed when they are due, none is evicted.
kube-controller-manager removes the mark after two minutes (stalePodDisruptionTimeout in its
pkg/controller/disruption/disruption.go).
"""

from collections.abc import Iterator
from math import inf

from scheduler.cache.assigned_pod import AssignedPod, mark_of, pod_reference
from scheduler.cache.cache import Cache
from scheduler.cache.groups.group_cache import GroupCache
from scheduler.cycle.instructions import EVICTION_RETRY_S, Evict
from scheduler.cycle.preemption.potential_victims import whole_min
from scheduler.kube.group import GroupKey
from scheduler.kube.objects import Pod
from scheduler.pending.groups.pending_groups import PendingGroups
from scheduler.pending.part import Part

_HALF_CHECK_S, _MARK_CHECK_S = 1.0, 5.0
# Seconds for which the deletions of a preemption may be in progress.
PATIENCE_S = 60.0
# Maximum number of evictions in one check.
_PORTION = 64


class HalfGroups(Part):
    """When each half placed group is evicted; ``after_s`` is how many seconds it may stay half placed, 0 for ever."""

    def __init__(self, pending_groups: PendingGroups, cache: Cache, after_s: float) -> None:
        self._pending_groups, self._cache, self._after_s = pending_groups, cache, after_s
        self._next_check = 0.0
        self._due: dict[GroupKey, float] = {}

    def tick(self, now: float) -> Iterator[Evict]:
        if self._after_s <= 0 or now < self._next_check:
            return
        self._next_check = now + _HALF_CHECK_S
        half_groups = dict(self._pending_groups.half_groups())
        self._due = {key: self._due.get(key, now + self._after_s) for key in half_groups}
        for key in [key for key, due in self._due.items() if due <= now]:
            self._due[key] = now + EVICTION_RETRY_S
            members = self._pending_groups.members(key)
            count = f"{members.current_count} of at least {half_groups[key]} members"
            reason = f"group {members.title}: only {count} have been placed for {self._after_s:g} s"
            for assigned_pod in map(self._cache.assigned, members.of("placed")):
                # An assumed member has a Binding in progress; it is evicted next time.
                if assigned_pod is not None and not assigned_pod.assumed:
                    yield Evict(pod_reference(assigned_pod), reason, "HalfGroup")

    def next_due(self) -> float | None:
        return self._next_check if self._after_s > 0 and self._pending_groups.has_any else None


class MarkedMembers(Part):
    """When each pod with the mark of ``scheduler_name`` may be evicted, by uid; infinite if it stays."""

    def __init__(self, scheduler_name: str, cache: Cache, groups: GroupCache) -> None:
        self._scheduler_name, self._cache, self._groups = scheduler_name, cache, groups
        self._due: dict[str, float] = {}
        self._next_check = 0.0

    def pod_updated(self, pod: Pod, now: float) -> None:
        is_marked = bool(pod.spec.node_name) and mark_of(pod, self._scheduler_name) is not None
        if is_marked and pod.metadata.deletion_timestamp is None:
            self._due.setdefault(pod.metadata.uid, now + PATIENCE_S)
        else:
            self._due.pop(pod.metadata.uid, None)

    def pod_deleted(self, uid: str, assigned_pod: AssignedPod | None, now: float) -> None:
        self._due.pop(uid, None)

    def tick(self, now: float) -> Iterator[Evict]:
        if not self._due or now < self._next_check:
            return
        self._next_check = now + _MARK_CHECK_S
        due = [uid for uid, at in self._due.items() if at <= now]
        keys = {uid: membership.key for uid in due if (membership := self._groups.of(uid)) is not None}
        remainders = set(filter(self._is_interrupted, set(keys.values())))
        self._due |= {uid: inf for uid, key in keys.items() if key not in remainders}
        for uid in [uid for uid, key in keys.items() if key in remainders][:_PORTION]:
            if (assigned_pod := self._cache.assigned(uid)) is not None:
                self._due[uid] = now + EVICTION_RETRY_S
                name = keys[uid].name
                reason = f"group {name}: it may only be disrupted as a whole, and its preemption was interrupted"
                yield Evict(pod_reference(assigned_pod), reason, "Preempted")

    def next_due(self) -> float | None:
        return self._next_check if self._due else None

    def _is_interrupted(self, key: GroupKey) -> bool:
        members, min_members = self._groups.get(key), whole_min(self._groups, key)
        if members is None or members.current_count >= min_members:
            return False
        return all(self._due.get(uid, inf) < inf for uid in members.of("placed"))

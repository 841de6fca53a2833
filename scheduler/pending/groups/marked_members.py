"""Evict the rest of a group that is disrupted as a whole if its preemption was interrupted. Pure.

A preemption marks all victims with the condition DisruptionTarget before it deletes the first one. So if fewer members
than such a group needs are placed, and all of them have this scheduler's mark, a crash or the API server has cut short
the deletion of the group. A member without the mark means that not all were marked, or that the group is alive again:
then none is evicted. Members whose group has enough when they are due stay, whoever leaves later: their order was not
carried out.

A mark on a live group stays until kube-controller-manager removes it after two minutes, if the pod is not being deleted
(stalePodDisruptionTimeout in its pkg/controller/disruption/disruption.go).

Source of the condition: PreemptPod of kube-scheduler.
"""

from collections.abc import Iterator
from math import inf

from scheduler.cache.assigned_pod import AssignedPod, mark_of, pod_reference
from scheduler.cache.cache import Cache
from scheduler.cache.groups.placed_groups import PlacedGroups
from scheduler.cycle.instructions import Evict
from scheduler.kube.group_membership import GroupKey
from scheduler.kube.objects import Pod
from scheduler.pending.part import Part

# Seconds for which the deletions of an order, or an eviction, may be in progress.
PATIENCE_S = 60.0
_CHECK_S = 5.0
# Maximum number of evictions in one check.
_AT_ONCE = 64


class MarkedMembers(Part):
    """The pods with the mark of ``scheduler_name`` that are not being deleted."""

    def __init__(self, scheduler_name: str, cache: Cache, groups: PlacedGroups) -> None:
        self._scheduler_name, self._cache, self._groups = scheduler_name, cache, groups
        # By uid: when the pod may be evicted; infinite if it stays.
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
        """Yield the evictions of members that are due."""
        if not self._due or now < self._next_check:
            return
        self._next_check = now + _CHECK_S
        due = [uid for uid, at in self._due.items() if at <= now]
        keys = {uid: membership.key for uid in due if (membership := self._groups.groups_by_pod.of(uid)) is not None}
        interrupted = set(filter(self._is_interrupted, set(keys.values())))
        self._due |= {uid: inf for uid, key in keys.items() if key not in interrupted}
        for uid in [uid for uid, key in keys.items() if key in interrupted][:_AT_ONCE]:
            if (assigned_pod := self._cache.assigned(uid)) is not None:
                self._due[uid] = now + PATIENCE_S
                name = keys[uid].name
                reason = f"group {name}: it may only be disrupted as a whole, and its preemption was interrupted"
                yield Evict(pod_reference(assigned_pod), reason, "Preempted")

    def next_due(self) -> float | None:
        return self._next_check if self._due else None

    def _is_interrupted(self, key: GroupKey) -> bool:
        members, min_members = self._groups.groups_by_pod.get(key), self._groups.whole_min(key)
        if members is None or members.counted_as_placed >= min_members:
            return False
        return all(self._due.get(uid, inf) < inf for uid in members.of("placed"))

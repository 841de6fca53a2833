"""Groups that may only be disrupted as a whole, and of which only some members were preempted. Pure.

A leader that ends, or an API server that refuses a deletion, cuts a preemption short. The members that were reached
show it by their condition DisruptionTarget, which is written before the deletion. The others go too, again and again
until none is left: those that were bound by then, so that nobody of a group that has begun anew goes.
"""

from collections.abc import Iterator
from dataclasses import dataclass

from scheduler.cache.assigned_pod import PREEMPTED, pod_reference
from scheduler.cache.cache import AssignedPod, Cache
from scheduler.cache.groups.placed_groups import PlacedGroups
from scheduler.cycle.instructions import DeleteVictims
from scheduler.kube.group_membership import GroupKey
from scheduler.kube.objects import Pod

# So long after the first member is seen preempted: the deletions of the order that it is part of are under way.
_FIRST_S = 15.0
# What the API server refuses is tried again after this long.
_AGAIN_S = 60.0


@dataclass(slots=True)
class _Preempted:
    """A member that was preempted, since when, and when to look for the others."""

    member: AssignedPod
    at: str
    look_at: float


class PartlyPreempted:
    """What was preempted of each group, until no other member is left; only what ``scheduler_name`` preempts counts."""

    def __init__(self, scheduler_name: str, cache: Cache, groups: PlacedGroups) -> None:
        self._begins = f"{scheduler_name}: "
        self._cache = cache
        self._groups = groups
        self._preempted: dict[GroupKey, _Preempted] = {}

    def see(self, pod: Pod, now: float) -> None:
        """Take in a bound pod that has a group; it may be one that this scheduler preempts."""
        at, uid = self._preempted_at(pod), pod.metadata.uid
        membership, member = self._groups.groups_by_pod.of(uid), self._cache.assigned(uid)
        if not at or membership is None or member is None:
            return
        known = self._preempted.setdefault(membership.key, _Preempted(member, at, now + _FIRST_S))
        known.at = max(known.at, at)

    def overdue(self, now: float) -> Iterator[DeleteVictims]:
        """Yield the orders to delete what is left of a group, if it is time."""
        for key, one in [*self._preempted.items()] if self._preempted else ():
            if one.look_at > now:
                continue
            left = tuple(self._left(key, one.at))
            if not left:
                del self._preempted[key]
                continue
            one.look_at = now + _AGAIN_S
            why = f"Preempted with pod {one.member.pod}: group {key.name} may only be disrupted as a whole"
            yield DeleteVictims(pod_reference(one.member), one.member.node, left, why)

    def next_due(self) -> float | None:
        """Return when `overdue` has to look; None for never."""
        return min((one.look_at for one in self._preempted.values()), default=None)

    def _left(self, key: GroupKey, at: str) -> Iterator[AssignedPod]:
        """Yield the members that still stay of those that were bound when others were preempted."""
        if not self._groups.known_pod_groups.is_known_whole(key):
            return
        for uid in self._groups.placed(key):
            assigned = self._cache.assigned(uid)
            if assigned is not None and not assigned.assumed and "" < assigned.bound_at <= at:
                yield assigned

    def _preempted_at(self, pod: Pod) -> str:
        """Return since when this scheduler preempts a pod, RFC 3339 in seconds; empty if it does not."""
        for one in pod.status.conditions or ():
            if one.type == "DisruptionTarget":
                is_ours = (
                    one.status == "True" and one.reason == PREEMPTED and (one.message or "").startswith(self._begins)
                )
                return (one.last_transition_time or "") if is_ours else ""
        return ""

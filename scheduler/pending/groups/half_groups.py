"""Evict the members of groups that stay half placed for longer than `--end-half-groups`. Pure.

A group is half placed if fewer members than it needs have a node, after a crash or a rejected Binding between its
Bindings, or after members were lost. Its other members come before everything of their priority. If they do not fit,
the placed members run for nothing. After the time they are evicted, so that their controller starts again and other
pods get the room.
"""

from collections.abc import Iterator

from scheduler.cache.assigned_pod import pod_reference
from scheduler.cache.cache import Cache
from scheduler.cycle.instructions import Evict
from scheduler.kube.group_membership import GroupKey
from scheduler.pending.groups.pending_groups import PendingGroups

_CHECK_S = 1.0
# Seconds after which an eviction is tried again that the API server rejected (a disruption budget, an outage).
_AGAIN_S = 60.0


class HalfGroups:
    """When each half placed group is evicted; ``after_s`` is how long it may stay half placed in seconds, 0
    for ever.
    """

    def __init__(self, pending_groups: PendingGroups, cache: Cache, after_s: float = 0.0) -> None:
        self._pending_groups = pending_groups
        self._cache = cache
        self._after_s = after_s
        self._next_check = 0.0
        # When each group is evicted.
        self._due: dict[GroupKey, float] = {}

    def overdue(self, now: float) -> Iterator[Evict]:
        """Yield the evictions of the members of groups whose time is over."""
        if self._after_s <= 0 or now < self._next_check:
            return
        self._next_check = now + _CHECK_S
        half = dict(self._pending_groups.half_placed())
        self._due = {key: self._due.get(key, now + self._after_s) for key in half}
        for key in [key for key, due in self._due.items() if due <= now]:
            self._due[key] = now + _AGAIN_S
            members = self._pending_groups.members(key)
            count = f"{members.counted_as_placed} of at least {half[key]} members"
            reason = f"group {members.title}: only {count} have been placed for {self._after_s:g} s"
            for assigned_pod in map(self._cache.assigned, members.of("placed")):
                # An assumed member has a Binding in progress; it is evicted next time.
                if assigned_pod is not None and not assigned_pod.assumed:
                    yield Evict(pod_reference(assigned_pod), reason, "HalfGroup")

    def next_due(self) -> float | None:
        """Return when `overdue` has to run again; None while no group waits."""
        return self._next_check if self._after_s > 0 and self._pending_groups.has_waiting else None

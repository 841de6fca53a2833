"""Which waiting group has first call on what becomes free, if the operator says so (`--group-hold`). Pure.

What it is: the holder is the oldest of the waiting groups of the highest priority that have been complete for long
enough. An event that can help it brings it back at once, before all others of its priority. Where too few of its
members fit, all that are needed are nominated where they would fit without pods up to the group's priority
(`GroupPreemption.search_room`), first in the domain that held the most of them. Nobody is sent away. If there is no
such place, those that fit are nominated where they fitted. So others of the same or a lower priority cannot take the
room, and it grows with all that becomes free.

Why it is right: a nomination counts against all pods but those above it and the members of its own group, which are
decided about together. Each decision about the holder replaces its nominations. A group that is no
longer the holder keeps none but those that wait for its victims.

What it costs: what is kept stays idle until the group starts. A look at all groups each second, and at all nominations
in each decision.
"""

from collections.abc import Sequence
from dataclasses import replace

from scheduler.cache.assigned_pod import AssignedPod
from scheduler.cache.groups.groups_by_pod import GroupsByPod
from scheduler.cycle.nominations import Nomination
from scheduler.kube.group_membership import GroupKey
from scheduler.pending.groups.pending_groups import PendingGroups
from scheduler.pending.nominator import Nominator

_CHECK_S = 1.0


class GroupHold:
    """The room that is kept for one group; ``after_s`` is how many seconds it must have waited, 0 for never."""

    def __init__(
        self, pending_groups: PendingGroups, groups_by_pod: GroupsByPod, nominator: Nominator, after_s: float = 0.0
    ) -> None:
        self._pending_groups = pending_groups
        self._groups_by_pod = groups_by_pod
        self._nominator = nominator
        self._after_s = after_s
        self._is_on = after_s > 0
        self._next_check = 0.0

    def tick(self, now: float) -> None:
        """Let another group hold if it is its turn."""
        if not self._is_on or now < self._next_check:
            return
        self._next_check = now + _CHECK_S
        old_holder, holder = self._pending_groups.holder, self._pending_groups.oldest(now - self._after_s)
        if holder == old_holder:
            return
        if old_holder is not None:
            # Where pods are being deleted for it, it goes on waiting for them.
            self._nominator.delete_kept(old_holder, now)
        self._pending_groups.hold_for(holder, now)

    def next_due(self) -> float | None:
        """Return when `tick` has to look again; None while no group waits."""
        return self._next_check if self._is_on and self._pending_groups.has_waiting else None

    def is_held_by(self, key: GroupKey) -> bool:
        """Return whether room is kept for a group."""
        return self._pending_groups.holder == key

    def keep(self, key: GroupKey, room: Sequence[AssignedPod], now: float) -> None:
        """Keep the room of these members of a group, and no other room for it."""
        uids = {assigned_pod.uid for assigned_pod in room}
        members = self._groups_by_pod.get(key)
        for uid in members.of("waiting") if members is not None else ():
            if uid not in uids:
                self._nominator.delete(uid, now)
        # It is kept from all that the group comes before, whatever its members' own priorities.
        pods = [replace(assigned_pod, priority=self._pending_groups.priority(key)) for assigned_pod in room]
        self._nominator.nominate_all([Nomination(assigned_pod, group=key, is_kept=True) for assigned_pod in pods], now)

"""Choose the waiting group for which room is reserved (`--group-hold`, `--backfill`). Pure.

Method: it is the oldest waiting group of the highest priority that has been complete for long enough, with
`--backfill` at once. An event that can help it requeues it at once, before all others of its priority. If too few of
its members fit, room is reserved from the time when declared ends of running pods let it start
(`scheduler.state.groups.backfill`). Otherwise all needed members are nominated where they would fit without pods up to
the group's priority (`GroupPreemption.search_room`), first in the domain that held most of them. No pod is preempted.
If there is no such place, the members that fit are nominated where they fit. Other pods of the same or a lower priority
then cannot take the room, and it grows with everything that becomes free.

Correctness: reserved room counts against all pods except those of higher priority and the members of its own group,
which are scheduled together. Each decision about the group replaces its reservation. When another group is chosen, the
old one keeps only room for which victims leave.

With `--backfill` alone, a group for which no start is found is passed over: first while another one has a promise, then
for `_PASS_S`. A group with a promise stays the first until it starts or one of a higher priority comes.

Cost: reserved resources stay idle until the group starts. All groups are checked each second, and all reservations in
each decision.
"""

from collections.abc import Iterable
from dataclasses import replace

from scheduler.cache.assigned_pod import AssignedPod
from scheduler.cycle.reservations import Reservation, reserve
from scheduler.kube.group_membership import GroupKey
from scheduler.pending.groups.options import GroupOptions
from scheduler.pending.groups.pending_groups import PendingGroups
from scheduler.pending.reservations import Reservations

_CHECK_S, _PASS_S = 1.0, 600.0
# The more groups are passed over, the more seconds lie between two of them, up to this number.
_PASSES = 5


class FirstCall:
    """The group for which room is reserved, and why it may be."""

    def __init__(self, pending_groups: PendingGroups, reservations: Reservations, options: GroupOptions) -> None:
        self._pending_groups = pending_groups
        self._reservations = reservations
        self._hold_s, self._has_backfill = options.hold_s, options.backfill
        self._after_s = 0.0 if options.backfill else options.hold_s
        self._is_on = options.backfill or options.hold_s > 0
        self._next_check = 0.0
        # The groups that are passed over, and until when at least.
        self._passed: dict[GroupKey, float] = {}

    def tick(self, now: float) -> None:
        """Reserve room for another group if it is its turn."""
        if not self._is_on or now < self._next_check:
            return
        self._next_check = now + _CHECK_S
        old_owner, owner = self._pending_groups.room_owner, self._choose(now)
        if owner == old_owner:
            return
        if old_owner is not None:
            # If pods are being deleted for it, it continues to wait for them.
            self._reservations.end(old_owner, now, "hold")
            self._reservations.end(old_owner, now, "backfill")
        self._pending_groups.reserve_room_for(owner, now)

    def _choose(self, now: float) -> GroupKey | None:
        groups, promised = self._pending_groups, self._promised()
        self._passed = {
            key: end
            for key, end in self._passed.items()
            if groups.queued(key) is not None and (promised is not None or now < end)
        }
        owner = groups.oldest(now - self._after_s, self._passed)
        if promised is None or (owner is not None and groups.priority(owner) > groups.priority(promised)):
            return owner
        return promised

    def _promised(self) -> GroupKey | None:
        """Return the group that has a promised start, also one of the last leader; None if none has."""
        if not self._has_backfill:
            return None
        groups = self._pending_groups
        keys = (one.group for one in self._reservations.all() if one.cause == "backfill")
        # It is not in the queue while a member is made again.
        waiting = (key for key in keys if key is not None and groups.get(key) is not None)
        return next((key for key in waiting if groups.needs_start(key) or groups.queued(key) is None), None)

    def pass_over(self, key: GroupKey, now: float) -> None:
        """Let the next group have the promise, because no start is found for this one."""
        if self._has_backfill and not self._hold_s and self.is_for(key):
            self._passed[key] = now + _PASS_S
            self._next_check = now + _CHECK_S * min(len(self._passed), _PASSES)

    def is_passed_over(self, key: GroupKey) -> bool:
        return key in self._passed

    def next_due(self) -> float | None:
        """Return when `tick` has to run again; None while no group waits."""
        return self._next_check if self._is_on and self._pending_groups.has_waiting else None

    def is_for(self, key: GroupKey) -> bool:
        """Return whether room is reserved for a group."""
        return self._pending_groups.room_owner == key

    def holds(self, key: GroupKey, now: float) -> bool:
        """Return whether room that becomes free is reserved for a group: it has waited long enough."""
        waiting = self._pending_groups.queued(key)
        has_waited = waiting is not None and waiting.since <= now - self._hold_s
        return self.is_for(key) and self._hold_s > 0 and has_waited

    def reservation(self, key: GroupKey, room: Iterable[AssignedPod]) -> Reservation:
        """Reserve room for members of a group, against all pods that the group precedes, whatever their priorities."""
        priority = self._pending_groups.priority(key)
        return reserve(key, (replace(assigned_pod, priority=priority) for assigned_pod in room), "hold")

"""Choose the waiting group for which room is reserved (`--group-hold`, `--backfill`). Pure.

It is the oldest waiting group of the highest priority that has been complete for long enough, with `--backfill` at
once. If too few of its members fit, room is reserved from the time when declared ends of running pods let it start
(`scheduler.state.groups.backfill`). Otherwise all needed members are nominated where they would fit without pods up to
the group's priority (`GroupPreemption.search_room`), or where they fit. No pod is preempted; the room grows with all
that becomes free. When another group is chosen, the old one keeps only room for which victims leave.

With `--backfill` alone, a group for which no start is found is passed over: first while another one has a promise, then
for `_PASS_S`. A group with a promise stays the first until it starts or one of a higher priority comes.
"""

from collections.abc import Iterable

from scheduler.cycle.instructions import Instruction
from scheduler.kube.group import GroupKey
from scheduler.pending.groups.pending_groups import GroupOptions, PendingGroups
from scheduler.pending.part import Part
from scheduler.pending.reservations import Reservations

_CHECK_S, _PASS_S = 1.0, 600.0
# The more groups are passed over, the more seconds lie between two of them, up to this number.
_MAX_PASSES = 5


class FirstCall(Part):
    """The group for which room is reserved (`PendingGroups.room_owner`), and why it may be."""

    def __init__(self, pending_groups: PendingGroups, reservations: Reservations, options: GroupOptions) -> None:
        self._pending_groups, self._reservations = pending_groups, reservations
        self._hold_s, self._has_backfill = options.hold_s, options.backfill
        self._is_on = options.backfill or options.hold_s > 0
        self._next_check = 0.0
        # The groups that are passed over, and until when at least.
        self.passes: dict[GroupKey, float] = {}

    def tick(self, now: float) -> Iterable[Instruction]:
        if not self._is_on or now < self._next_check:
            return ()
        self._next_check = now + _CHECK_S
        old_owner, owner = self._pending_groups.room_owner, self._choose(now)
        if owner != old_owner and old_owner is not None:
            # If pods are being deleted for it, it continues to wait for them.
            self._reservations.end(old_owner, now, "hold")
            self._reservations.end(old_owner, now, "backfill")
        if owner != old_owner:
            self._pending_groups.reserve_room_for(owner, now)
        return ()

    def _choose(self, now: float) -> GroupKey | None:
        groups, promisee = self._pending_groups, self._promisee()
        self.passes = {
            key: end
            for key, end in self.passes.items()
            if groups.in_queue(key) is not None and (promisee is not None or now < end)
        }
        owner = groups.oldest(now if self._has_backfill else now - self._hold_s, self.passes)
        if promisee is None or (owner is not None and groups.priority(owner) > groups.priority(promisee)):
            return owner
        return promisee

    def _promisee(self) -> GroupKey | None:
        """Return the group that has a promised start, also one of the last leader; None if none has."""
        if not self._has_backfill:
            return None
        groups = self._pending_groups
        keys = (reservation.group for reservation in self._reservations.all() if reservation.cause == "backfill")
        # It is not in the queue while a member is made again.
        candidates = (key for key in keys if key is not None and groups.get(key) is not None)
        return next((key for key in candidates if groups.needs_start(key) or groups.in_queue(key) is None), None)

    def pass_over(self, key: GroupKey, now: float) -> None:
        """Let the next group have the promise, because no start is found for this one."""
        if self._has_backfill and not self._hold_s and self.is_for(key):
            self.passes[key] = now + _PASS_S
            self._next_check = now + _CHECK_S * min(len(self.passes), _MAX_PASSES)

    def next_due(self) -> float | None:
        return self._next_check if self._is_on and self._pending_groups.has_any else None

    def is_for(self, key: GroupKey) -> bool:
        return self._pending_groups.room_owner == key

    def holds(self, key: GroupKey, now: float) -> bool:
        """Return whether room that becomes free is reserved for a group: it has waited long enough."""
        group = self._pending_groups.in_queue(key)
        return self.is_for(key) and self._hold_s > 0 and group is not None and group.since <= now - self._hold_s

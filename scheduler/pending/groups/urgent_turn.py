"""Limit how long decisions about urgent groups keep other pods of their priority waiting. Pure.

A group is urgent if it is half placed, or if room is reserved for it: it comes before all others of its priority. A
long decision is paused from time to time so that others have their turn. Pods of the urgent group's priority and below
would then take its room, so they wait; pods of higher priority do not.

Cost: others wait for at most `_TURN_S`, and then have their turn for as long, whatever groups there are and however
often their decisions start again. Groups that never fit therefore take half the time.
"""

from collections.abc import Iterable
from math import inf

from scheduler.kube.group_membership import GroupKey
from scheduler.pending.groups.pending_groups import PendingGroups
from scheduler.queue.queue import Queue

_TURN_S = 0.5


class UrgentTurn:
    """Since when others wait, or have waited last."""

    def __init__(self, pending_groups: PendingGroups, queue: Queue) -> None:
        self._pending_groups = pending_groups
        self._queue = queue
        self._start = -inf

    def others_are_ready(self, keys: Iterable[GroupKey], now: float) -> bool:
        """Return whether others are ready that do not wait for the decision about one of these groups."""
        return self._queue.has_ready(now, self._priority_limit(keys, now))

    def _priority_limit(self, keys: Iterable[GroupKey], now: float) -> int | None:
        """Return up to which priority others wait; None if none do."""
        waiting = (group for key in keys if (group := self._pending_groups.queued(key)) is not None)
        urgent = next((group for group in waiting if group.is_urgent), None)
        if urgent is None:
            return None
        if now >= self._start + 2 * _TURN_S:
            self._start = now
        return urgent.priority if now < self._start + _TURN_S else None

"""How long decisions about urgent groups keep others of their priority waiting. Pure.

Urgent is a group that is half placed, or that has first call on what becomes free: it comes before all others of its
priority. A long decision is set aside from time to time so that others have their turn. Those of an urgent group's
priority, and below, would take the room then that the group comes first for. So they wait; those above it do not.

What it costs: others wait for `_TURN_S` at the most, and then have their turn for as long, whatever groups there are
and however often their decisions begin again. So groups that never fit take half the time.
"""

from collections.abc import Iterable
from math import inf

from scheduler.kube.group_membership import GroupKey
from scheduler.pending.groups.pending_groups import PendingGroups
from scheduler.queue.queue import Queue

_TURN_S = 2.0


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
        key = next(filter(self._pending_groups.is_urgent, keys), None)
        if key is None:
            return None
        if now >= self._start + 2 * _TURN_S:
            self._start = now
        return self._pending_groups.priority(key) if now < self._start + _TURN_S else None

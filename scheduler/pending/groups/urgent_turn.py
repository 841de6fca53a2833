"""How long a decision about an urgent group keeps others of its priority waiting. Pure.

Urgent is a group that is half placed, or that has first call on what becomes free: it comes before all others of its
priority. A long decision is set aside from time to time so that others have their turn. Those of an urgent group's
priority, and below, would take the room then that the group comes first for. So they wait; those above it do not.

What it costs: a decision keeps them waiting for `_ALONE_S` at the most. Then they have their turn for as long as it
took: until then no decision begins that keeps them waiting again, so that a group that never fits takes half the time.
"""

from collections.abc import Iterable

from scheduler.kube.group_membership import GroupKey
from scheduler.pending.groups.pending_groups import PendingGroups
from scheduler.queue.queue import Queue

_ALONE_S = 2.0


class UrgentTurn:
    """The urgent group that keeps others waiting, and since when; when the next one may."""

    def __init__(self, pending_groups: PendingGroups, queue: Queue) -> None:
        self._pending_groups = pending_groups
        self._queue = queue
        self._since: tuple[GroupKey, float] | None = None
        self._next_at = 0.0

    def others_are_ready(self, keys: Iterable[GroupKey], now: float) -> bool:
        """Return whether others are ready that do not wait for the decision about one of these groups."""
        return self._queue.has_ready(now, self._waiting_up_to(keys, now))

    def _waiting_up_to(self, keys: Iterable[GroupKey], now: float) -> int | None:
        """Return up to which priority others wait; None if none do."""
        key = next(filter(self._pending_groups.is_urgent, keys), None)
        if key is None:
            return None
        if self._since is None or self._since[0] != key:
            self._since = key, now
        since = self._since[1]
        is_alone = self._next_at <= since and now < since + _ALONE_S
        return self._pending_groups.priority(key) if is_alone else None

    def end(self, key: GroupKey, now: float) -> None:
        """Record that a decision has ended."""
        if self._since is not None and self._since[0] == key:
            self._next_at = now + now - self._since[1]
            self._since = None

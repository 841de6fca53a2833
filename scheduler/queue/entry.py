"""An entry in the scheduling queue: a pod, or a group of pods that are scheduled together. Pure."""

from collections.abc import Hashable
from dataclasses import dataclass

# Before any time of queueing.
_FIRST = float("-inf")
# Priority (negative), time of queueing, creation time and uid, which makes it unique.
SortKey = tuple[int, float, str, str]
BackoffKey = tuple[float, str]
# Priority (negative), whether it is not urgent, creation time, since when it is complete, and the entry's name.
AgeKey = tuple[int, bool, str, float, str]


@dataclass(slots=True)
class Entry:
    """A pod or group in the queue; its current heap item has the same ``ticket``, outdated items have others.

    ``since`` is since when a group is complete, None for a pod. ``tried`` is the ticket of its last attempt, and
    ``is_awaited`` is whether an event that may help has moved it here.
    """

    uid: str
    priority: int
    created: str
    queued_at: float
    attempts: int = 0
    ready_at: float = 0.0
    ticket: int = 0
    place: str = ""
    signature: Hashable = None
    is_urgent: bool = False
    since: float | None = None
    tried: int = 0
    active_at: float = 0.0
    is_awaited: bool = False

    @property
    def sort_key(self) -> SortKey:
        """Return the sort key of the active queue."""
        return (-self.priority, _FIRST if self.is_urgent else self.queued_at, self.created, self.uid)

    @property
    def backoff_key(self) -> BackoffKey:
        """Return the sort key of the backoff queue."""
        return (self.ready_at, self.uid)

    @property
    def age_key(self) -> AgeKey:
        """Return the sort key of groups among each other, which attempts do not change."""
        return (-self.priority, not self.is_urgent, self.created, self.since or 0.0, self.uid)

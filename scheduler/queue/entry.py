"""A place in the scheduling queue: a pod's, or that of a group of pods which are decided about together. Pure."""

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
    """A pod in the queue; ``ticket`` tells its valid heap item from those left behind.

    ``since`` is since when a group is complete, None for a pod. ``tried`` is the ticket of its last try, and
    ``is_awaited`` is whether an event that may help has brought it here.
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
        """Return the key of the active queue."""
        return (-self.priority, _FIRST if self.is_urgent else self.queued_at, self.created, self.uid)

    @property
    def backoff_key(self) -> BackoffKey:
        """Return the key of those in backoff."""
        return (self.ready_at, self.uid)

    @property
    def age_key(self) -> AgeKey:
        """Return the key of groups among each other, which no try changes."""
        return (-self.priority, not self.is_urgent, self.created, self.since or 0.0, self.uid)

"""Pods whose last decision had no steps left for some nodes: they are tried again one after another. Pure.

The results so far are kept, so each attempt continues with the other nodes. An attempt takes up to half a second, in
turns. There is one attempt every ten seconds for all pods together, so that hard requests do not take the time of
others.
"""

from collections.abc import Iterable
from dataclasses import dataclass, field

from scheduler.cycle.instructions import Instruction
from scheduler.pending.part import Part
from scheduler.queue.queue import Queue

APART_S = 10.0


@dataclass(slots=True)
class UnfinishedSearches(Part):
    """The pods' uids; the pod that has waited longest is first."""

    queue: Queue
    _uids: dict[str, None] = field(default_factory=dict)
    _next_try: float = 0.0

    def add(self, uid: str, now: float) -> None:
        """Record that the search for a pod must continue."""
        if not self._uids:
            self._next_try = max(self._next_try, now + APART_S)
        self._uids.setdefault(uid)

    def tick(self, now: float) -> Iterable[Instruction]:
        while self._uids and now >= self._next_try:
            uid = next(iter(self._uids))
            del self._uids[uid]
            if self.queue.is_unschedulable(uid):
                self.queue.requeue(uid)
                self._next_try = now + APART_S
        return ()

    def next_due(self) -> float | None:
        return self._next_try if self._uids else None

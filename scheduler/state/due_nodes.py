"""When each node is to be checked next. Pure."""

import heapq
from dataclasses import dataclass, field

# Number of outdated entries of the heap, in addition to the number of valid ones, beyond which it is rebuilt.
_STALE = 64


@dataclass(slots=True)
class DueNodes:
    """Nodes by the time at which they are due, the earliest first; each node is there once."""

    _at: dict[str, float] = field(default_factory=dict)
    _heap: list[tuple[float, str]] = field(default_factory=list)

    def add(self, node: str, at: float) -> None:
        if self._at.get(node, at + 1.0) > at:
            self._at[node] = at
            heapq.heappush(self._heap, (at, node))
            if len(self._heap) > 2 * len(self._at) + _STALE:
                self._heap = [(at, node) for node, at in self._at.items()]
                heapq.heapify(self._heap)

    def drop(self, node: str) -> None:
        self._at.pop(node, None)

    def next(self) -> float | None:
        while self._heap and self._at.get(self._heap[0][1]) != self._heap[0][0]:
            heapq.heappop(self._heap)
        return self._heap[0][0] if self._heap else None

    def take(self, now: float) -> str | None:
        """Return a node that is due; None if there is none."""
        at = self.next()
        if at is None or at > now:
            return None
        _, node = heapq.heappop(self._heap)
        del self._at[node]
        return node

"""When each node is to be checked next. Pure."""

from math import inf


class DueNodes:
    """Nodes by the time at which they are due."""

    def __init__(self) -> None:
        self._at: dict[str, float] = {}
        # When the first one is due; possibly too early, never too late.
        self._next = inf

    def add(self, node: str, at: float) -> None:
        self._at[node] = min(self._at.get(node, inf), at)
        self._next = min(self._next, at)

    def drop(self, node: str) -> None:
        self._at.pop(node, None)

    def next(self) -> float | None:
        return self._next if self._at else None

    def take(self, now: float) -> str | None:
        """Return the node that is due first; None if none is."""
        if not self._at or now < self._next:
            return None
        at, node = min((at, node) for node, at in self._at.items())
        if at <= now:
            del self._at[node]
        self._next = min(self._at.values(), default=inf)
        return node if at <= now else None

"""Pods whose last decision had no steps left for some nodes: they are tried again one after another. Pure.

The results so far are kept, so each attempt continues with the other nodes. An attempt takes up to half a second, in
turns. There is one attempt every ten seconds for all pods together, so that hard requests do not take the time of
others.
"""

from collections.abc import Iterator

APART_S = 10.0


class UnfinishedSearches:
    """The pods' uids; the pod that has waited longest is first."""

    def __init__(self) -> None:
        self._uids: dict[str, None] = {}
        self._next = 0.0

    def add(self, uid: str, now: float) -> None:
        """Record that the search for a pod must continue."""
        if not self._uids:
            self._next = max(self._next, now + APART_S)
        self._uids.setdefault(uid)

    def due(self, now: float) -> Iterator[str]:
        """Yield and drop the pods to try if it is time for one."""
        while self._uids and now >= self._next:
            uid = next(iter(self._uids))
            del self._uids[uid]
            yield uid

    def begun(self, now: float) -> None:
        """Record that one of them is tried."""
        self._next = now + APART_S

    def next_due(self) -> float | None:
        """Return when the next one is to be tried; None if there is none."""
        return self._next if self._uids else None

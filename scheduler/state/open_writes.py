"""Writes that have no result yet: few are under way at once. Pure."""

from itertools import islice

# A write without a definite answer for so many seconds holds up no other one. Of a pod that it makes too large for etcd
# the answer is 500 for as long as the pod exists (kubernetes/kubernetes issue 112152).
_LONG_S = 10.0


class OpenWrites:
    """Pods with a write under way, by when it began, the earliest first."""

    def __init__(self, most: int) -> None:
        self._most = most
        self._began: dict[str, float] = {}

    def begin(self, uid: str, now: float) -> None:
        self._began[uid] = now

    def end(self, uid: str) -> None:
        self._began.pop(uid, None)

    def next_at(self) -> float:
        """Return from when another write may begin."""
        over = len(self._began) - self._most
        return next(islice(self._began.values(), over, None)) + _LONG_S if over >= 0 else 0.0

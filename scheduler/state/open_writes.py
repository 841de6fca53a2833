"""Writes that have no result yet: few are under way at once, and of a namespace in trouble fewer still. Pure.

The API server may wait for a webhook of one namespace, up to 30 s for each write, and then refuse it. Such a namespace
gets few writes at once until one succeeds, so that it neither takes the room of many pods nor holds up other
namespaces.
"""

from itertools import islice

# In seconds. API servers answer most writes within some milliseconds: a later answer is a sign of trouble in its
# namespace, and such a write holds up no other namespace.
_SLOW_S = 1.0
# A write without a definite answer for so many seconds does not hold up others of its namespace. Of a pod that it makes
# too large for etcd the answer is 500 for as long as the pod exists (kubernetes/kubernetes issue 112152).
_ABANDONED_S = 10.0
# How many writes are under way at once in a namespace in trouble.
_IN_TROUBLE = 4
_UNLIMITED = 1 << 30


class OpenWrites:
    """Pods with a write under way, by when it began, the earliest first; at most ``most`` at once that are not slow."""

    def __init__(self, most: int | None = None) -> None:
        self._most = most
        self._began: dict[str, float] = {}
        self._namespaces: dict[str, str] = {}
        self._by_namespace: dict[str, dict[str, float]] = {}
        self._now = float("-inf")
        # Namespaces where the last write was denied.
        self._denied: set[str] = set()

    def begin(self, uid: str, namespace: str, now: float) -> None:
        self.end(uid)
        self._began[uid], self._namespaces[uid] = now, namespace
        self._by_namespace.setdefault(namespace, {})[uid] = now

    def end(self, uid: str) -> None:
        """Record that a write has ended."""
        if self._began.pop(uid, None) is None:
            return
        namespace = self._namespaces.pop(uid)
        under_way = self._by_namespace[namespace]
        del under_way[uid]
        if not under_way:
            del self._by_namespace[namespace]

    def note(self, namespace: str, *, is_denied: bool) -> None:
        """Record whether admission has denied the write of a namespace that has ended last."""
        (self._denied.add if is_denied else self._denied.discard)(namespace)

    def next_at(self) -> float:
        """Return from when another write may begin."""
        over = len(self._began) - (self._most or 0)
        if self._most is None or over < 0:
            return 0.0
        return next(islice(self._began.values(), over, None)) + _SLOW_S

    def has_trouble(self, now: float) -> bool:
        """Return whether any namespace may be in trouble."""
        return bool(self._denied) or next(iter(self._began.values()), now) < now - _SLOW_S

    def room(self, namespace: str, now: float) -> int:
        """Return how many more writes of a namespace may begin now."""
        self._now = max(self._now, now)
        under_way = self._by_namespace.get(namespace)
        if under_way is None:
            return _IN_TROUBLE if namespace in self._denied else _UNLIMITED
        if namespace not in self._denied and next(iter(under_way.values())) >= now - _SLOW_S:
            return _UNLIMITED
        return max(_IN_TROUBLE - sum(began > now - _ABANDONED_S for began in under_way.values()), 0)

    def full_until(self, namespace: str) -> float:
        """Return when a namespace that is full may have room though none of its writes ends."""
        under_way, abandoned = self._by_namespace.get(namespace, {}), self._now - _ABANDONED_S
        return next((began + _ABANDONED_S for began in under_way.values() if began > abandoned), self._now)

"""Writes that have no result yet. Their number is limited, and more so for a namespace in trouble. Pure.

The API server may wait for a webhook of one namespace, up to 30 s for each write, and then reject it. Such a namespace
gets few writes at once until one succeeds, so that it neither reserves the room of many pods nor delays other
namespaces.
"""

from itertools import islice

# Seconds. API servers answer most writes within milliseconds: a later answer indicates trouble in its namespace, and
# such a write delays no other namespace.
_SLOW_S = 1.0
# Seconds after which a write without a definite answer no longer delays others of its namespace. For a pod that the
# write makes too large for etcd, the answer is 500 for as long as the pod exists (kubernetes/kubernetes issue 112152).
_ABANDON_S = 10.0
# Maximum number of writes in progress in a namespace in trouble.
_TROUBLE_LIMIT = 4
_UNLIMITED = 1 << 30


class OpenWrites:
    """Pods with a write in progress by its start, the earliest first; at most ``limit`` at once that are not slow."""

    def __init__(self, limit: int | None = None) -> None:
        self._limit = limit
        self._begin_times: dict[str, float] = {}
        self._namespaces: dict[str, str] = {}
        self._times_by_namespace: dict[str, dict[str, float]] = {}
        self._time = float("-inf")
        # Namespaces whose last write was denied.
        self._denied_namespaces: set[str] = set()

    def begin(self, uid: str, namespace: str, now: float) -> None:
        self.end(uid)
        self._begin_times[uid], self._namespaces[uid] = now, namespace
        self._times_by_namespace.setdefault(namespace, {})[uid] = now

    def end(self, uid: str) -> None:
        if self._begin_times.pop(uid, None) is None:
            return
        namespace = self._namespaces.pop(uid)
        begin_times = self._times_by_namespace[namespace]
        del begin_times[uid]
        if not begin_times:
            del self._times_by_namespace[namespace]

    def note(self, namespace: str, *, is_denied: bool) -> None:
        """Record whether admission denied the most recently ended write of a namespace."""
        (self._denied_namespaces.add if is_denied else self._denied_namespaces.discard)(namespace)

    def next_at(self) -> float:
        """Return from when another write may start."""
        excess = len(self._begin_times) - (self._limit or 0)
        if self._limit is None or excess < 0:
            return 0.0
        return next(islice(self._begin_times.values(), excess, None)) + _SLOW_S

    def has_trouble(self, now: float) -> bool:
        return bool(self._denied_namespaces) or next(iter(self._begin_times.values()), now) < now - _SLOW_S

    def room(self, namespace: str, now: float) -> int:
        """Return how many more writes of a namespace may start now."""
        self._time = max(self._time, now)
        begin_times = self._times_by_namespace.get(namespace)
        if begin_times is None:
            return _TROUBLE_LIMIT if namespace in self._denied_namespaces else _UNLIMITED
        if namespace not in self._denied_namespaces and next(iter(begin_times.values())) >= now - _SLOW_S:
            return _UNLIMITED
        return max(_TROUBLE_LIMIT - sum(begin_time > now - _ABANDON_S for begin_time in begin_times.values()), 0)

    def full_until(self, namespace: str) -> float:
        """Return when a full namespace may have room even if none of its writes ends."""
        begin_times, abandon_time = self._times_by_namespace.get(namespace, {}), self._time - _ABANDON_S
        return next(
            (begin_time + _ABANDON_S for begin_time in begin_times.values() if begin_time > abandon_time), self._time
        )

"""How long groups wait whose decision could not be carried out: 1 s, then twice as long each time, up to 10 s. Pure."""

from scheduler.kube.group_membership import GroupKey

_BACKOFF_S, _LONGEST_BACKOFF_S = 1.0, 10.0


class GroupBackoffs:
    """How often each group has failed since a member was bound last, and until when it waits."""

    def __init__(self) -> None:
        self._failures: dict[GroupKey, tuple[int, float]] = {}

    def __bool__(self) -> bool:
        return bool(self._failures)

    def fail(self, key: GroupKey, now: float) -> float:
        """Record a failure; return for how many seconds the group waits. Several in one wait are one."""
        failures, until = self._failures.get(key, (0, 0.0))
        if now >= until:
            failures, until = failures + 1, now + min(_BACKOFF_S * 2 ** min(failures, 8), _LONGEST_BACKOFF_S)
            self._failures[key] = failures, until
        return until - now

    def forget(self, key: GroupKey) -> None:
        self._failures.pop(key, None)

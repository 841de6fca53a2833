"""Backoff for groups whose decision could not be carried out: 1 s, doubled each time, up to 10 s. Pure.

A half placed group does not wait the first time: the room for its other members is free now, and nothing reserves it.
"""

from scheduler.kube.group_membership import GroupKey

_BACKOFF_S, _LONGEST_BACKOFF_S = 1.0, 10.0
# Seconds within which the Bindings of one decision all end.
_DECISION_S = 0.1


class GroupBackoffs:
    """For each group: how often it has failed since a member was bound last, since when, and until when it waits."""

    def __init__(self) -> None:
        self._failures: dict[GroupKey, tuple[int, float, float]] = {}

    def __bool__(self) -> bool:
        return bool(self._failures)

    def fail(self, key: GroupKey, now: float, *, is_half: bool = False) -> float:
        """Record a failure; return for how many seconds the group waits. Failures during one wait count once."""
        failures, start, end = self._failures.get(key, (0, 0.0, 0.0))
        if now >= end:
            end = now + min(_BACKOFF_S * 2 ** min(failures, 8), _LONGEST_BACKOFF_S)
            failures, start = failures + 1, now
            self._failures[key] = failures, start, end
        return 0.0 if is_half and failures == 1 and now < start + _DECISION_S else end - now

    def forget(self, key: GroupKey) -> None:
        self._failures.pop(key, None)

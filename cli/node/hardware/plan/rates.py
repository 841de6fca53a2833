"""Judge a measured rate by its limit."""

from collections.abc import Sequence

OVER_PERCENT = 15
# A rate below this share of its limit means that traffic does not flow, not that the limit holds.
_LEAST_SHARE = 0.5
# Without a limit traffic has to be this many times faster than the highest limit.
_FREE_TIMES = 2


def rate_fault(limit_mbps: int | None, mbps: float, limits_mbps: Sequence[int]) -> str | None:
    """Return what is wrong with a rate in Mb/s among those measured at ``limits_mbps``; None for no limit."""
    if limit_mbps is None:
        free = mbps >= _FREE_TIMES * max(limits_mbps)
        return None if free else f"does not run free: less than {_FREE_TIMES} times {max(limits_mbps)} Mb/s"
    if mbps > limit_mbps * (100 + OVER_PERCENT) / 100:
        return f"exceeds the limit by more than {OVER_PERCENT} %"
    return "hardly flows: less than half of the limit" if mbps < limit_mbps * _LEAST_SHARE else None

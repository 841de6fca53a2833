"""Judge measured rates, in Mb/s."""

from collections.abc import Sequence
from dataclasses import dataclass

OVER_PERCENT = 15
# A rate below this share of its limit means that traffic does not flow, not that the limit holds.
_LEAST_SHARE = 0.5
# Without a limit traffic has to be this many times faster than the highest limit: a limit near it would show nothing.
_FREE_TIMES = 1.5
# Two senders' min rates as percents of what the port moves. Alone they would have a half each, far from both.
_SHARES_PERCENT = (15, 75)
_FREE_PERCENT = 85
LEAST_OVERLAP = 0.9
_LIMITS_PERCENT = (10, 40)
# A new limit has to be in force before this second after it was set.
_CHANGE_S = 2


def rate_fault(limit_mbps: int | None, mbps: float, limits_mbps: Sequence[int]) -> str | None:
    """Return what is wrong with a rate among those measured at ``limits_mbps``, None if it is right.

    ``limit_mbps`` None is a run without a limit.
    """
    if limit_mbps is None:
        free = mbps >= _FREE_TIMES * max(limits_mbps)
        return None if free else f"does not run free: less than {_FREE_TIMES} times {max(limits_mbps)} Mb/s"
    if exceeds(limit_mbps, mbps):
        return f"exceeds the limit by more than {OVER_PERCENT} %"
    return "hardly flows: less than half of the limit" if mbps < limit_mbps * _LEAST_SHARE else None


def exceeds(limit_mbps: int, mbps: float) -> bool:
    return mbps > limit_mbps * (100 + OVER_PERCENT) / 100


def limits_for(free_mbps: float) -> tuple[int, ...]:
    """Return the limits to try on a VF that sends ``free_mbps`` without one."""
    return tuple(max(1, round(free_mbps * percent / 100)) for percent in _LIMITS_PERCENT)


def min_rates_for(free_mbps: float) -> tuple[int, int]:
    """Return the min rates of two senders that compete for ``free_mbps``."""
    low, high = (max(1, round(free_mbps * percent / 100)) for percent in _SHARES_PERCENT)
    return low, high


@dataclass(frozen=True, slots=True)
class Shares:
    """Two senders at the same time: their min rates and measured rates, what one moves alone, and their overlap."""

    min_mbps: tuple[int, int]
    mbps: tuple[float, ...]
    free_mbps: float
    overlap: float


def no_competition(shares: Shares) -> str | None:
    """Return why a measurement shows nothing about min rates, None if it does."""
    if shares.overlap < LEAST_OVERLAP:
        return f"the pairs were sending together for only {shares.overlap:.0%} of the measured time"
    if sum(shares.mbps) < sum(shares.min_mbps) * _FREE_PERCENT / 100:
        return "together the pairs moved less than their min rates, so something else held them up"
    return None


def share_fault(shares: Shares) -> str | None:
    """Return which sender got less than its min rate, None if none did."""
    short = [
        f"{least} Mb/s: got {mbps:.0f}"
        for least, mbps in zip(shares.min_mbps, shares.mbps, strict=True)
        if mbps < least * (100 - OVER_PERCENT) / 100
    ]
    return f"less than min_tx_rate: {', '.join(short)}" if short else None


def change_s(limit_mbps: int, by_second: Sequence[float]) -> int | None:
    """Return from which second on a new limit was kept to the end, None if it was exceeded at the end."""
    late = next((at for at in reversed(range(len(by_second))) if exceeds(limit_mbps, by_second[at])), -1)
    return late + 1 if late + 1 < len(by_second) else None


def change_fault(limit_mbps: int, by_second: Sequence[float]) -> str | None:
    """Return what is wrong with the rates of each second after a limit was changed."""
    second = change_s(limit_mbps, by_second)
    return None if second is not None and second <= _CHANGE_S else f"not kept within {_CHANGE_S} s"

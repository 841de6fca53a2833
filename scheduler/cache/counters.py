"""Counters without zeros; without numpy, which `kubectl mooring` may lack."""

from collections import Counter
from collections.abc import Hashable
from typing import TypeVar

K = TypeVar("K", bound=Hashable)


def shift(counts: Counter[K], key: K, by: int) -> None:
    """Add to the count of a key; a key with count 0 is removed."""
    if count := counts[key] + by:
        counts[key] = count
    else:
        del counts[key]

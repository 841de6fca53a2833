"""Natural order of names: numbers within them count by their values, so that ``rail2`` comes before ``rail10``."""

import re

_DIGITS = re.compile(r"(\d+)")
# Longer numbers are text.
MOST_DIGITS = 18


def natural(text: str) -> tuple[tuple[int, int, str], ...]:
    """Return a key by which numbers within texts sort by their values; different texts have different keys."""
    parts = (
        (0, int(part), "") if part.isdigit() and len(part) <= MOST_DIGITS else (1, 0, part)
        for part in _DIGITS.split(text)
    )
    # What ends first comes first; ``rail1`` and ``rail01`` end together.
    return *parts, (-1, 0, text)

"""Natural order of names: numbers in them are compared by value, so ``rail2`` comes before ``rail10``."""

import re

_DIGITS = re.compile(r"(\d+)")
# Longer numbers are compared as text.
MOST_DIGITS = 18


def natural(text: str) -> tuple[tuple[int, int, str], ...]:
    """Return a sort key that compares numbers in the text by value; different texts have different keys."""
    parts = [
        (0, int(part), "") if part.isdigit() and len(part) <= MOST_DIGITS else (1, 0, part)
        for part in _DIGITS.split(text)
    ]
    # A prefix comes first; the text makes the keys of ``rail1`` and ``rail01`` differ.
    return *parts, (-1, 0, text)

"""Find which of many objects are gone, in steps: a hundred thousand at once would delay everything. Pure."""

from collections.abc import Iterator, Sequence

# Objects checked before other work gets its turn: less than a millisecond.
_AT_ONCE = 2048


def missing(known: Sequence[str], there: Sequence[str]) -> Iterator[str | None]:
    """Yield the missing objects in order, and None now and then, where other work may run."""
    present: set[str] = set()
    for start in range(0, len(there), _AT_ONCE):
        present.update(there[start : start + _AT_ONCE])
        yield None
    gone: list[str] = []
    for start in range(0, len(known), _AT_ONCE):
        gone += [one for one in known[start : start + _AT_ONCE] if one not in present]
        yield None
    yield from sorted(gone)

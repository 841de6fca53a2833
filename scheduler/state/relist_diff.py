"""Find the missing ones of many objects, in steps: a hundred thousand at once would delay everything. Pure."""

from collections.abc import Iterator, Sequence

# Number of objects checked before other work gets its turn: less than a millisecond.
_AT_ONCE = 2048


def find_missing(known_uids: Sequence[str], present_uids: Sequence[str]) -> Iterator[str | None]:
    """Yield the missing objects in order, and None from time to time, when other work may run."""
    present: set[str] = set()
    for start in range(0, len(present_uids), _AT_ONCE):
        present.update(present_uids[start : start + _AT_ONCE])
        yield None
    missing_uids: list[str] = []
    for start in range(0, len(known_uids), _AT_ONCE):
        missing_uids += [uid for uid in known_uids[start : start + _AT_ONCE] if uid not in present]
        yield None
    yield from sorted(missing_uids)

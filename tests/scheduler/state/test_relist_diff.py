"""Objects that are gone are found whatever their number, with pauses in between."""

import random

import pytest

from scheduler.state.event_handlers import absent_uids


@pytest.mark.parametrize("size", [0, 1, 2047, 2048, 2049, 10_000])
def test_missing_objects_are_named_in_order(size: int) -> None:
    """And no others; the number of pauses follows the work."""
    chance = random.Random(size)
    known = [f"u{number}" for number in range(size)]
    there = [uid for uid in known if chance.random() < 0.9] + ["new"]
    chance.shuffle(there)
    found = list(absent_uids(known, there))
    assert [uid for uid in found if uid is not None] == sorted(set(known) - set(there))
    assert found.count(None) == -(-len(there) // 2048) + -(-size // 2048)

"""A plan by sums for members that fill nodes: found exactly where brute force finds one, in portions."""

import itertools
from collections.abc import Sequence
from random import Random

import pytest

from scheduler.cycle.groups.node_filling import Counts, EqualMembers, FillableNode, NodeFilling


def _exists(kinds: Sequence[EqualMembers], bins: Sequence[FillableNode], never: Counts | None) -> bool:
    """Return whether all members can be placed, by trying every node for every member."""
    members = [number for number, kind in enumerate(kinds) for _ in range(kind.count)]
    for where in itertools.product(range(len(bins)), repeat=len(members)):
        on = [[kind for kind, at in zip(members, where, strict=True) if at == number] for number in range(len(bins))]
        if all(_holds(kinds, one, there, never) for one, there in zip(bins, on, strict=True)):
            return True
    return False


def _holds(kinds: Sequence[EqualMembers], one: FillableNode, there: Sequence[int], never: Counts | None) -> bool:
    used = [sum(kinds[kind].needs[line] for kind in there) for line in range(len(one.left))]
    counts = tuple(there.count(kind) for kind in range(len(kinds)))
    return (
        all(takes <= has for takes, has in zip(used, one.left, strict=True))
        and all(one.passing >> kind & 1 for kind in there)
        and counts != never
    )


def _searched(kinds: Sequence[EqualMembers], bins: Sequence[FillableNode], never: Counts | None = None) -> NodeFilling:
    filling = NodeFilling(kinds, bins, lambda _, counts: counts != never)
    for _ in range(10_000):
        if filling.is_over:
            break
        filling.advance()
    assert filling.is_over
    return filling


@pytest.mark.parametrize("seed", range(150))
def test_a_plan_is_found_exactly_if_brute_force_finds_one(seed: int) -> None:
    """With lines of very different size, kinds that do not pass everywhere, and sets that do not fit by other means."""
    random = Random(seed)
    kinds = [
        EqualMembers((random.randint(0, 3), 1, random.randint(0, 4) << 30), random.randint(1, 2))
        for _ in range(random.randint(1, 3))
    ]
    bins = [
        FillableNode(
            (random.randint(0, 6), random.randint(0, 4), random.randint(0, 7) << 30), random.randrange(1, 8), number
        )
        for number in range(random.randint(1, 3))
    ]
    never = tuple(random.randint(0, 2) for _ in kinds) if random.random() < 0.3 else None
    never = never if never is not None and any(never) else None
    filling = _searched(kinds, bins, never)
    assert (filling.found is not None) == _exists(kinds, bins, never)
    if filling.found is not None:
        assert [sum(counts) for counts in zip(*filling.found, strict=True)] == [kind.count for kind in kinds]
        for one, counts in zip(bins, filling.found, strict=True):
            there = [kind for kind, count in enumerate(counts) for _ in range(count)]
            assert _holds(kinds, one, there, never)


def test_one_portion_asks_once_whether_a_set_fits_and_bins_alike_share_the_answer() -> None:
    """A question is a search for a placement, of which a turn takes few."""
    asked: list[Counts] = []

    def fits(_: int, counts: Counts) -> bool:
        asked.append(counts)
        return True

    filling = NodeFilling([EqualMembers((3,), 4)], [FillableNode((3,), 1, "alike")] * 4, fits)
    filling.advance()
    assert (asked, filling.is_over) == ([(1,)], False)
    filling.advance()
    assert (asked, filling.found) == ([(1,)], [(1,)] * 4)


def test_a_search_without_end_ends() -> None:
    """After so many steps nothing is known; the search member by member goes on."""
    random = Random(1)
    kinds = [EqualMembers((random.randint(1000, 3000), random.randint(1000, 3000)), 1) for _ in range(40)]
    total = [sum(kind.needs[line] for kind in kinds) for line in range(2)]
    bins = [FillableNode((total[0] // 10, total[1] // 10 + 1), (1 << 40) - 1, 0) for _ in range(10)]
    assert _searched(kinds, bins).found is None

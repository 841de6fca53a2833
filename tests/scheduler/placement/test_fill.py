"""The sets worth filling a bin with: both ways to list them list the same ones."""

from random import Random

import pytest

from scheduler.placement.fill import Bin, BudgetSpent, Fillings, Item, Steps


def _listed(
    monkeypatch: pytest.MonkeyPatch, cost: int, capacity: Bin, items: list[tuple[int, Item]], least: int, slack: int
) -> list[int]:
    monkeypatch.setattr(Fillings, "_cost_of_halves", lambda _: cost)
    return list(Fillings(capacity, items, least, slack, Steps(10**9)))


@pytest.mark.parametrize("seed", range(300))
def test_sets_of_two_halves_are_those_that_the_sums_lead_to(monkeypatch: pytest.MonkeyPatch, seed: int) -> None:
    """With equal items, items of size 0, little and much slack; the least waste comes first both ways."""
    random = Random(seed)
    sizes = sorted((random.randint(0, 12) for _ in range(random.randint(0, 9))), reverse=True)
    items = [(index, Item(size, random.randint(1, 3))) for index, size in enumerate(sizes)]
    capacity = Bin(random.randint(0, 6), random.randint(max(sizes, default=0), 30))
    least, slack = random.randint(0, 3), random.choice((0, 1, 3, 30))
    halves, sums = (_listed(monkeypatch, cost, capacity, items, least, slack) for cost in (0, 10**9))
    assert sorted(halves) == sorted(sums)
    assert len(set(halves)) == len(halves)
    held = [sum(item.size for index, item in items if one >> index & 1) for one in halves]
    assert held == sorted(held, reverse=True)


def test_few_items_of_a_large_bin_are_listed_in_halves_within_a_small_budget() -> None:
    sizes = sorted((100_003 + 7 * number * number for number in range(16)), reverse=True)
    capacity = Bin(4, sum(sizes[::4]))
    assert list(Fillings(capacity, [(k, Item(size, 3)) for k, size in enumerate(sizes)], 4, 0, Steps(1_000)))


def test_sets_of_halves_spend_steps_too() -> None:
    sizes = sorted((100_003 + 7 * number * number for number in range(16)), reverse=True)
    with pytest.raises(BudgetSpent):
        list(Fillings(Bin(4, sum(sizes[::4])), [(k, Item(size, 3)) for k, size in enumerate(sizes)], 4, 0, Steps(100)))

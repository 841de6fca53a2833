"""Two bins are always decided: against a search over all sets, and on instances that fill two PFs to the last Mb/s."""

from collections.abc import Callable, Sequence
from itertools import combinations
from random import Random

import pytest

from bench.loads.place_instances import Family, almost_multiples, clusters, few_sizes, fill, moved, some_sizes
from scheduler.placement.fill import Bin, BudgetSpent, Item, Steps
from scheduler.placement.place import Fit, NoFit, OutOfBudget, place
from scheduler.placement.subset_sum.by_number import by_number_and_sum
from scheduler.placement.subset_sum.drawn import Bounds
from scheduler.placement.subset_sum.exchange import by_exchange
from scheduler.placement.subset_sum.meet import by_few_sizes, by_neighbours, have_few_choices
from scheduler.placement.subset_sum.two_bins import choose, for_first

AMPLE = 10_000_000
Search = Callable[[Sequence[int], Bounds, Steps], list[int] | None]


def exists(sizes: Sequence[int], bounds: Bounds) -> bool:
    """Return whether any set of positions is within the bounds, by trying all."""
    return any(
        bounds.low <= sum(sizes[position] for position in chosen) <= bounds.high
        for number in range(max(0, bounds.least), min(bounds.most, len(sizes)) + 1)
        for chosen in combinations(range(len(sizes)), number)
    )


@pytest.mark.parametrize("seed", range(40))
def test_a_set_is_found_exactly_when_there_is_one(seed: int) -> None:
    """Of up to nine items, some without a size, within bounds that one set of them has or just misses."""
    random = Random(seed)
    found_at_all = 0
    for _ in range(60):
        largest = random.choice((3, 20, 500))
        sizes = [random.choice((0, random.randint(1, largest), largest)) for _ in range(random.randint(0, 9))]
        some = random.sample(sizes, random.randint(0, len(sizes)))
        least, low = len(some) + random.randint(-2, 1), sum(some) + random.randint(-5, 1)
        bounds = Bounds(least, least + random.choice((-1, 0, 0, 1, 4)), low, low + random.choice((-1, 0, 0, 1, 2, 30)))
        chosen = choose(sizes, bounds, Steps(AMPLE))
        assert (chosen is not None) == exists(sizes, bounds), (sizes, bounds, chosen)
        if chosen is not None:
            found_at_all += 1
            assert bounds.least <= len(chosen) <= bounds.most
            assert bounds.low <= sum(sizes[position] for position in chosen) <= bounds.high
    assert 5 < found_at_all < 55


@pytest.mark.parametrize("seed", range(20))
def test_a_set_of_many_sizes_is_found_exactly_when_there_is_one(seed: int) -> None:
    """Of twelve items of as many sizes, where no search by few sizes helps."""
    random, outcomes = Random(seed), [0, 0]
    for _ in range(12):
        sizes = random.sample(range(1, random.choice((30, 900))), 12)
        part = random.sample(sizes, random.randint(0, 12))
        least, low = max(0, len(part) - random.choice((0, 1, 9))), max(0, sum(part) + random.randint(-5, 5))
        bounds = Bounds(least, len(part), low, low + random.choice((0, 0, 3)))
        chosen = choose(sizes, bounds, Steps(AMPLE))
        assert (chosen is not None) == exists(sizes, bounds), (sizes, bounds, chosen)
        assert chosen is None or within(sizes, sorted(chosen), bounds)
        outcomes[chosen is None] += 1
    assert min(outcomes)


@pytest.mark.parametrize("seed", range(20))
def test_items_that_one_bin_only_may_hold_lie_there(seed: int) -> None:
    """And an assignment is found exactly when there is one."""
    random = Random(seed)
    for _ in range(40):
        items = [Item(random.randint(0, 12), random.choice((2, 8, 10, 10, 10))) for _ in range(random.randint(1, 8))]
        bins = [Bin(random.randint(0, 6), random.randint(0, 40)) for _ in range(2)]
        chosen = for_first(items, (1, 3), bins[0], bins[1], Steps(AMPLE))
        ways = [set(first) for number in range(len(items) + 1) for first in combinations(range(len(items)), number)]
        right = [first for first in ways if fits(items, first, bins)]
        assert (chosen is None) == (not right)
        assert chosen is None or chosen in right


def fits(items: Sequence[Item], first: set[int], bins: Sequence[Bin]) -> bool:
    """Return whether both bins have the slots and the size for their items, and may hold them."""
    parts = [[item for at, item in enumerate(items) if (at in first) == here] for here in (True, False)]
    return all(
        len(part) <= capacity.slots
        and sum(item.size for item in part) <= capacity.size
        and all(item.bins & place for item in part)
        for part, capacity, place in zip(parts, bins, (2, 8), strict=True)
    )


@pytest.mark.parametrize(("pfs", "vfs"), [(2, 24), (2, 40), (2, 64), (4, 16), (5, 16), (8, 16), (16, 16)])
@pytest.mark.parametrize("tight", [False, True])
def test_pfs_that_a_pod_fills_to_the_last_mbps_are_filled(pfs: int, vfs: int, *, tight: bool) -> None:
    """Uneven numbers of VFs a PF; tight: no VF is left over either."""
    random = Random(7)
    for _ in range(10):
        demands, free, _ = fill(pfs, vfs, tight=tight)(random)
        outcome = place(demands, free)
        assert isinstance(outcome, Fit), outcome
        for index, capacity in enumerate(free):
            rates = [demand.min_tx_rate for demand, pf in zip(demands, outcome.pfs, strict=True) if pf == index]
            assert sum(rates) == capacity.mbps
            assert len(rates) <= capacity.vfs


@pytest.mark.parametrize("mbps", [400_000, 1_600_000])
def test_two_pfs_are_decided_whatever_the_rates_of_64_vfs(mbps: int) -> None:
    """With as many VFs as are free and the last Mb/s, or one that is moved, and with rates of few sizes."""
    random = Random(3)
    planted = fill(2, 64, tight=True, mbps=mbps)
    for family in (planted, moved(planted, 1), few_sizes(64, (mbps // 1000, mbps // 40 + 1, 777, mbps // 10 + 3))):
        for _ in range(6):
            demands, free, _ = family(random)
            outcome = place(demands, free)
            assert not isinstance(outcome, OutOfBudget), (demands, free)
            assert family is not planted or isinstance(outcome, Fit)


@pytest.mark.parametrize("seed", range(12))
def test_the_search_by_numbers_finds_what_is_planted(seed: int) -> None:
    """Whatever part of the items it is, of many sizes, few, equal, or all with one remainder."""
    random = Random(seed)
    for _ in range(12):
        drawn = random.choice((range(1, 9000), (3, 700), (7,)))
        unit, rest = random.choice(((1, 0), (50, 7)))
        sizes = sorted((random.choice(drawn) * unit + rest for _ in range(random.randint(2, 30))), reverse=True)
        part = random.sample(sizes, random.randint(0, len(sizes)))
        number, total, wider = len(part), sum(part), random.choice((0, 0, 1, 60))
        bounds = Bounds(max(0, number - wider), number + wider, total - wider, total + random.choice((0, wider)))
        chosen = by_number_and_sum(sizes, bounds, Steps(AMPLE))
        assert chosen is not None, (sizes, bounds)
        assert within(sizes, chosen, bounds)


@pytest.mark.parametrize("seed", range(12))
def test_the_search_by_few_sizes_finds_a_set_exactly_when_there_is_one(seed: int) -> None:
    """As all sets and as the search by numbers say; bounds are what one set has, or just miss it."""
    random, outcomes = Random(seed), [0, 0]
    for _ in range(40):
        drawn = [random.randint(1, 60) for _ in range(random.randint(1, 4))]
        sizes = sorted((random.choice(drawn) for _ in range(random.randint(1, 11))), reverse=True)
        part = random.sample(sizes, random.randint(0, len(sizes)))
        number, low = len(part), max(0, sum(part) + random.randint(-3, 3))
        bounds = Bounds(number, min(number + random.choice((0, 0, 2)), len(sizes)), low, low + random.choice((0, 0, 2)))
        chosen = by_few_sizes(sizes, bounds, Steps(AMPLE))
        assert (chosen is not None) == exists(sizes, bounds), (sizes, bounds, chosen)
        assert chosen is None or within(sizes, chosen, bounds)
        assert (chosen is None) == (by_number_and_sum(sizes, bounds, Steps(AMPLE)) is None)
        outcomes[chosen is None] += 1
    assert min(outcomes) > 4


@pytest.mark.parametrize("sizes_drawn", [2, 4, 7])
def test_64_items_of_few_sizes_are_decided_as_the_search_by_numbers_does(sizes_drawn: int) -> None:
    """With bounds that need every item counted, and both answers."""
    random, outcomes = Random(sizes_drawn), [0, 0]
    for _ in range(16):
        drawn = [random.randint(1, 300) for _ in range(sizes_drawn)]
        sizes = sorted((random.choice(drawn) for _ in range(64)), reverse=True)
        part = random.sample(sizes, random.randint(1, 63))
        low = max(0, sum(part) + random.choice((0, 0, random.randint(-20, 20))))
        bounds = Bounds(len(part), len(part), low, low)
        assert have_few_choices(sizes)
        chosen = by_few_sizes(sizes, bounds, Steps(AMPLE))
        assert (chosen is None) == (by_number_and_sum(sizes, bounds, Steps(AMPLE)) is None)
        assert chosen is None or within(sizes, chosen, bounds)
        outcomes[chosen is None] += 1
    assert outcomes[0]


@pytest.mark.parametrize("seed", range(12))
@pytest.mark.parametrize(("search", "drawn"), [(by_exchange, 20_000), (by_neighbours, 20_000), (by_neighbours, 16)])
def test_what_is_found_near_a_draw_is_within_the_bounds(seed: int, search: Search, drawn: int) -> None:
    """And of 64 items, of 16 sizes as well, a planted part is found nearly always."""
    random, found = Random(seed), 0
    for _ in range(10):
        pool = [random.randint(1, 20_000) for _ in range(drawn)]
        sizes = sorted((random.choice(pool) for _ in range(64)), reverse=True)
        part = random.sample(sizes, random.randint(20, 44))
        bounds = Bounds(len(part), len(part), sum(part) - random.choice((0, 9)), sum(part))
        chosen = search(sizes, bounds, Steps(AMPLE))
        assert chosen is None or within(sizes, chosen, bounds)
        found += chosen is not None
    assert found >= 8


@pytest.mark.parametrize("number", [2, 4, 8, 10, 12, 16, 24, 48])
@pytest.mark.parametrize("mbps", [400_000, 1_600_000])
def test_two_pfs_are_decided_whatever_sizes_the_rates_of_64_vfs_have(number: int, mbps: int) -> None:
    """With and without a VF left over, a Mb/s moved."""
    random = Random(number)
    for tight in (True, False):
        family = some_sizes(64, number, mbps // 16, tight=tight)
        for _ in range(3):
            demands, free, _ = family(random)
            assert not isinstance(place(demands, free), OutOfBudget), (demands, free)


@pytest.mark.parametrize("family", [almost_multiples(64, 100, 25_000), clusters(64, 3_000, 22_000, 200)])
def test_two_pfs_are_decided_where_only_a_search_of_all_sums_can_tell(family: Family) -> None:
    """Nearly all rates are multiples of one number, or about as large as one of two."""
    random = Random(2)
    for _ in range(6):
        demands, free, _ = family(random)
        assert isinstance(place(demands, free), NoFit), (demands, free)


def within(sizes: Sequence[int], chosen: Sequence[int], bounds: Bounds) -> bool:
    """Return whether the positions are distinct, as many as asked for, and of the sum asked for."""
    total = sum(sizes[position] for position in chosen)
    number_fits = bounds.least <= len(set(chosen)) == len(chosen) <= bounds.most
    return number_fits and bounds.low <= total <= bounds.high


def test_steps_set_apart_are_spent_before_the_search_s_own() -> None:
    """A search that exceeds both ends."""
    sizes = [1 << place for place in range(17)]
    steps = Steps(0, bounded=1000)
    assert choose(sizes, Bounds(0, 17, 77, 77), steps) == {0, 2, 3, 6}
    assert (steps.left, steps.bounded < 1000) == (0, True)
    with pytest.raises(BudgetSpent):
        choose(sizes, Bounds(3, 3, 77, 77), Steps(10))

"""Placement within the shares of an offer's entries, against a search over all placements."""

from collections.abc import Sequence
from itertools import product
from random import Random

import pytest

from scheduler.kube.outcomes import Refused
from scheduler.placement.assign import OUT_OF_BUDGET, place_within
from scheduler.placement.place import BUDGET, PfCapacity, VfDemand
from scheduler.placement.shares import Cap, Share, within
from scheduler.placement.steps import Steps


def cap(pfs: int, vfs: int) -> Cap:
    return Cap(pfs, vfs, Share(pfs, vfs, 50, "network 'rail0'", {}), "a")


def valid(chosen: Sequence[int], demands: Sequence[VfDemand], free: Sequence[PfCapacity], caps: Sequence[Cap]) -> bool:
    """Return whether a placement keeps all rules, by their definition alone."""
    return (
        all(demand.pfs >> index & 1 for demand, index in zip(demands, chosen, strict=True))
        and all(chosen.count(index) <= free[index].vfs for index in chosen)
        and all(sum(cap.pfs >> index & 1 for index in chosen) <= max(cap.vfs, 0) for cap in caps)
        and all(
            sum(demand.min_tx_rate for demand, index in zip(demands, chosen, strict=True) if index == number)
            <= capacity.mbps
            for number, capacity in enumerate(free)
        )
    )


@pytest.mark.parametrize("seed", range(4))
def test_a_placement_within_the_shares_is_found_exactly_where_there_is_one(seed: int) -> None:
    """With one or two entries, over PFs with few VFs and little rate left."""
    random, outcomes = Random(seed), set[bool]()
    for number in range(200):
        count = random.randint(2, 4)
        every = (1 << count) - 1
        first = random.randrange(1, every)
        masks = (first, every & ~first)[: random.randint(1, 2)]
        caps = tuple(cap(pfs, random.randint(-1, 3)) for pfs in masks)
        vfs = range(random.randint(1, 5))
        demands = tuple(
            VfDemand(random.choice((0, 20, 30, 50)), random.choice((every, random.randint(1, every)))) for _ in vfs
        )
        free = tuple(PfCapacity(random.randint(0, 3), random.choice((30, 50, 60)) + number % 20) for _ in range(count))
        found = place_within(demands, free, None, (), caps, steps=Steps())
        possible = any(valid(chosen, demands, free, caps) for chosen in product(range(count), repeat=len(demands)))
        assert isinstance(found, Refused) != possible
        assert isinstance(found, Refused) or valid(found.pfs, demands, free, caps)
        outcomes.add(possible)
    assert outcomes == {True, False}


def test_the_choices_that_are_tried_are_few_for_equal_interfaces_and_bounded_for_others() -> None:
    equal = (VfDemand(0, 3),) * 64
    assert len(list(within(equal, [cap(1, 20)], Steps()))) == 1
    # Every interface has another rate, and none fits elsewhere.
    different = tuple(VfDemand(rate, 3) for rate in range(1, 65))
    steps = Steps()
    free = PfCapacity(64, 10_000), PfCapacity(64, 100)
    assert place_within(different, free, None, (), (cap(1, 20),), steps=steps) == Refused(OUT_OF_BUDGET)
    assert steps.spent < 3 * BUDGET


def test_choices_that_no_further_share_admits_cost_steps_too() -> None:
    """Ten interfaces have only the last two PFs, whose shares hold eight. The second has 4,845 choices."""
    demands = (*(VfDemand(rate, 7) for rate in range(1, 11)), *(VfDemand(rate, 6) for rate in range(11, 21)))
    free, caps = (PfCapacity(64, 10_000),) * 3, (cap(1, 20), cap(2, 4), cap(4, 4))
    steps = Steps()
    # All on the second PF, as a search without shares may place them.
    full = (PfCapacity(0, 0), *free[1:])
    assert place_within(demands, full, None, (), caps, steps=steps) == Refused(OUT_OF_BUDGET)
    assert steps.spent < 3 * BUDGET


def test_a_request_that_all_shares_together_cannot_hold_is_refused_without_a_search() -> None:
    demands = tuple(VfDemand(rate, 3) for rate in range(1, 33))
    free = (PfCapacity(64, 10_000),) * 2
    steps = Steps()
    found = place_within(demands, free, None, (), (cap(1, 8), cap(2, 8)), steps=steps)
    assert isinstance(found, Refused)
    assert found.reason.count("requests 32 more") == 2
    assert steps.spent == 0

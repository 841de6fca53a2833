"""Placement against an oracle that tries every assignment, and against instances that are built from a solution."""

from collections.abc import Sequence
from itertools import product
from random import Random

import pytest

from mooring.annotations.request import Spreading
from scheduler.placement.place import Fit, NoFit, OutOfBudget, PfCapacity, VfDemand, place
from scheduler.placement.steps import Steps

POLICIES: tuple[Spreading | None, ...] = (None, "pack", "spread", "distinct")
Instance = tuple[list[VfDemand], list[PfCapacity]]


def valid(
    pfs: Sequence[int], demands: Sequence[VfDemand], free: Sequence[PfCapacity], spreading: Spreading | None
) -> bool:
    """Return whether the rules hold, by their definition alone: selectors, VFs, Σ min_tx_rate, distinct."""
    if len(pfs) != len(demands) or any(not demand.pfs >> pf & 1 for demand, pf in zip(demands, pfs, strict=True)):
        return False
    if spreading == "distinct" and len(set(pfs)) < len(pfs):
        return False
    for index, capacity in enumerate(free):
        rates = [demand.min_tx_rate for demand, pf in zip(demands, pfs, strict=True) if pf == index]
        if rates and (len(rates) > capacity.vfs or sum(rates) > max(0, capacity.mbps)):
            return False
    return True


def fits(demands: Sequence[VfDemand], free: Sequence[PfCapacity], spreading: Spreading | None) -> bool:
    """Return whether any assignment of demands to PFs is valid, by trying them all."""
    return any(valid(pfs, demands, free, spreading) for pfs in product(range(len(free)), repeat=len(demands)))


def small(random: Random) -> Instance:
    """Draw 1-6 VFs on 1-4 PFs (at most 4 ** 5 assignments), rates from so few values that ties and exact fits occur."""
    pfs = random.randint(1, 4)
    vfs = random.randint(1, 5 if pfs == 4 else 6)
    rates = random.choice([(0,), (1, 2, 3), (0, 0, 5), (3, 4, 5, 6, 7), (0, 2, 3, 4, 9), tuple(range(40, 60))])
    every = (1 << pfs) - 1
    masked = random.random()
    demands = [
        VfDemand(random.choice(rates), random.randint(0 if masked < 0.05 else 1, every) if masked < 0.6 else every)
        for _ in range(vfs)
    ]
    share = sum(demand.min_tx_rate for demand in demands) / pfs
    free = [
        PfCapacity(
            random.randint(0, vfs),
            max(-1, round(share * random.choice((0.5, 0.9, 1.0, 1.1, 1.5))) + random.randint(-1, 2)),
        )
        for _ in range(pfs)
    ]
    return demands, free


def solved(random: Random, vfs: int, pfs: int, capacity: int, extra: int) -> Instance:
    """Cut each PF's capacity into the rates of its VFs, to the last Mb/s and the last VF.

    Each VF may lie on its own PF and on ``extra`` more that are drawn for it.
    """
    demands, free = [], []
    for pf in range(pfs):
        count = vfs // pfs + (pf < vfs % pfs)
        marks = sorted(random.randrange(capacity + 1) for _ in range(count - 1))
        for low, high in zip([0, *marks], [*marks, capacity], strict=True):
            others = random.sample([other for other in range(pfs) if other != pf], extra)
            demands.append(VfDemand(high - low, sum(1 << other for other in (pf, *others))))
        free.append(PfCapacity(count, capacity))
    return random.sample(demands, len(demands)), free


@pytest.mark.parametrize("spreading", POLICIES)
@pytest.mark.parametrize("seed", range(4))
def test_a_placement_is_found_exactly_when_there_is_one(seed: int, spreading: Spreading | None) -> None:
    """2,000 small instances a case: as the oracle says, valid, and never out of budget; both answers are frequent."""
    random = Random(f"{seed} {spreading}")
    found = 0
    for _ in range(2000):
        demands, free = small(random)
        outcome = place(demands, free, spreading, steps=Steps())
        assert not isinstance(outcome, OutOfBudget), (demands, free)
        if isinstance(outcome, Fit):
            assert valid(outcome.pfs, demands, free, spreading), (demands, free, outcome)
            found += 1
        else:
            assert not fits(demands, free, spreading), (demands, free, outcome)
    assert 200 < found < 1800


@pytest.mark.parametrize("capacity", [20, 1000, 100_000, 1_600_000])
def test_up_to_8_vfs_are_always_decided(capacity: int) -> None:
    """They fill 2 to 8 PFs to the last Mb/s and VF, or a Mb/s has moved from one PF to another."""
    random, refused = Random(capacity), 0
    for number in range(600):
        pfs = random.randint(2, 8)
        demands, free = solved(random, random.randint(pfs, 8), pfs, capacity, random.choice((1, pfs - 1)))
        outcome = place(demands, free, steps=Steps())
        assert isinstance(outcome, Fit), (demands, free, outcome)
        assert valid(outcome.pfs, demands, free, None)
        if number < 200:
            giver, taker = random.sample(range(pfs), 2)
            free[giver] = free[giver]._replace(mbps=free[giver].mbps - 1)
            free[taker] = free[taker]._replace(mbps=free[taker].mbps + 1)
            outcome = place(demands, free, steps=Steps())
            assert not isinstance(outcome, OutOfBudget), (demands, free)
            refused += isinstance(outcome, NoFit)
    assert refused > 20


@pytest.mark.parametrize("vfs", [16, 24, 64])
def test_many_vfs_on_pfs_with_some_room_are_placed(vfs: int) -> None:
    """Different rates, and a twentieth of the Mb/s stays free."""
    random = Random(vfs)
    for _ in range(40):
        rates = [random.randint(1_000, 30_000) for _ in range(vfs)]
        free = [PfCapacity(vfs, sum(rates) * 21 // 80)] * 4
        demands = [VfDemand(rate, 15) for rate in rates]
        outcome = place(demands, free, steps=Steps())
        assert isinstance(outcome, Fit), rates
        assert valid(outcome.pfs, demands, free, None)


def test_64_vfs_that_fill_8_pfs_are_never_refused() -> None:
    """Filled to the last Mb/s and VF: out of budget is honest, "no fit" never is."""
    random = Random(64)
    for _ in range(100):
        demands, free = solved(random, random.randint(32, 64), 8, 100_000, random.choice((1, 3, 7)))
        outcome = place(demands, free, steps=Steps())
        assert not isinstance(outcome, NoFit), (demands, free)
        assert isinstance(outcome, OutOfBudget) or valid(outcome.pfs, demands, free, None)


@pytest.mark.parametrize("spreading", POLICIES)
def test_equal_calls_have_equal_outcomes(spreading: Spreading | None) -> None:
    """Steps are counted, not timed: for lists or tuples, at any time, after any other call."""
    random = Random(5)
    instances = [solved(random, random.randint(4, 40), 4, 10_000, 2) for _ in range(50)]
    once = [place(demands, free, spreading, steps=Steps()) for demands, free in instances]
    again = [place(tuple(demands), tuple(free), spreading, steps=Steps()) for demands, free in reversed(instances)]
    assert once == again[::-1]


def test_a_tiny_budget_is_an_outcome_of_its_own() -> None:
    """With hardly a step nothing is claimed: neither a placement nor that none exists."""
    demands, free = solved(Random(1), 40, 8, 100_000, 7)
    assert place(demands, free, budget=1, steps=Steps()) == OutOfBudget(1)


@pytest.mark.parametrize("budget", [0, 10, 50, 200, 1000])
def test_no_budget_makes_an_answer_wrong(budget: int) -> None:
    """However early the search stops, its answer is true."""
    random = Random(budget)
    for _ in range(500):
        demands, free = small(random)
        outcome = place(demands, free, budget=budget, steps=Steps())
        if not isinstance(outcome, OutOfBudget):
            assert isinstance(outcome, Fit) == fits(demands, free, None), (demands, free, outcome)


def test_equal_calls_share_a_remembered_outcome() -> None:
    """Differences without effect give the same call: more free VFs than requested, bits beyond the PFs."""
    demands, free = solved(Random(2), 12, 3, 10_000, 2)
    roomy = [PfCapacity(50, capacity.mbps) for capacity in free]
    steps = Steps()
    first = place(demands, roomy, steps=steps)
    searched = steps.spent
    same = place(
        [VfDemand(demand.min_tx_rate, demand.pfs | 1 << 9) for demand in demands],
        [PfCapacity(99, capacity.mbps) for capacity in roomy],
        steps=steps,
    )
    assert same is first
    assert steps.spent == searched > 0
    other = place(demands, [PfCapacity(50, capacity.mbps + 1) for capacity in roomy], steps=steps)
    assert isinstance(other, Fit)
    assert steps.spent > searched


@pytest.mark.parametrize("spreading", ["pack", "spread"])
def test_pack_and_spread_are_honoured_as_far_as_any_placement_could(spreading: Spreading) -> None:
    """Fewest PFs, or fewest VFs on the fullest PF: no placement that exists does better."""
    random = Random(spreading)
    compared = 0
    for _ in range(1500):
        demands, free = small(random)
        outcome = place(demands, free, spreading, steps=Steps())
        if isinstance(outcome, Fit):
            clients = product(range(len(free)), repeat=len(demands))
            best = min(cost(pfs, spreading) for pfs in clients if valid(pfs, demands, free, spreading))
            assert cost(outcome.pfs, spreading) == best, (demands, free, outcome)
            compared += 1
    assert compared > 200


def cost(pfs: Sequence[int], spreading: Spreading) -> int:
    return len(set(pfs)) if spreading == "pack" else max(map(pfs.count, pfs))


def test_pods_with_distinct_pfs_leave_room_for_as_many_more_as_fit() -> None:
    """Equal pods one after another, without rates: as many as a plan for all of them would place."""
    random = Random(1)
    for _ in range(1000):
        vfs, each = [random.randint(0, 3) for _ in range(random.randint(2, 4))], random.randint(2, 3)
        most = max(count for count in range(13) if sum(min(one, count) for one in vfs) >= each * count)
        left, placed = list(vfs), 0
        demands = [VfDemand(0, (1 << len(vfs)) - 1)] * each
        while isinstance(
            found := place(demands, [PfCapacity(one, 90_000) for one in left], "distinct", steps=Steps()), Fit
        ):
            placed += 1
            for pf in found.pfs:
                left[pf] -= 1
        assert placed == most, (vfs, each)

"""Placement against an oracle that tries every way, and against instances that are built from a solution."""

from collections.abc import Sequence
from itertools import product
from random import Random

import pytest

from mooring.request import Spreading
from scheduler.placement.place import NoFit, OutOfBudget, Placed, Room, Want, decide, place

POLICIES: tuple[Spreading | None, ...] = (None, "pack", "spread", "distinct")
Instance = tuple[list[Want], list[Room]]


def valid(pfs: Sequence[int], wants: Sequence[Want], free: Sequence[Room], spreading: Spreading | None) -> bool:
    """Say whether the rules hold, from their words alone: selectors, VFs, Σ min_tx_rate, distinct."""
    if len(pfs) != len(wants) or any(not want.pfs >> pf & 1 for want, pf in zip(wants, pfs, strict=True)):
        return False
    if spreading == "distinct" and len(set(pfs)) < len(pfs):
        return False
    for index, room in enumerate(free):
        rates = [want.min_tx_rate for want, pf in zip(wants, pfs, strict=True) if pf == index]
        if rates and (len(rates) > room.vfs or sum(rates) > max(0, room.mbps)):
            return False
    return True


def fits(wants: Sequence[Want], free: Sequence[Room], spreading: Spreading | None) -> bool:
    """Try every assignment of wants to PFs."""
    return any(valid(pfs, wants, free, spreading) for pfs in product(range(len(free)), repeat=len(wants)))


def small(random: Random) -> Instance:
    """Draw 1-6 VFs on 1-4 PFs (at most 4 ** 5 assignments), rates from so few values that ties and exact fits occur."""
    pfs = random.randint(1, 4)
    vfs = random.randint(1, 5 if pfs == 4 else 6)
    rates = random.choice([(0,), (1, 2, 3), (0, 0, 5), (3, 4, 5, 6, 7), (0, 2, 3, 4, 9), tuple(range(40, 60))])
    every = (1 << pfs) - 1
    masked = random.random()
    wants = [
        Want(random.choice(rates), random.randint(0 if masked < 0.05 else 1, every) if masked < 0.6 else every)
        for _ in range(vfs)
    ]
    share = sum(want.min_tx_rate for want in wants) / pfs
    free = [
        Room(
            random.randint(0, vfs),
            max(-1, round(share * random.choice((0.5, 0.9, 1.0, 1.1, 1.5))) + random.randint(-1, 2)),
        )
        for _ in range(pfs)
    ]
    return wants, free


def solved(random: Random, vfs: int, pfs: int, capacity: int, extra: int) -> Instance:
    """Cut each PF's capacity into the rates of its VFs, to the last Mb/s and the last VF.

    Each VF may lie on its own PF and on ``extra`` more that are drawn for it.
    """
    wants, free = [], []
    for pf in range(pfs):
        count = vfs // pfs + (pf < vfs % pfs)
        marks = sorted(random.randrange(capacity + 1) for _ in range(count - 1))
        for low, high in zip([0, *marks], [*marks, capacity], strict=True):
            others = random.sample([other for other in range(pfs) if other != pf], extra)
            wants.append(Want(high - low, sum(1 << other for other in (pf, *others))))
        free.append(Room(count, capacity))
    return random.sample(wants, len(wants)), free


@pytest.mark.parametrize("spreading", POLICIES)
@pytest.mark.parametrize("seed", range(4))
def test_a_placement_is_found_exactly_when_there_is_one(seed: int, spreading: Spreading | None) -> None:
    """2,000 small instances a case: as the oracle says, valid, and never out of budget; both answers are frequent."""
    random = Random(f"{seed} {spreading}")
    found = 0
    for _ in range(2000):
        wants, free = small(random)
        outcome = place(wants, free, spreading)
        assert not isinstance(outcome, OutOfBudget), (wants, free)
        if isinstance(outcome, Placed):
            assert valid(outcome.pfs, wants, free, spreading), (wants, free, outcome)
            found += 1
        else:
            assert not fits(wants, free, spreading), (wants, free, outcome)
    assert 200 < found < 1800


@pytest.mark.parametrize("capacity", [20, 1000, 100_000])
def test_full_pfs_are_found_again_after_shuffling(capacity: int) -> None:
    """Up to 14 VFs that fill 2-4 PFs exactly: there is a solution, so it must be found."""
    random = Random(capacity)
    for _ in range(500):
        pfs = random.randint(2, 4)
        wants, free = solved(random, random.randint(pfs, 14), pfs, capacity, random.randrange(pfs))
        outcome = place(wants, free)
        assert isinstance(outcome, Placed), (wants, free, outcome)
        assert valid(outcome.pfs, wants, free, None)


def test_64_vfs_that_fill_8_pfs_are_never_refused_and_mostly_found() -> None:
    """Filled to the last Mb/s and VF: out of budget is honest, "no fit" never is; at most half may be given up."""
    random = Random(64)
    spent = 0
    for _ in range(200):
        wants, free = solved(random, random.randint(32, 64), 8, 100_000, random.choice((1, 3, 7)))
        outcome = place(wants, free)
        assert not isinstance(outcome, NoFit), (wants, free)
        if isinstance(outcome, Placed):
            assert valid(outcome.pfs, wants, free, None)
        else:
            spent += 1
    assert spent <= 100


@pytest.mark.parametrize("spreading", POLICIES)
def test_equal_calls_have_equal_outcomes(spreading: Spreading | None) -> None:
    """Steps are counted, not timed: lists or tuples, now or later, whichever way the call before went."""
    random = Random(5)
    instances = [solved(random, random.randint(4, 40), 4, 10_000, 2) for _ in range(50)]
    once = [place(wants, free, spreading) for wants, free in instances]
    again = [place(tuple(wants), tuple(free), spreading) for wants, free in reversed(instances)]
    assert once == again[::-1]


def test_a_tiny_budget_is_an_outcome_of_its_own() -> None:
    """With hardly a step nothing is claimed: neither a placement nor that there is none."""
    wants, free = solved(Random(1), 40, 8, 100_000, 7)
    assert place(wants, free, budget=1) == OutOfBudget(1)


@pytest.mark.parametrize("budget", [0, 10, 50, 200, 1000])
def test_no_budget_makes_an_answer_wrong(budget: int) -> None:
    """However early the search stops, what it says is so."""
    random = Random(budget)
    for _ in range(500):
        wants, free = small(random)
        outcome = place(wants, free, budget=budget)
        if not isinstance(outcome, OutOfBudget):
            assert isinstance(outcome, Placed) == fits(wants, free, None), (wants, free, outcome)


def test_equal_calls_share_a_remembered_outcome() -> None:
    """What differs without consequence is the same call: more VFs free than wanted, bits beyond the PFs."""
    wants, free = solved(Random(2), 12, 3, 10_000, 2)
    roomy = [Room(50, room.mbps) for room in free]
    first = place(wants, roomy)
    before = decide.cache_info()
    same = place([Want(want.min_tx_rate, want.pfs | 1 << 9) for want in wants], [Room(99, room.mbps) for room in roomy])
    other = place(wants, [Room(50, room.mbps + 1) for room in roomy])
    after = decide.cache_info()
    assert same is first
    assert (after.hits - before.hits, after.misses - before.misses) == (1, 1)
    assert isinstance(other, Placed)


@pytest.mark.parametrize("spreading", ["pack", "spread"])
def test_a_wish_is_honoured_as_far_as_any_placement_could(spreading: Spreading) -> None:
    """Fewest PFs, or fewest VFs on the fullest PF: no placement that exists does better."""
    random = Random(spreading)
    compared = 0
    for _ in range(1500):
        wants, free = small(random)
        outcome = place(wants, free, spreading)
        if isinstance(outcome, Placed):
            ways = product(range(len(free)), repeat=len(wants))
            best = min(cost(pfs, spreading) for pfs in ways if valid(pfs, wants, free, spreading))
            assert cost(outcome.pfs, spreading) == best, (wants, free, outcome)
            compared += 1
    assert compared > 200


def cost(pfs: Sequence[int], spreading: Spreading) -> int:
    return len(set(pfs)) if spreading == "pack" else max(map(pfs.count, pfs))

"""Placement against brute force, and on instances that were built from a solution."""

import itertools
import random
from collections.abc import Sequence

import pytest

from scheduler.place import NoFit, OutOfBudget, Placed, Room, Want, place


def fits(wants: Sequence[Want], rooms: Sequence[Room], pfs: Sequence[int], *, distinct: bool) -> bool:
    """Say whether a choice of PFs keeps every rule."""
    allowed = all(want.pfs >> pf & 1 for want, pf in zip(wants, pfs, strict=True))
    counts = all(pfs.count(pf) <= room.vfs for pf, room in enumerate(rooms))
    rates = [sum(want.min_tx_rate for want, at in zip(wants, pfs, strict=True) if at == pf) for pf in range(len(rooms))]
    within = all(rate <= max(room.mbps, 0) for rate, room in zip(rates, rooms, strict=True))
    return allowed and counts and within and (not distinct or len(set(pfs)) == len(pfs))


def exists(wants: Sequence[Want], rooms: Sequence[Room], *, distinct: bool) -> bool:
    """Try every choice."""
    choices = itertools.product(range(len(rooms)), repeat=len(wants))
    return any(fits(wants, rooms, pfs, distinct=distinct) for pfs in choices)


@pytest.mark.parametrize("spreading", [None, "pack", "spread", "distinct"])
def test_a_placement_is_found_exactly_when_there_is_one(spreading: str | None) -> None:
    """1,500 small random instances a policy: the same answer as trying everything, and every rule kept."""
    chance = random.Random(f"oracle {spreading}")
    outcomes = {True: 0, False: 0}
    for _ in range(1500):
        pfs = chance.randrange(1, 4)
        rooms = [Room(chance.randrange(4), chance.randrange(12)) for _ in range(pfs)]
        wants = [Want(chance.randrange(7), chance.randrange(1, 1 << pfs)) for _ in range(chance.randrange(1, 6))]
        outcome = place(wants, rooms, spreading)  # type: ignore[arg-type]
        possible = exists(wants, rooms, distinct=spreading == "distinct")
        outcomes[possible] += 1
        assert not isinstance(outcome, OutOfBudget)
        assert isinstance(outcome, Placed) == possible, (wants, rooms, outcome)
        if isinstance(outcome, Placed):
            assert fits(wants, rooms, outcome.pfs, distinct=spreading == "distinct"), (wants, rooms, outcome)
    assert min(outcomes.values()) > 50


def test_what_was_taken_apart_goes_together_again() -> None:
    """Fill 1 to 4 PFs to the last Mb/s and VF, shuffle: placed, but for a few that end the budget; never NoFit."""
    spent = 0
    for seed in range(200):
        wants, rooms = taken_apart(random.Random(seed))
        outcome = place(wants, rooms, None)
        assert not isinstance(outcome, NoFit), (seed, outcome)
        spent += isinstance(outcome, OutOfBudget)
        assert not isinstance(outcome, Placed) or fits(wants, rooms, outcome.pfs, distinct=False)
    assert spent <= 4


def taken_apart(chance: random.Random) -> tuple[list[Want], list[Room]]:
    rooms, rates = [], []
    for _ in range(chance.randrange(1, 5)):
        on_pf = [chance.randrange(1, 40) * 1000 for _ in range(chance.randrange(1, 4))]
        rooms.append(Room(len(on_pf), sum(on_pf)))
        rates += on_pf
    chance.shuffle(rates)
    return [Want(rate, (1 << len(rooms)) - 1) for rate in rates], rooms


def test_running_out_of_steps_is_an_outcome_of_its_own() -> None:
    """One step is not enough for a hard instance, and says so: neither placed nor impossible."""
    rooms = [Room(8, 100_000) for _ in range(8)]
    chance = random.Random(3)
    wants = [Want(chance.randrange(11_000, 14_000), 0xFF) for _ in range(60)]
    assert isinstance(place(wants, rooms, None, 1), OutOfBudget | NoFit)
    wants = [Want(50_000, 3), Want(40_000, 3), Want(30_000, 3), Want(30_000, 3), Want(25_000, 3), Want(25_000, 3)]
    assert isinstance(place(wants, [Room(8, 100_000)] * 2, None, 1), OutOfBudget)


def test_equal_input_gives_equal_outcome() -> None:
    """Steps are counted, never timed."""
    chance = random.Random(5)
    wants = [Want(chance.randrange(20_000), 15) for _ in range(12)]
    rooms = [Room(4, 50_000) for _ in range(4)]
    assert len({repr(place(wants, rooms, None)) for _ in range(5)}) == 1

"""Placement against an oracle that tries every assignment, and against instances that are built from a solution.

The same for placement within the shares of an offer's entries.
"""

from collections.abc import Iterator, Sequence
from itertools import product
from random import Random

import pytest

import scheduler.placement.place as place_module
from mooring.annotations.request import PfSpread
from scheduler.kube.outcomes import Refused
from scheduler.placement.assign import OUT_OF_BUDGET, place_within
from scheduler.placement.bin_packing import SharedPorts
from scheduler.placement.place import BUDGET, Fit, FitResult, NoFit, OutOfBudget, PfCapacity, VfDemand, place
from scheduler.placement.shares import Cap, Share, within
from scheduler.placement.steps import Steps
from tests.support.calls import count_calls

POLICIES: tuple[PfSpread | None, ...] = (None, "pack", "spread", "distinct")
Instance = tuple[list[VfDemand], list[PfCapacity], SharedPorts]
# PFs with a port each, or some or two of them on one.
each_and_shared = pytest.mark.parametrize("is_shared", [False, True], ids=["own ports", "shared ports"])


def decide(instance: Instance, spreading: PfSpread | None = None, budget: int = BUDGET) -> FitResult:
    demands, free, ports = instance
    return place(demands, free, spreading, budget, ports, steps=Steps())


def valid(chosen: Sequence[int], instance: Instance, spreading: PfSpread | None) -> bool:
    """Return whether the rules hold, by their definition alone: selectors, VFs, Σ min_tx_rate by port, distinct."""
    demands, free, shared_ports = instance
    ports = shared_ports or range(len(free))
    if len(chosen) != len(demands) or any(not one.pfs >> pf & 1 for one, pf in zip(demands, chosen, strict=True)):
        return False
    if any(chosen.count(pf) > (min(free[pf].vfs, 1) if spreading == "distinct" else free[pf].vfs) for pf in chosen):
        return False
    for port in set(ports):
        rates = [demand.min_tx_rate for demand, pf in zip(demands, chosen, strict=True) if ports[pf] == port]
        if rates and sum(rates) > max(0, free[port].mbps):
            return False
    return True


def every_valid(instance: Instance, spreading: PfSpread | None) -> Iterator[tuple[int, ...]]:
    demands, free, _ = instance
    every = product(range(len(free)), repeat=len(demands))
    return (chosen for chosen in every if valid(chosen, instance, spreading))


def small(random: Random, *, is_shared: bool) -> Instance:
    """Draw 1-6 VFs on 1-4 PFs (at most 4 ** 5 assignments), rates from so few values that ties and exact fits occur."""
    pfs = random.randint(2 if is_shared else 1, 4)
    vfs = random.randint(1, 5 if pfs == 4 else 6)
    ports = tuple(random.choice([index, *range(index)]) if is_shared else index for index in range(pfs))
    ports = tuple(min(index for index, port in enumerate(ports) if port == own) for own in ports)
    rates = random.choice([(0,), (1, 2, 3), (0, 0, 5), (3, 4, 5, 6, 7), (0, 2, 3, 4, 9), tuple(range(40, 60))])
    every = (1 << pfs) - 1
    masked = random.random()
    demands = [
        VfDemand(random.choice(rates), random.randint(0 if masked < 0.05 else 1, every) if masked < 0.6 else every)
        for _ in range(vfs)
    ]
    share = sum(demand.min_tx_rate for demand in demands) / len(set(ports))
    left = {
        port: max(-1, round(share * random.choice((0.5, 0.9, 1.0, 1.1, 1.5))) + random.randint(-1, 2)) for port in ports
    }
    free = [PfCapacity(random.randint(0, vfs), left[port]) for port in ports]
    return demands, free, ports if is_shared else ()


def solved(random: Random, vfs: int, ports: int, capacity: int, extra: int, *, is_shared: bool = False) -> Instance:
    """Cut each port's capacity into the rates of its VFs, to the last Mb/s and the last VF.

    Each VF may lie on the PF of its own port, or on both, and on those of ``extra`` more that are drawn for it.
    """
    demands, free = list[VfDemand](), list[PfCapacity]()
    width = 2 if is_shared else 1
    for port in range(ports):
        count = vfs // ports + (port < vfs % ports)
        marks = sorted(random.randrange(capacity + 1) for _ in range(count - 1))
        for low, high in zip([0, *marks], [*marks, capacity], strict=True):
            others = random.sample([other for other in range(ports) if other != port], extra)
            demands.append(VfDemand(high - low, sum((1 << width) - 1 << width * one for one in (port, *others))))
        first = random.randint(0, count) if is_shared else count
        free += [PfCapacity(first, capacity), PfCapacity(count - first, capacity)][:width]
    return random.sample(demands, len(demands)), free, tuple(n // 2 * 2 for n in range(2 * ports)) if is_shared else ()


def cost(chosen: Sequence[int], spreading: PfSpread | None) -> int:
    """Return how many PFs are used, or how many VFs the fullest PF gives; 0 if neither matters."""
    if spreading == "pack":
        return len(set(chosen))
    return max(map(chosen.count, chosen)) if spreading == "spread" else 0


@each_and_shared
@pytest.mark.parametrize("spreading", POLICIES)
@pytest.mark.parametrize("seed", range(4))
def test_a_placement_is_found_exactly_when_there_is_one(seed: int, spreading: PfSpread | None, is_shared: bool) -> None:
    """As the oracle says, valid, never out of budget, and packed or spread as far as any placement could be."""
    random = Random(f"{seed} {spreading}")
    found, count = 0, 1000 if is_shared else 2000
    for number in range(count):
        instance = small(random, is_shared=is_shared)
        outcome = decide(instance, spreading)
        assert not isinstance(outcome, OutOfBudget), instance
        if isinstance(outcome, Fit):
            assert valid(outcome.pfs, instance, spreading), (instance, outcome)
            found += 1
            if number % 3 == 0 and spreading in ("pack", "spread"):
                best = min(cost(chosen, spreading) for chosen in every_valid(instance, spreading))
                assert cost(outcome.pfs, spreading) == best, (instance, outcome)
        else:
            assert not any(every_valid(instance, spreading)), (instance, outcome)
    assert count // 12 < found < count * 11 // 12


@each_and_shared
@pytest.mark.parametrize("capacity", [20, 1000, 200_000, 1_600_000])
def test_up_to_8_vfs_are_always_decided(capacity: int, is_shared: bool) -> None:
    """They fill 2 to 8 PFs to the last Mb/s and VF, or a Mb/s has moved from one PF to another."""
    random, refused = Random(capacity), 0
    for number in range(200 if is_shared else 600):
        ports = random.randint(1, 2) if is_shared else random.randint(2, 8)
        extra = random.randrange(ports) if is_shared else random.choice((1, ports - 1))
        instance = solved(random, random.randint(ports, 8), ports, capacity, extra, is_shared=is_shared)
        outcome = decide(instance)
        assert isinstance(outcome, Fit), (instance, outcome)
        assert valid(outcome.pfs, instance, None)
        if number < 200 and not is_shared:
            free = instance[1]
            for pf, change in zip(random.sample(range(ports), 2), (-1, 1), strict=True):
                free[pf] = free[pf]._replace(mbps=free[pf].mbps + change)
            outcome = decide(instance)
            assert not isinstance(outcome, OutOfBudget), instance
            refused += isinstance(outcome, NoFit)
    assert is_shared or refused > 20


@pytest.mark.parametrize("vfs", [16, 24, 64])
def test_many_vfs_on_pfs_with_some_room_are_placed(vfs: int) -> None:
    """Different rates, and a twentieth of the Mb/s stays free."""
    random = Random(vfs)
    for _ in range(40):
        rates = [random.randint(1_000, 30_000) for _ in range(vfs)]
        instance: Instance = [VfDemand(rate, 15) for rate in rates], [PfCapacity(vfs, sum(rates) * 21 // 80)] * 4, ()
        outcome = decide(instance)
        assert isinstance(outcome, Fit), rates
        assert valid(outcome.pfs, instance, None)


@each_and_shared
def test_64_vfs_that_fill_8_pfs_are_never_refused(is_shared: bool) -> None:
    """Filled to the last Mb/s and VF: out of budget is honest, "no fit" never is."""
    random = Random(64)
    for _ in range(80):
        ports, extra = (4, random.choice((0, 1))) if is_shared else (8, random.choice((1, 3, 7)))
        instance = solved(random, random.randint(32, 64), ports, 100_000, extra, is_shared=is_shared)
        outcome = decide(instance)
        assert not isinstance(outcome, NoFit), instance
        assert isinstance(outcome, OutOfBudget) or valid(outcome.pfs, instance, None)


def test_a_tiny_budget_is_an_outcome_of_its_own() -> None:
    assert decide(solved(Random(1), 40, 8, 100_000, 7), budget=1) == OutOfBudget(1)


@each_and_shared
@pytest.mark.parametrize("budget", [0, 10, 50, 200, 1000])
def test_no_budget_makes_an_answer_wrong(budget: int, is_shared: bool) -> None:
    random = Random(budget)
    for _ in range(450):
        instance = small(random, is_shared=is_shared)
        outcome = decide(instance, budget=budget)
        if not isinstance(outcome, OutOfBudget):
            assert isinstance(outcome, Fit) == any(every_valid(instance, None)), (instance, outcome)


def test_distinct_pfs_that_are_not_found_in_time_cost_two_searches() -> None:
    """One among the fullest PFs and one among all, not one for each number of PFs."""
    demands, steps = [VfDemand(rate, 0b1111_1111) for rate in (5, 4, 3)], Steps()
    free = [PfCapacity(8 - index, 5) for index in range(8)]
    assert isinstance(place(demands, free, "distinct", 2, steps=steps), OutOfBudget)
    assert steps.spent == 2 * 2


def test_choices_of_pfs_that_cannot_hold_all_vfs_cost_steps_too() -> None:
    """Seven of 14 PFs never hold eight VFs: no search says so, and there may be millions of choices."""
    demands, free = [VfDemand(0, (1 << 14) - 1)] * 8, [PfCapacity(1, 0)] * 14
    calls = count_calls(place_module._first_conflict, lambda: place(demands, free, "pack", steps=Steps()))
    assert calls < BUDGET // 14 + 10


def test_equal_calls_share_a_remembered_outcome() -> None:
    """Differences without effect give the same call: more free VFs than requested, bits beyond the PFs."""
    demands, free, _ = solved(Random(2), 12, 3, 10_000, 2)
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
    searched = steps.spent
    place(demands, roomy, "spread", steps=steps)
    assert steps.spent > searched, "what is preferred is part of a call"


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


def _cap(pfs: int, vfs: int) -> Cap:
    return Cap(pfs, vfs, Share(pfs, vfs, 50, "network 'rail0'", {}), "a")


@each_and_shared
@pytest.mark.parametrize("seed", range(4))
def test_a_placement_within_the_shares_is_found_exactly_where_there_is_one(seed: int, is_shared: bool) -> None:
    """With one or two entries of an offer, which limit how many VFs of their PFs a namespace holds."""
    random, count, found = Random(seed), 300, 0
    for _ in range(count):
        demands, free, ports = instance = small(random, is_shared=is_shared)
        first = random.randrange(1, 1 << len(free))
        masks = [first, ((1 << len(free)) - 1) & ~first][: random.randint(1, 2)]
        caps = [_cap(pfs, random.choice((-1, 1, 2, 2, 3, 4))) for pfs in masks]
        outcome = place_within(tuple(demands), tuple(free), None, ports, tuple(caps), steps=Steps())
        within_caps = {
            chosen
            for chosen in every_valid(instance, None)
            if all(sum(cap.pfs >> pf & 1 for pf in chosen) <= max(cap.vfs, 0) for cap in caps)
        }
        pfs = None if isinstance(outcome, Refused) else outcome.pfs
        assert pfs in within_caps if within_caps else pfs is None, (instance, caps)
        found += bool(within_caps)
    assert count // 20 < found < count // 2


def test_the_choices_that_are_tried_are_few_for_equal_interfaces_and_bounded_for_others() -> None:
    equal = (VfDemand(0, 3),) * 64
    assert len(list(within(equal, [_cap(1, 20)], Steps()))) == 1
    # Every interface has another rate, and none fits elsewhere.
    different = tuple(VfDemand(rate, 3) for rate in range(1, 65))
    steps = Steps()
    free = PfCapacity(64, 10_000), PfCapacity(64, 100)
    assert place_within(different, free, None, (), (_cap(1, 20),), steps=steps) == Refused(OUT_OF_BUDGET)
    assert steps.spent < 3 * BUDGET


def test_choices_that_no_further_share_admits_cost_steps_too() -> None:
    """Ten interfaces have only the last two PFs, whose shares hold eight. The second has 4,845 choices."""
    demands = (*(VfDemand(rate, 7) for rate in range(1, 11)), *(VfDemand(rate, 6) for rate in range(11, 21)))
    free, caps = (PfCapacity(64, 10_000),) * 3, (_cap(1, 20), _cap(2, 4), _cap(4, 4))
    steps = Steps()
    # All on the second PF, as a search without shares may place them.
    full = (PfCapacity(0, 0), *free[1:])
    assert place_within(demands, full, None, (), caps, steps=steps) == Refused(OUT_OF_BUDGET)
    assert steps.spent < 3 * BUDGET


def test_a_request_that_all_shares_together_cannot_hold_is_refused_without_a_search() -> None:
    demands = tuple(VfDemand(rate, 3) for rate in range(1, 33))
    free = (PfCapacity(64, 10_000),) * 2
    steps = Steps()
    found = place_within(demands, free, None, (), (_cap(1, 8), _cap(2, 8)), steps=steps)
    assert isinstance(found, Refused)
    assert found.reason.count("requests 32 more") == 2
    assert steps.spent == 0

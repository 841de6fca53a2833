"""Placement within the shares of an offer's entries, against a search over all placements, and the count of use."""

from collections.abc import Sequence
from dataclasses import replace
from itertools import product
from random import Random

import pytest

from mooring.annotations.assignment import AssignedVf, Assignment
from mooring.annotations.inventory import Inventory, Pf
from mooring.annotations.pf_terms import Access
from mooring.annotations.request import PodRequest, VfRequest
from mooring.indexes import Indexes
from scheduler.cache.assigned_pod import AssignedPod
from scheduler.kube.outcomes import Refused
from scheduler.placement.assign import OUT_OF_BUDGET, demands_on, place_within
from scheduler.placement.place import BUDGET, PfCapacity, VfDemand
from scheduler.placement.shares import Cap, Share, caps_for, shares_of, within
from scheduler.placement.steps import Steps
from scheduler.placement.vf_accounting import Claim, VfAccounting
from scheduler.plugins.device_rules.rdma_vfs import _VfSums
from tests.scheduler.placement.derived_vfs import free_vfs_of

HALF = Access(max_share=50, entry=1)


def pf(index: int, access: Access, vfs: int = 4) -> Pf:
    return Pf(
        name=f"pf{index}",
        pci=f"0000:0{index}:00.0",
        link="ethernet",
        network=f"rail{index}",
        mbps=100,
        offer_mbps=100,
        up=True,
        vfs=Indexes.of(range(vfs)),
        vf0=f"0000:0{index}:00.1",
        can=frozenset({"min_tx_rate"}),
        access=access,
    )


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
    """The message names each share."""
    demands = tuple(VfDemand(rate, 3) for rate in range(1, 33))
    free = (PfCapacity(64, 10_000),) * 2
    steps = Steps()
    found = place_within(demands, free, None, (), (cap(1, 8), cap(2, 8)), steps=steps)
    assert isinstance(found, Refused)
    assert found.reason.count("requests 32 more") == 2
    assert steps.spent == 0


def test_a_share_counts_over_all_pfs_of_its_entry() -> None:
    """50 percent of 4 + 3 VFs, rounded down; PFs of another entry, or without a share, do not count."""
    pfs = (pf(0, HALF), pf(1, Access()), pf(2, HALF, vfs=3), pf(3, Access(max_share=1, entry=2)))
    first, second = shares_of(pfs)
    assert (first.pfs, first.max_vfs, second.pfs, second.max_vfs) == (0b0101, 3, 0b1000, 1)
    assert [each.vfs for each in caps_for((first, second), "a")] == [3, 1]
    # Nothing is given to a pod whose namespace is not known.
    assert [each.vfs for each in caps_for((first, second), None)] == [0, 0]


def claim(uid: str, namespace: str, *vfs: tuple[Pf, int]) -> Claim:
    assigned = tuple(AssignedVf(pf.name, vf, pf.vf_pci(vf), pf.link, pf.network) for pf, vf in vfs)
    return Claim(uid, Assignment(uid, "n1", assigned), f"{namespace}/p")


@pytest.mark.parametrize("seed", range(10))
def test_use_by_namespace_follows_the_claims(seed: int) -> None:
    """Also where two pods claim one VF, a claim goes that never came, and VFs are not in the inventory."""
    random = Random(seed)
    pfs = (pf(0, HALF), pf(1, HALF), pf(2, Access(max_share=30, entry=2)), pf(3, Access()))
    foreign = replace(pfs[0], name="gone")
    inventory = Inventory("b", pfs)
    accounting, claims = VfAccounting(inventory), dict[str, Claim]()
    for step in range(40):
        if claims and random.random() < 0.4:
            accounting.remove(claims.pop(random.choice(sorted(claims))))
        else:
            places = [(random.choice((*pfs, foreign)), random.randrange(4)) for _ in range(random.randint(1, 3))]
            one = claim(f"u{step}", random.choice("ab"), *dict.fromkeys(places))
            if random.random() < 0.2:
                accounting.remove(one)
            else:
                claims[one.uid] = one
                accounting.add(one)
        assert accounting.free_vfs == free_vfs_of(inventory, claims.values())
        assert accounting.copy().free_vfs == VfAccounting(inventory, claims.values()).free_vfs


@pytest.mark.parametrize("seed", range(10))
def test_a_dry_run_by_sums_counts_the_pods_of_the_namespace(seed: int) -> None:
    """The share of a pod's namespace grows by the VFs of its own pods that leave, and not by those of others."""
    random = Random(seed)
    pfs = (pf(0, HALF), pf(1, HALF))
    accounting = VfAccounting(Inventory("b", pfs))
    claims = [claim(f"u{index}", random.choice("ab"), (pfs[index % 2], index // 2)) for index in range(6)]
    for each in claims:
        accounting.add(each)
    request = PodRequest((VfRequest(),) * random.randint(1, 4), namespace="a")
    demands = demands_on(request, pfs)
    assert not isinstance(demands, Refused)
    sums = _VfSums(accounting, demands, request, steps=Steps())
    pods = [AssignedPod(each.uid, each.pod, "n1", assignment=each.assignment) for each in claims]
    gone: set[int] = set()
    for _ in range(12):
        index = random.randrange(len(pods))
        sums.move_pods([pods[index]], 1 if index in gone else -1)
        gone ^= {index}
        exact = VfAccounting(Inventory("b", pfs), [each for at, each in enumerate(claims) if at not in gone]).free_vfs
        caps = caps_for(exact.shares, "a")
        found = place_within(demands, exact.capacities, None, (), caps, steps=Steps())
        assert sums.filter() == ((found.reason,) if isinstance(found, Refused) else ())

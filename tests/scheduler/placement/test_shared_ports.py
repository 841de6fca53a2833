"""PFs that share a port: Σ min_tx_rate counts per port, whatever VFs of whichever of its PFs hold it."""

from collections.abc import Sequence
from dataclasses import replace
from itertools import product
from random import Random

import pytest

from mooring.annotations.assignment import AssignedVf, Assignment
from mooring.annotations.inventory import Inventory, Out, Pf, dump_inventory, read_inventory
from mooring.annotations.request import PodRequest, Spreading, VfRequest
from mooring.indexes import Indexes
from mooring.nic.settings import VfSettings
from scheduler.cache.assigned_pod import AssignedPod
from scheduler.kube.outcomes import Refused
from scheduler.placement.assign import demands_on, pick_vfs, place_on
from scheduler.placement.bin_packing import SharedPorts
from scheduler.placement.place import Fit, NoFit, OutOfBudget, PfCapacity, VfDemand, place
from scheduler.placement.steps import Steps
from scheduler.placement.vf_accounting import Claim, FreeVfs, VfAccounting, full_capacity, shared_ports_of
from scheduler.plugins.device_rules.rdma_vfs import _VfSums
from tests.scheduler.placement.derived_vfs import free_vfs_of

POLICIES: tuple[Spreading | None, ...] = (None, "pack", "spread", "distinct")
Instance = tuple[list[VfDemand], list[PfCapacity], SharedPorts]


def valid(chosen: Sequence[int], instance: Instance, spreading: Spreading | None) -> bool:
    """Return whether the rules hold, by their definition alone."""
    demands, free, ports = instance
    if any(not demand.pfs >> pf & 1 for demand, pf in zip(demands, chosen, strict=True)):
        return False
    if any(chosen.count(pf) > (min(free[pf].vfs, 1) if spreading == "distinct" else free[pf].vfs) for pf in chosen):
        return False
    for port in set(ports):
        on_port = [demand.min_tx_rate for demand, pf in zip(demands, chosen, strict=True) if ports[pf] == port]
        if on_port and sum(on_port) > max(0, free[port].mbps):
            return False
    return True


def fits(instance: Instance, spreading: Spreading | None) -> bool:
    demands, free, _ = instance
    return any(valid(chosen, instance, spreading) for chosen in product(range(len(free)), repeat=len(demands)))


def small(random: Random) -> Instance:
    """Draw 1-6 VFs on 2-4 PFs of 1-3 ports; half of the draws have VFs that may lie on one PF of a port only."""
    pfs = random.randint(2, 4)
    vfs = random.randint(1, 5 if pfs == 4 else 6)
    ports = tuple(random.choice([index, *range(index)]) for index in range(pfs))
    ports = tuple(min(index for index, port in enumerate(ports) if port == own) for own in ports)
    rates = random.choice([(0,), (1, 2, 3), (0, 0, 5), (3, 4, 5, 6, 7), (0, 2, 3, 4, 9), tuple(range(40, 60))])
    every = (1 << pfs) - 1
    is_split = random.random() < 0.5
    demands = [VfDemand(random.choice(rates), random.randint(1, every) if is_split else every) for _ in range(vfs)]
    share = sum(demand.min_tx_rate for demand in demands) / len(set(ports))
    left = {port: max(-1, round(share * random.choice((0.5, 0.9, 1.0, 1.1, 1.5)))) for port in set(ports)}
    return demands, [PfCapacity(random.randint(0, vfs), left[port]) for port in ports], ports


def solved(random: Random, vfs: int, ports: int, mbps: int) -> Instance:
    """Cut each port's Mb/s into the rates of its VFs, to the last one, and deal these to the port's two PFs."""
    demands: list[VfDemand] = []
    free: list[PfCapacity] = []
    for port in range(ports):
        marks = sorted(random.randrange(mbps + 1) for _ in range(vfs - 1))
        pfs = 3 << 2 * port
        other = 3 << 2 * random.randrange(ports)
        rates = [high - low for low, high in zip([0, *marks], [*marks, mbps], strict=True)]
        demands += [VfDemand(rate, pfs | (other if random.random() < 0.3 else 0)) for rate in rates]
        first = random.randint(0, vfs)
        free += [PfCapacity(first, mbps), PfCapacity(vfs - first, mbps)]
    return random.sample(demands, len(demands)), free, tuple(index // 2 * 2 for index in range(2 * ports))


@pytest.mark.parametrize("spreading", POLICIES)
@pytest.mark.parametrize("seed", range(3))
def test_a_placement_is_found_exactly_when_there_is_one(seed: int, spreading: Spreading | None) -> None:
    """As every assignment tried says; both answers are frequent, and the budget is never spent."""
    random = Random(f"{seed} {spreading}")
    found = 0
    for _ in range(1200):
        instance = small(random)
        demands, free, ports = instance
        outcome = place(demands, free, spreading, ports=ports, steps=Steps())
        assert not isinstance(outcome, OutOfBudget), instance
        if isinstance(outcome, Fit):
            assert valid(outcome.pfs, instance, spreading), (instance, outcome)
            found += 1
        else:
            assert not fits(instance, spreading), (instance, outcome)
    assert 100 < found < 1100


@pytest.mark.parametrize("mbps", [20, 1000, 200_000])
def test_full_ports_are_found_again_after_shuffling(mbps: int) -> None:
    """Up to 8 VFs that fill the ports to the last Mb/s and VF: there is a solution, so it must be found."""
    random = Random(mbps)
    for _ in range(150):
        instance = solved(random, random.randint(1, 4), random.randint(1, 2), mbps)
        outcome = place(instance[0], instance[1], ports=instance[2], steps=Steps())
        assert isinstance(outcome, Fit), (instance, outcome)
        assert valid(outcome.pfs, instance, None)


def test_64_vfs_that_fill_four_ports_are_never_refused() -> None:
    """Out of budget is honest, "no fit" never is."""
    random = Random(64)
    for _ in range(60):
        instance = solved(random, 16, 4, 200_000)
        outcome = place(instance[0], instance[1], ports=instance[2], steps=Steps())
        assert not isinstance(outcome, NoFit), instance
        assert isinstance(outcome, OutOfBudget) or valid(outcome.pfs, instance, None)


@pytest.mark.parametrize("spreading", ["pack", "spread"])
def test_pack_and_spread_count_pfs(spreading: Spreading) -> None:
    """Fewest PFs, or fewest VFs on the fullest PF: no placement that exists does better."""

    def cost(chosen: Sequence[int]) -> int:
        return len(set(chosen)) if spreading == "pack" else max(map(chosen.count, chosen))

    random = Random(spreading)
    compared = 0
    for _ in range(600):
        instance = small(random)
        outcome = place(instance[0], instance[1], spreading, ports=instance[2], steps=Steps())
        if isinstance(outcome, Fit):
            every = product(range(len(instance[1])), repeat=len(instance[0]))
            assert cost(outcome.pfs) == min(cost(chosen) for chosen in every if valid(chosen, instance, spreading))
            compared += 1
    assert compared > 80


@pytest.mark.parametrize("budget", [0, 10, 50, 200])
def test_no_budget_makes_an_answer_wrong(budget: int) -> None:
    random = Random(budget)
    for _ in range(400):
        instance = small(random)
        outcome = place(instance[0], instance[1], budget=budget, ports=instance[2], steps=Steps())
        if not isinstance(outcome, OutOfBudget):
            assert isinstance(outcome, Fit) == fits(instance, None), (instance, outcome)


def pf(number: int, port: str | None, offer_mbps: int = 100, mbps: int = 100, vfs: int = 4) -> Pf:
    return Pf(
        name=f"pf{number}",
        pci=f"000{number}:01:00.0",
        link="ethernet",
        network="default",
        mbps=mbps,
        offer_mbps=offer_mbps,
        up=mbps > 0,
        vfs=Indexes((1 << vfs) - 1),
        vf0=f"000{number}:01:00.2",
        can=frozenset({"min_tx_rate"}),
        port=port,
    )


def claim(uid: str, *vfs: tuple[Pf, int, int]) -> Claim:
    """Return a pod's claim of VFs: PF, index and min rate of each."""
    assigned = (
        AssignedVf(pf.name, vf, pf.vf_pci(vf), pf.link, pf.network, VfSettings(min_tx_rate=rate))
        for pf, vf, rate in vfs
    )
    return Claim(uid, Assignment(uid, "n1", tuple(assigned)), "default/p")


def left_mbps(left: FreeVfs) -> list[int]:
    return [capacity.mbps for capacity in left.capacities]


def test_an_inventory_carries_the_port() -> None:
    """A PF alone on its cable has no such field."""
    inventory = Inventory("b", (pf(0, "0000:01:00.0"), pf(1, "0000:01:00.0"), pf(2, None)))
    assert read_inventory(dump_inventory(inventory)) == inventory
    assert dump_inventory(inventory).count('"port"') == 2


def test_only_ports_with_several_pfs_are_shared() -> None:
    """A lone port name means nothing: nothing is then computed per port."""
    assert shared_ports_of((pf(0, "a"), pf(1, "b"), pf(2, None))) == ()
    assert shared_ports_of((pf(0, "a"), pf(1, "b"), pf(2, "a"), pf(3, None))) == (0, 1, 0, 3)


def test_what_one_pf_gives_the_other_has_not() -> None:
    """Both PFs of a port show what the port has left; it is counted once."""
    pfs = (pf(0, "a"), pf(1, "a"), pf(2, None))
    accounting = VfAccounting(Inventory("b", pfs))
    assert (left_mbps(accounting.free_vfs), accounting.free_vfs.free_mbps) == ([100, 100, 100], 200)
    accounting.add(claim("u1", (pfs[0], 0, 60)))
    assert (left_mbps(accounting.free_vfs), accounting.free_vfs.free_mbps) == ([40, 40, 100], 140)


def test_a_port_offers_the_smallest_share_of_its_pfs_and_a_pf_that_is_down_does_not_count() -> None:
    """A host's share of a cable is the host's on all PFs; the rate of a PF that is down is unknown, not zero."""
    pfs = (pf(0, "a", 90), pf(1, "a", 50), pf(2, "a", 0, 0))
    assert [capacity.mbps for capacity in full_capacity(pfs).capacities] == [50, 50, 50]
    assert left_mbps(free_vfs_of(Inventory("b", pfs), ())) == [50, 50, 50]


def test_a_rate_held_by_a_vf_that_is_out_counts_on_the_port() -> None:
    pfs = (pf(0, "a"), replace(pf(1, "a"), out=(Out(Indexes(1), "held by pod x", 30),)))
    assert left_mbps(free_vfs_of(Inventory("b", pfs), ())) == [70, 70]


@pytest.mark.parametrize("seed", range(40))
def test_pods_that_come_and_go_never_hold_more_than_a_port_offers(seed: int) -> None:
    """Promise 8 by its definition, after every step; the accounting equals what is derived from scratch."""
    random = Random(seed)
    pfs = tuple(pf(number, random.choice(("a", "b", None)), random.choice((100, 90))) for number in range(4))
    inventory = Inventory("b", pfs)
    accounting = VfAccounting(inventory)
    claims: dict[str, Claim] = {}
    for step in range(30):
        uid = f"u{step}"
        if claims and random.random() < 0.3:
            accounting.remove(claims.pop(random.choice(sorted(claims))))
        else:
            interfaces = tuple(
                VfRequest(settings=VfSettings(min_tx_rate=random.randrange(0, 60))) for _ in range(random.randint(1, 3))
            )
            request = PodRequest(interfaces)
            free = accounting.free_vfs
            demands = demands_on(request, pfs)
            assert not isinstance(demands, Refused)
            found = place_on(demands, free.capacities, None, free.shared_ports, steps=Steps())
            if not isinstance(found, Refused):
                vfs = pick_vfs(interfaces, free, found, {})
                claims[uid] = Claim(uid, Assignment(uid, "n1", vfs), "default/p")
                accounting.add(claims[uid])
        assert accounting.free_vfs == free_vfs_of(inventory, claims.values())
        for cable in {pf.port or pf.name for pf in pfs}:
            of_cable = [pf for pf in pfs if (pf.port or pf.name) == cable]
            names = {pf.name for pf in of_cable}
            held = [vf.min_tx_rate for each in claims.values() for vf in each.assignment.vfs if vf.pf in names]
            assert sum(held) <= min(pf.offer_mbps for pf in of_cable)


@pytest.mark.parametrize("seed", range(20))
def test_a_dry_run_by_sums_agrees_with_the_accounting(seed: int) -> None:
    """Pods that are removed and added again free and take the rate of every PF on their cable."""
    random = Random(seed)
    pfs = tuple(pf(number, "a" if number < 3 else None) for number in range(4))
    accounting = VfAccounting(Inventory("b", pfs))
    claims = [claim(f"u{index}", (pfs[index % 4], index // 4, random.randrange(1, 20))) for index in range(8)]
    for each in claims:
        accounting.add(each)
    request = PodRequest((VfRequest(settings=VfSettings(min_tx_rate=random.randrange(40, 100))),))
    demands = demands_on(request, pfs)
    assert not isinstance(demands, Refused)
    sums = _VfSums(accounting, demands, request, steps=Steps())
    pods = [AssignedPod(each.uid, "ns/p", "n1", assignment=each.assignment) for each in claims]
    gone: set[int] = set()
    for _ in range(12):
        index = random.randrange(len(pods))
        sums.move_pods([pods[index]], 1 if index in gone else -1)
        gone ^= {index}
        exact = VfAccounting(Inventory("b", pfs), [each for at, each in enumerate(claims) if at not in gone]).free_vfs
        found = place_on(demands, exact.capacities, None, exact.shared_ports, steps=Steps())
        assert sums.filter() == ((found.reason,) if isinstance(found, Refused) else ())

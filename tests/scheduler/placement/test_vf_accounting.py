"""What a node's PFs have left: by port where PFs share one, by namespace where an offer's entries have a share."""

from collections.abc import Iterable, Mapping
from dataclasses import replace
from random import Random
from typing import Any

import pytest

from mooring.annotations.assignment import AssignedVf, Assignment
from mooring.annotations.inventory import Inventory, Out, Pf, dump_inventory, read_inventory
from mooring.annotations.pf_terms import Access
from mooring.annotations.request import PodRequest, VfRequest
from mooring.indexes import Indexes
from mooring.nic.settings import VfSettings
from scheduler.cache.assigned_pod import AssignedPod
from scheduler.kube.outcomes import Refused
from scheduler.placement.assign import demands_on, pick_vfs, place_within
from scheduler.placement.place import PfCapacity
from scheduler.placement.shares import caps_for, shares_of, with_change
from scheduler.placement.steps import Steps
from scheduler.placement.vf_accounting import (
    Claim,
    FreeVfs,
    VfAccounting,
    full_capacity,
    offers_of,
    shared_ports_of,
    sum_by_port,
    vfs_in_inventory,
)
from scheduler.plugins.device_rules.rdma_vfs import _VfSums
from tests.scheduler.decisions import documents

HALF, THIRD = Access(max_share=50, entry=1), Access(max_share=30, entry=2)


def pf(number: int, port: str | None = None, vfs: int = 4, **fields: Any) -> Pf:
    """Make a PF of 100 Mb/s."""
    return documents.pf(number, vfs, **{"network": "rail0", "mbps": 100, "offer_mbps": 100, "port": port, **fields})


def claim(uid: str, *vfs: tuple[Pf, int, int], namespace: str = "default") -> Claim:
    assigned = (
        AssignedVf(pf.name, vf, pf.vf_pci(vf), pf.link, pf.network, VfSettings(min_tx_rate=rate))
        for pf, vf, rate in vfs
    )
    return Claim(uid, Assignment(uid, "n1", tuple(assigned)), f"{namespace}/p")


def derived(inventory: Inventory, claims: Iterable[Claim]) -> FreeVfs:
    """Derive what all claims leave in one pass: what the accounting must agree with."""
    rates_by_pf: dict[str, dict[int, int]] = {pf.name: {} for pf in inventory.pfs}
    holders = set[tuple[str, int, str, str]]()
    for claim in claims:
        for vf in vfs_in_inventory(inventory, claim.assignment):
            rates = rates_by_pf[vf.pf]
            rates[vf.vf] = max(rates.get(vf.vf, 0), vf.min_tx_rate)
            holders.add((vf.pf, vf.vf, claim.uid, claim.namespace))
    shares, indexes = shares_of(inventory.pfs), {pf.name: index for index, pf in enumerate(inventory.pfs)}
    for pf_name, _, _, namespace in holders if shares else ():
        shares = with_change(shares, indexes[pf_name], namespace, 1)
    pfs, ports = inventory.pfs, shared_ports_of(inventory.pfs)
    free, reserved = zip(*(_state(pf, rates_by_pf[pf.name]) for pf in pfs), strict=True)
    left = zip(free, offers_of(pfs, ports), sum_by_port(reserved, ports) if ports else reserved, strict=True)
    capacities = tuple(PfCapacity(mask.bit_count(), offer - reservation) for mask, offer, reservation in left)
    return FreeVfs(pfs, free, capacities, ports, shares)


def _state(pf: Pf, claims: Mapping[int, int]) -> tuple[int, int]:
    """Return a PF's free VFs as bits, and the Mb/s that its VFs reserve."""
    rates = dict(claims)
    for entry in pf.out:
        for index in entry.vfs if entry.min_tx_rate else ():
            rates[index] = max(rates.get(index, 0), entry.min_tx_rate)
    return pf.usable.mask & ~sum(1 << index for index in claims), sum(rates.values())


def test_only_ports_with_several_pfs_are_shared() -> None:
    """A PF alone on its cable has no such field in the inventory; a lone port name means nothing."""
    assert shared_ports_of((pf(0, "a"), pf(1, "b"), pf(2))) == ()
    assert shared_ports_of((pf(0, "a"), pf(1, "b"), pf(2, "a"), pf(3))) == (0, 1, 0, 3)
    inventory = Inventory("b", (pf(0, "0000:01:00.0"), pf(1, "0000:01:00.0"), pf(2)))
    assert read_inventory(dump_inventory(inventory)) == inventory
    assert dump_inventory(inventory).count('"port"') == 2


DOWN = pf(2, "a", offer_mbps=0, mbps=0, up=False)
OUT = (Out(Indexes(1), "held by pod x", 30),)


@pytest.mark.parametrize(
    ("pfs", "rate", "left", "total"),
    [
        # Both PFs of a port show what the port has left; it is counted once.
        ((pf(0, "a"), pf(1, "a"), pf(2)), 0, [100, 100, 100], 200),
        ((pf(0, "a"), pf(1, "a"), pf(2)), 60, [40, 40, 100], 140),
        # A host's share of a cable is the host's on all PFs; the rate of a PF that is down is unknown, not zero.
        ((pf(0, "a", offer_mbps=90), pf(1, "a", offer_mbps=50), DOWN), 0, [50, 50, 50], 50),
        # A VF that is out may have its rate still.
        ((pf(0, "a"), pf(1, "a", out=OUT)), 0, [70, 70], 70),
    ],
)
def test_what_one_pf_of_a_port_gives_the_other_has_not(
    pfs: tuple[Pf, ...], rate: int, left: list[int], total: int
) -> None:
    accounting = VfAccounting(Inventory("b", pfs), [claim("u1", (pfs[0], 0, rate))])
    assert [capacity.mbps for capacity in accounting.free_vfs.capacities] == left
    assert accounting.free_vfs.free_mbps == total
    if not rate and not any(one.out for one in pfs):
        assert [capacity.mbps for capacity in full_capacity(pfs).capacities] == left


def test_a_share_counts_over_all_pfs_of_its_entry() -> None:
    """50 percent of 4 + 3 VFs, rounded down; PFs of another entry, or without a share, do not count."""
    pfs = (pf(0, access=HALF), pf(1), pf(2, vfs=3, access=HALF), pf(3, access=THIRD))
    first, second = shares_of(pfs)
    assert (first.pfs, first.max_vfs, second.pfs, second.max_vfs) == (0b0101, 3, 0b1000, 1)
    assert [each.vfs for each in caps_for((first, second), "a")] == [3, 1]
    # Nothing is given to a pod whose namespace is not known.
    assert [each.vfs for each in caps_for((first, second), None)] == [0, 0]


@pytest.mark.parametrize("seed", range(40))
def test_pods_that_come_and_go_never_hold_more_than_a_port_offers(seed: int) -> None:
    """Promise 8 by its definition, after every step; the accounting equals what is derived from scratch."""
    random, claims = Random(seed), dict[str, Claim]()
    pfs = tuple(pf(number, random.choice(("a", "b", None)), offer_mbps=random.choice((100, 90))) for number in range(4))
    inventory = Inventory("b", pfs)
    accounting = VfAccounting(inventory)
    for step in range(30):
        uid = f"u{step}"
        if claims and random.random() < 0.3:
            accounting.remove(claims.pop(random.choice(sorted(claims))))
        else:
            rates = [random.randrange(0, 60) for _ in range(random.randint(1, 3))]
            request, free = (
                PodRequest(tuple(VfRequest(VfSettings(min_tx_rate=rate)) for rate in rates)),
                accounting.free_vfs,
            )
            demands = demands_on(request, pfs)
            assert not isinstance(demands, Refused)
            found = place_within(demands, free.capacities, None, free.shared_ports, (), steps=Steps())
            if not isinstance(found, Refused):
                vfs = pick_vfs(request.interfaces, free, found, {})
                claims[uid] = Claim(uid, Assignment(uid, "n1", vfs), "default/p")
                accounting.add(claims[uid])
        assert accounting.free_vfs == derived(inventory, claims.values())
        for cable in {pf.port or pf.name for pf in pfs}:
            offers = {pf.name: pf.offer_mbps for pf in pfs if (pf.port or pf.name) == cable}
            held = [vf.min_tx_rate for each in claims.values() for vf in each.assignment.vfs if vf.pf in offers]
            assert sum(held) <= min(offers.values())


@pytest.mark.parametrize("seed", range(10))
def test_use_by_namespace_follows_the_claims(seed: int) -> None:
    """Also where two pods claim one VF, a claim goes that never came, and VFs are not in the inventory."""
    random, claims = Random(seed), dict[str, Claim]()
    pfs = tuple(pf(number, access=access) for number, access in enumerate((HALF, HALF, THIRD, Access())))
    foreign = replace(pfs[0], name="gone")
    inventory = Inventory("b", pfs)
    accounting = VfAccounting(inventory)
    for step in range(40):
        if claims and random.random() < 0.4:
            accounting.remove(claims.pop(random.choice(sorted(claims))))
        else:
            places = [(random.choice((*pfs, foreign)), random.randrange(4), 0) for _ in range(random.randint(1, 3))]
            one = claim(f"u{step}", *dict.fromkeys(places), namespace=random.choice("ab"))
            if random.random() < 0.2:
                accounting.remove(one)
            else:
                claims[one.uid] = one
                accounting.add(one)
        assert accounting.free_vfs == derived(inventory, claims.values())
        assert accounting.copy().free_vfs == VfAccounting(inventory, claims.values()).free_vfs


@pytest.mark.parametrize(("ports", "access"), [("aaa", Access()), ("ab", HALF), ("aa", HALF)])
@pytest.mark.parametrize("seed", range(16))
def test_a_dry_run_by_sums_agrees_with_the_accounting(seed: int, ports: str, access: Access) -> None:
    """Pods that are removed and added again free and take the rate of every PF on their cable.

    The share of a pod's namespace grows by the VFs of its own pods that leave, and not by those of others.
    """
    random = Random(seed)
    pfs = tuple(pf(number, port, access=access) for number, port in enumerate(ports))
    accounting, claims = VfAccounting(Inventory("b", pfs)), list[Claim]()
    for number in range(6):
        vf, pf_index = divmod(number, len(pfs))
        one = claim(f"u{number}", (pfs[pf_index], vf, random.randrange(20)), namespace=random.choice("ab"))
        claims.append(one)
        accounting.add(one)
    wish = VfRequest(VfSettings(min_tx_rate=random.choice((0, 0, 30, 60, 80))), pf=random.choice((None, "pf1")))
    request = PodRequest((wish,) * random.randint(1, 3), namespace="a")
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
        found = place_within(demands, exact.capacities, None, exact.shared_ports, caps, steps=Steps())
        assert sums.filter() == ((found.reason,) if isinstance(found, Refused) else ())

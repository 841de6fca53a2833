"""What a node's PFs have left: by port where PFs share one, by namespace where an offer's entries have a share."""

from dataclasses import replace
from random import Random

import pytest

from mooring.annotations.assignment import Assignment
from mooring.annotations.inventory import Inventory, Out, Pf, dump_inventory, read_inventory
from mooring.annotations.pf_terms import Access
from mooring.annotations.request import PodRequest, VfRequest
from mooring.indexes import Indexes
from mooring.nic.settings import VfSettings
from scheduler.cache.assigned_pod import AssignedPod
from scheduler.kube.outcomes import Refused
from scheduler.placement.assign import demands_on, pick_vfs, place_on, place_within
from scheduler.placement.shares import caps_for
from scheduler.placement.steps import Steps
from scheduler.placement.vf_accounting import Claim, FreeVfs, VfAccounting, full_capacity, shared_ports_of
from scheduler.plugins.device_rules.rdma_vfs import _VfSums
from tests.scheduler.placement.derived_vfs import claim, free_vfs_of, small_pf

HALF = Access(max_share=50, entry=1)


def pf(number: int, port: str | None, offer_mbps: int = 100, mbps: int = 100) -> Pf:
    return small_pf(number, port=port, offer_mbps=offer_mbps, mbps=mbps, up=mbps > 0)


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


@pytest.mark.parametrize("seed", range(10))
def test_use_by_namespace_follows_the_claims(seed: int) -> None:
    """Also where two pods claim one VF, a claim goes that never came, and VFs are not in the inventory."""
    random = Random(seed)
    entries = (HALF, HALF, Access(max_share=30, entry=2), Access())
    pfs = tuple(small_pf(number, access=access) for number, access in enumerate(entries))
    foreign = replace(pfs[0], name="gone")
    inventory = Inventory("b", pfs)
    accounting, claims = VfAccounting(inventory), dict[str, Claim]()
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
        assert accounting.free_vfs == free_vfs_of(inventory, claims.values())
        assert accounting.copy().free_vfs == VfAccounting(inventory, claims.values()).free_vfs


@pytest.mark.parametrize(("ports", "access"), [("aaa", Access()), ("ab", HALF), ("aa", HALF)])
@pytest.mark.parametrize("seed", range(16))
def test_a_dry_run_by_sums_agrees_with_the_accounting(seed: int, ports: str, access: Access) -> None:
    """Pods that are removed and added again free and take the rate of every PF on their cable.

    The share of a pod's namespace grows by the VFs of its own pods that leave, and not by those of others.
    """
    random = Random(seed)
    pfs = tuple(small_pf(number, port=port, access=access) for number, port in enumerate(ports))
    accounting = VfAccounting(Inventory("b", pfs))
    claims = [
        claim(
            f"u{index}",
            (pfs[index % len(pfs)], index // len(pfs), random.randrange(20)),
            namespace=random.choice("ab"),
        )
        for index in range(6)
    ]
    for each in claims:
        accounting.add(each)
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

"""Exact VFs: what a PF supports and allows, which of equal VFs is taken, and how claimed devices divide them."""

import random
from array import array
from collections.abc import Sequence
from itertools import product

import pytest

from mooring.annotations.assignment import Assignment, dump_assignment, read_assignment
from mooring.annotations.inventory import Pf
from mooring.annotations.pf_terms import Allow
from mooring.annotations.request import PodRequest, VfRequest
from mooring.indexes import Indexes
from mooring.nic.settings import VfSettings
from scheduler.kube.outcomes import Refused
from scheduler.placement.assign import NOT_ENOUGH, Placement, demands_on, divisions, pick_vfs, place_on
from scheduler.placement.eligibility import refused_settings
from scheduler.placement.place import PfCapacity, VfDemand
from scheduler.placement.steps import OutOfSteps, Steps
from scheduler.placement.vf_accounting import FreeVfs
from tests.scheduler.conftest import Json, MakePf

GUID = "02:00:00:00:00:00:00:01"
MAC = "02:00:00:00:00:01"


def _rates(*rates: int) -> PodRequest:
    return PodRequest(tuple(VfRequest(VfSettings(min_tx_rate=mbps)) for mbps in rates))


def _netdev(*netdevs: bool | None) -> PodRequest:
    return PodRequest(tuple(VfRequest(netdev=netdev) for netdev in netdevs))


def _choose(request: PodRequest, free_vfs: FreeVfs) -> Placement | str:
    demands = demands_on(request, free_vfs.pfs)
    if isinstance(demands, Refused):
        return demands.reason
    placement = place_on(demands, free_vfs.capacities, request.pfs, steps=Steps())
    return placement.reason if isinstance(placement, Refused) else placement


def _free_vfs(*pfs: Pf) -> FreeVfs:
    capacities = tuple(PfCapacity(len(pf.usable), pf.offer_mbps) for pf in pfs)
    return FreeVfs(pfs, tuple(pf.usable.mask for pf in pfs), capacities)


@pytest.mark.parametrize(
    ("settings", "pf", "reason"),
    [
        ({"min_tx_rate": 5}, {"can": frozenset({"max_tx_rate"})}, "min_tx_rate cannot be set by the PF's driver"),
        ({"min_tx_rate": 5}, {"link": "infiniband"}, "min_tx_rate cannot be set on infiniband links"),
        ({"max_tx_rate": 5}, {"link": "infiniband"}, "max_tx_rate cannot be set on infiniband links"),
        ({"max_tx_rate": 100_001}, {}, "max_tx_rate 100001 is above the line rate of the PF"),
        ({"max_tx_rate": 100_000}, {}, ""),
        ({"max_tx_rate": 100_001}, {"mbps": 0, "offer_mbps": 0}, ""),
        ({"vlan": 5}, {"link": "infiniband"}, "vlan cannot be set on infiniband links"),
        ({"mac": MAC}, {"link": "infiniband"}, "mac cannot be set on infiniband links"),
        ({"guid": GUID}, {}, "guid cannot be set on ethernet links"),
        ({"vlan": 5}, {}, "vlan 5 is not allowed on the network"),
        ({"vlan": 5}, {"allow": Allow(vlan=Indexes.of([6]))}, "vlan 5 is not allowed on the network"),
        ({"vlan": 5}, {"allow": Allow(vlan=Indexes.of([5]))}, ""),
        ({"vlan": 5}, {"vlan": 5}, ""),
        ({"vlan": 5}, {"vlan": 6}, "vlan 5 is not allowed on the network, where every VF has vlan 6"),
        ({"vlan": 0}, {"vlan": 6}, "vlan 0 is not allowed on the network, where every VF has vlan 6"),
        ({"mac": MAC}, {}, "mac is not allowed on the network"),
        ({"mac": MAC}, {"allow": Allow(mac=True)}, ""),
        ({"trust": True}, {}, "trust is not allowed on the network"),
        ({"trust": False}, {}, ""),
        ({"spoofchk": False}, {}, "spoofchk off is not allowed on the network"),
        ({"spoofchk": True}, {}, ""),
        ({"min_tx_rate": 0, "max_tx_rate": 0}, {"link": "infiniband", "can": frozenset()}, ""),
    ],
)
def test_a_setting_is_refused_before_placement(settings: Json, pf: Json, reason: str, make_pf: MakePf) -> None:
    """By link type, driver, line rate, then by what the operator allows; a rate of 0 requests nothing."""
    assert refused_settings(VfSettings(**settings), make_pf(**pf)) == reason


def test_each_interface_goes_where_its_netdev_is_and_keeps_its_wish(make_pf: MakePf) -> None:
    free_vfs = _free_vfs(make_pf(0, link="infiniband", vf_netdevs=False), make_pf(1))
    request = _netdev(True, False, None)
    placed = _choose(request, free_vfs)
    assert isinstance(placed, Placement)
    assert placed.pfs[:2] == (1, 0)
    picked = pick_vfs(request.interfaces, free_vfs, placed, {})
    assert [vf.netdev for vf in picked] == [True, False, None]


MAX_ONLY = PodRequest((VfRequest(VfSettings(max_tx_rate=5)),))
IB: Json = {"link": "infiniband"}
NO_REPORT = "the node's advertiser does not report which VFs have a netdev"


@pytest.mark.parametrize(
    ("pf", "request_", "outcome"),
    [
        ({"vfs": 1}, PodRequest((VfRequest(), VfRequest())), NOT_ENOUGH["vfs"]),
        ({}, PodRequest((VfRequest(network="rail9"),)), "node(s) had no PF on network 'rail9'"),
        ({"up": False}, _rates(1), "node(s) had no PF with its link up"),
        ({"offer_mbps": 0}, _rates(1), "node(s) had no PF fast enough for 1 Mb/s"),
        ({}, _rates(90_001), "node(s) had no PF fast enough for 90001 Mb/s"),
        ({}, _rates(50_000, 50_000), NOT_ENOUGH["rate"]),
        ({}, PodRequest((VfRequest(), VfRequest()), "distinct"), NOT_ENOUGH["distinct"]),
        # A PF that is down has no rate to reserve, but its VFs exist.
        ({"up": False}, MAX_ONLY, Placement((0,))),
        ({"offer_mbps": 0, "mbps": 0}, MAX_ONLY, Placement((0,))),
        # Without the field netdev any VF will do.
        (IB | {"vf_netdevs": False}, _netdev(None), Placement((0,))),
        (IB, _netdev(None), Placement((0,))),
        ({}, _netdev(True), Placement((0,))),
        (IB | {"vf_netdevs": True}, _netdev(True), Placement((0,))),
        (IB | {"vf_netdevs": False}, _netdev(True), "the PF has VFs without a netdev"),
        (IB, _netdev(True), NO_REPORT),
        (IB, _netdev(False), NO_REPORT),
        (IB | {"vf_netdevs": True}, _netdev(False), Placement((0,))),
        (IB | {"vf_netdevs": False}, _netdev(False), Placement((0,))),
        ({}, _netdev(False), "netdev false is for InfiniBand only: RDMA on Ethernet needs the netdev"),
    ],
)
def test_a_node_that_cannot_give_the_vfs_has_a_reason(
    pf: Json, request_: PodRequest, outcome: Placement | str, make_pf: MakePf
) -> None:
    assert _choose(request_, _free_vfs(make_pf(**pf))) == outcome


def test_the_vf_that_has_been_free_the_longest_is_taken(make_pf: MakePf) -> None:
    """Never used before used, then by the time of its return, then the lowest index."""
    free_vfs, request = _free_vfs(make_pf(vfs=4)), PodRequest((VfRequest(), VfRequest(), VfRequest()))
    since = {"pf0": array("d", [30.0, 10.0, 20.0])}
    picked = pick_vfs(request.interfaces, free_vfs, Placement((0, 0, 0)), since)
    assert [vf.vf for vf in picked] == [3, 1, 2]
    assert [vf.pci for vf in picked] == ["0000:04:00.5", "0000:04:00.3", "0000:04:00.4"]


def test_vfs_of_equal_interfaces_share_what_their_pods_see_of_them(make_pf: MakePf) -> None:
    """Some hundred thousand may be in use: those picked, and those read from pods."""
    free_vfs = _free_vfs(make_pf(vfs=8))
    interfaces = [VfRequest(name="rdma0", containers=("main",)), VfRequest()]
    first, second = (pick_vfs(interfaces, free_vfs, Placement((0, 0)), {}) for _ in range(2))
    assert first == second
    read = read_assignment(dump_assignment(Assignment("u1", "n1", first))).vfs
    assert read == first
    for vfs in (second, read):
        assert all(vf.interface is other.interface for vf, other in zip(first, vfs, strict=True))
    assert [(vf.name, vf.containers, vf.netdev) for vf in read] == [("rdma0", ("main",), None), (None, None, None)]


# The root of each PF: bit k of a mask is the PF under root k.
ROOTS = A, B, C = "pci0000:04", "pci0000:05", "pci0000:06"
EQUAL = (VfDemand(0, 0b111),)
Devices = Sequence[frozenset[str]]


@pytest.fixture
def pfs(make_pf: MakePf) -> list[Pf]:
    return [make_pf(number, pcie=(f"0000:{number + 4:02x}:01.0",)) for number in range(3)]


def _divide(demands: tuple[VfDemand, ...], devices: Devices, pfs: list[Pf], steps: Steps) -> list[tuple[int, ...]]:
    """Return the PFs that each division leaves to each demand, as masks."""
    return [tuple(demand.pfs for demand in one) for one in divisions(demands, tuple(devices), pfs, steps)]


@pytest.mark.parametrize(
    ("count", "devices", "masks"),
    [
        # Which of equal VFs goes to which device would change nothing.
        (4, (A, B, A, B), [(1, 1, 2, 2)]),
        # Every device gets its share before any gets one more: three and two, never four and one.
        (5, (A, B), [(1, 1, 1, 2, 2), (1, 1, 2, 2, 2)]),
        (2, (A, B, C), [(1, 2), (1, 4), (2, 4)]),
    ],
)
def test_equal_vfs_are_divided_evenly_and_once(
    count: int, devices: tuple[str, ...], masks: list[tuple[int, ...]], pfs: list[Pf]
) -> None:
    assert _divide(EQUAL * count, [frozenset({root}) for root in devices], pfs, Steps()) == masks


def test_the_divisions_are_those_of_brute_force(pfs: list[Pf]) -> None:
    """Each that gives no device more than one VF more than another, and no other one."""
    dice = random.Random(20)
    for _ in range(300):
        devices = [frozenset(dice.sample(ROOTS, dice.choice((1, 1, 1, 2)))) for _ in range(dice.randint(1, 4))]
        demands = tuple(VfDemand(number, dice.randint(1, 7)) for number in range(dice.randint(1, 5)))
        assert set(_divide(demands, devices, pfs, Steps())) == _brute_divisions(demands, devices)


def _brute_divisions(demands: tuple[VfDemand, ...], devices: Devices) -> set[tuple[int, ...]]:
    fewest, found = len(demands) // len(devices), set()
    near = [sum(1 << ROOTS.index(root) for root in roots) for roots in devices]
    for owners in product(range(len(devices)), repeat=len(demands)):
        masks = tuple(demand.pfs & near[owner] for owner, demand in zip(owners, demands, strict=True))
        if all(masks) and all(owners.count(number) in (fewest, fewest + 1) for number in range(len(devices))):
            found.add(masks)
    return found


def test_a_division_that_runs_out_of_steps_is_an_error(pfs: list[Pf]) -> None:
    """It is no proof that there is no division."""
    with pytest.raises(OutOfSteps):
        _divide(
            tuple(VfDemand(number, 0b111) for number in range(9)), [frozenset({root}) for root in ROOTS], pfs, Steps(50)
        )

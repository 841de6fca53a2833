"""How VFs are divided among claimed devices; against every way to do it by brute force."""

import random
from collections.abc import Callable, Sequence
from itertools import product

import pytest

from mooring.annotations.inventory import Pf
from scheduler.placement.assign import divisions
from scheduler.placement.place import VfDemand
from scheduler.placement.steps import OutOfSteps, Steps

MakePf = Callable[..., Pf]
A, B, C = "pci0000:04", "pci0000:05", "pci0000:06"
ROOTS = (A, B, C)


@pytest.fixture
def pfs(make_pf: MakePf) -> tuple[Pf, ...]:
    """Make a PF under each root: bit k of a mask is the PF under `ROOTS`[k]."""
    return tuple(make_pf(number, pcie=(f"0000:{number + 4:02x}:01.0",)) for number in range(3))


def _different(count: int) -> tuple[VfDemand, ...]:
    return tuple(VfDemand(number + 1, 0b111) for number in range(count))


def _on(*devices: str) -> tuple[frozenset[str], ...]:
    return tuple(frozenset({root}) for root in devices)


def _masks(
    demands: tuple[VfDemand, ...], devices: tuple[frozenset[str], ...], pfs: Sequence[Pf]
) -> list[tuple[int, ...]]:
    return [tuple(demand.pfs for demand in one) for one in divisions(demands, devices, pfs, Steps())]


def test_equal_vfs_are_divided_once(pfs: tuple[Pf, ...]) -> None:
    """Which of them goes to which device would change nothing."""
    assert _masks((VfDemand(0, 0b111),) * 4, _on(A, B, A, B), pfs) == [(1, 1, 2, 2)]


def test_every_device_gets_its_share_before_any_gets_one_more(pfs: tuple[Pf, ...]) -> None:
    """Five VFs beside two devices: three and two, never four and one."""
    assert _masks((VfDemand(0, 0b111),) * 5, _on(A, B), pfs) == [(1, 1, 1, 2, 2), (1, 1, 2, 2, 2)]
    assert _masks((VfDemand(0, 0b111),) * 2, _on(A, B, C), pfs) == [(1, 2), (1, 4), (2, 4)]


def test_a_vf_goes_only_where_its_selectors_admit_it(pfs: tuple[Pf, ...]) -> None:
    """The order in which a claim's devices were allocated excludes nothing."""
    demands = (VfDemand(1, 0b010), VfDemand(2, 0b001))
    assert _masks(demands, _on(A, B), pfs) == [(2, 1)]
    assert _masks(demands, _on(A, A), pfs) == []


def test_the_divisions_are_those_of_brute_force(pfs: tuple[Pf, ...]) -> None:
    """Each that gives no device more than one VF more than another, and no other one."""
    dice = random.Random(20)
    for _ in range(300):
        devices = tuple(frozenset(dice.sample(ROOTS, dice.choice((1, 1, 1, 2)))) for _ in range(dice.randint(1, 4)))
        demands = tuple(VfDemand(number, dice.randint(1, 7)) for number in range(dice.randint(1, 5)))
        assert set(_masks(demands, devices, pfs)) == _brute(demands, devices)


def _brute(demands: tuple[VfDemand, ...], devices: tuple[frozenset[str], ...]) -> set[tuple[int, ...]]:
    fewest, found = len(demands) // len(devices), set()
    near = [sum(1 << ROOTS.index(root) for root in roots) for roots in devices]
    for owners in product(range(len(devices)), repeat=len(demands)):
        masks = tuple(demand.pfs & near[owner] for owner, demand in zip(owners, demands, strict=True))
        if all(masks) and all(owners.count(number) in (fewest, fewest + 1) for number in range(len(devices))):
            found.add(masks)
    return found


def test_running_out_of_steps_is_said(pfs: tuple[Pf, ...]) -> None:
    """It is no proof that there is no division."""
    with pytest.raises(OutOfSteps):
        list(divisions(_different(9), _on(A, B, C), pfs, Steps(50)))

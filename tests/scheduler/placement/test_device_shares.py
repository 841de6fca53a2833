"""How VFs are divided among claimed devices; against every way to do it by brute force."""

import random
from collections.abc import Sequence
from itertools import product

import pytest

from mooring.annotations.inventory import Pf
from scheduler.placement.assign import divisions
from scheduler.placement.place import VfDemand
from scheduler.placement.steps import OutOfSteps, Steps
from tests.scheduler.conftest import MakePf

A, B, C = "pci0000:04", "pci0000:05", "pci0000:06"
ROOTS = (A, B, C)
EQUAL = (VfDemand(0, 0b111),)


@pytest.fixture
def pfs(make_pf: MakePf) -> tuple[Pf, ...]:
    """Make a PF under each root: bit k of a mask is the PF under `ROOTS`[k]."""
    return tuple(make_pf(number, pcie=(f"0000:{number + 4:02x}:01.0",)) for number in range(3))


def _on(*devices: str) -> tuple[frozenset[str], ...]:
    return tuple(frozenset({root}) for root in devices)


def _masks(
    demands: tuple[VfDemand, ...], devices: tuple[frozenset[str], ...], pfs: Sequence[Pf]
) -> list[tuple[int, ...]]:
    return [tuple(demand.pfs for demand in one) for one in divisions(demands, devices, pfs, Steps())]


@pytest.mark.parametrize(
    ("demands", "devices", "masks"),
    [
        # Which of equal VFs goes to which device would change nothing.
        (EQUAL * 4, (A, B, A, B), [(1, 1, 2, 2)]),
        # Every device gets its share before any gets one more: three and two, never four and one.
        (EQUAL * 5, (A, B), [(1, 1, 1, 2, 2), (1, 1, 2, 2, 2)]),
        (EQUAL * 2, (A, B, C), [(1, 2), (1, 4), (2, 4)]),
        # A VF goes where its selectors admit it; the order of a claim's devices excludes nothing.
        ((VfDemand(1, 0b010), VfDemand(2, 0b001)), (A, B), [(2, 1)]),
        ((VfDemand(1, 0b010), VfDemand(2, 0b001)), (A, A), []),
    ],
)
def test_vfs_are_divided_evenly_and_equal_ones_once(
    demands: tuple[VfDemand, ...], devices: tuple[str, ...], masks: list[tuple[int, ...]], pfs: tuple[Pf, ...]
) -> None:
    assert _masks(demands, _on(*devices), pfs) == masks


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
        list(divisions(tuple(VfDemand(number, 0b111) for number in range(9)), _on(A, B, C), pfs, Steps(50)))

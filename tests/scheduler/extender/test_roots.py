"""How interfaces are divided among the PCIe roots of claimed devices; against every way to do it by brute force."""

import random
from collections.abc import Mapping, Sequence
from itertools import product

import pytest

from mooring.annotations.request import VfRequest
from mooring.nic.settings import VfSettings
from scheduler.extender import roots
from scheduler.extender.roots import OutOfSteps, RootCapacity, divisions

A, B, C = "pci0000:15", "pci0000:26", "pci0000:37"


def _interfaces(count: int) -> list[VfRequest]:
    """Return interfaces of which no two are equal."""
    return [VfRequest(VfSettings(min_tx_rate=number + 1)) for number in range(count)]


def _on(*devices: str) -> list[frozenset[str]]:
    return [frozenset({root}) for root in devices]


def _found(
    interfaces: Sequence[VfRequest],
    devices: Sequence[frozenset[str]],
    admitted: Sequence[frozenset[str]] | None = None,
) -> list[tuple[str, ...]]:
    every = frozenset[str]().union(*devices)
    return list(divisions(interfaces, devices, admitted or [every] * len(interfaces)))


def test_interfaces_of_one_kind_are_divided_once() -> None:
    """Which of them goes to which device would change nothing."""
    assert _found([VfRequest()] * 4, _on(A, B, A, B)) == [(A, A, B, B)]
    assert _found([VfRequest(name="a"), VfRequest(name="b")], _on(B, A)) == [(B, A)]


def test_every_device_gets_its_share_before_any_gets_one_more() -> None:
    """Five interfaces beside two devices: three and two, never four and one."""
    assert _found([VfRequest()] * 5, _on(A, B)) == [(A, A, A, B, B), (A, A, B, B, B)]
    assert _found([VfRequest()] * 2, _on(A, B, C)) == [(A, B), (A, C), (B, C)]


def test_an_interface_goes_only_where_its_selectors_admit_it() -> None:
    """The order in which a claim's devices were allocated excludes nothing."""
    admitted = [frozenset({B}), frozenset({A})]
    assert _found(_interfaces(2), _on(A, B), admitted) == [(B, A)]
    assert _found(_interfaces(2), _on(A, A), admitted) == []


def test_the_divisions_are_those_of_brute_force() -> None:
    """Each that gives no device more than one interface more than another, and no other one."""
    dice = random.Random(20)
    for _ in range(200):
        devices = [frozenset(dice.sample((A, B, C), dice.choice((1, 1, 1, 2)))) for _ in range(dice.randint(1, 4))]
        every = sorted(frozenset[str]().union(*devices))
        interfaces = _interfaces(dice.randint(1, 5))
        admitted = [frozenset(dice.sample(every, dice.randint(1, len(every)))) for _ in interfaces]
        assert set(_found(interfaces, devices, admitted)) == _brute(devices, admitted)
        capacities = {root: RootCapacity(dice.randint(0, 4), dice.randint(0, 12)) for root in (A, B, C)}
        fitting = {one for one in _brute(devices, admitted) if _fits(one, interfaces, capacities)}
        assert set(divisions(interfaces, devices, admitted, capacities)) == fitting


def _brute(devices: Sequence[frozenset[str]], admitted: Sequence[frozenset[str]]) -> set[tuple[str, ...]]:
    fewest = len(admitted) // len(devices)
    found = set()
    for owners in product(range(len(devices)), repeat=len(admitted)):
        if all(owners.count(number) in (fewest, fewest + 1) for number in range(len(devices))):
            choices = [devices[owner] & allowed for owner, allowed in zip(owners, admitted, strict=True)]
            found |= set(product(*choices))
    return found


def _fits(division: tuple[str, ...], interfaces: Sequence[VfRequest], capacities: Mapping[str, RootCapacity]) -> bool:
    return all(
        division.count(root) <= left.vfs
        and sum(one.min_tx_rate for one, at in zip(interfaces, division, strict=True) if at == root) <= left.mbps
        for root, left in capacities.items()
    )


def test_running_out_of_steps_is_said(monkeypatch: pytest.MonkeyPatch) -> None:
    """It is no proof that there is no division."""
    monkeypatch.setattr(roots, "STEPS", 50)
    with pytest.raises(OutOfSteps):
        _found(_interfaces(8), _on(A, B, C, *(f"pci0000:{bus}" for bus in range(40, 45))))

"""Pods of which some want distinct PFs are placed together exactly if brute force places them."""

import itertools
from random import Random

import pytest

from scheduler.placement import place as subject
from scheduler.placement.place import PfCapacity, PodDemands, VfDemand, place_pods
from scheduler.placement.steps import Steps

_ALL = (1 << 8) - 1


def _exists(pods: list[PodDemands], left: list[tuple[int, int]]) -> bool:
    """Return whether the pods fit, by trying all PFs for all VFs of one after another."""
    if not pods:
        return True
    first, *rest = pods
    return any(
        (after := _after(first, chosen, left)) is not None and _exists(rest, after)
        for chosen in itertools.product(range(len(left)), repeat=len(first.vfs))
    )


def _after(pod: PodDemands, chosen: tuple[int, ...], left: list[tuple[int, int]]) -> list[tuple[int, int]] | None:
    """Return what is left of each PF beside a pod; None if a rule is broken."""
    if pod.is_distinct and len(set(chosen)) < len(chosen):
        return None
    after = list(left)
    for index, (rate, allowed) in zip(chosen, pod.vfs, strict=True):
        vfs, mbps = after[index]
        if vfs < 1 or mbps < rate or not allowed >> index & 1:
            return None
        after[index] = vfs - 1, mbps - rate
    return after


def _drawn(random: Random) -> tuple[list[PodDemands], list[PfCapacity]]:
    free = [PfCapacity(random.randint(1, 4), 100) for _ in range(random.randint(2, 3))]
    allowed = (_ALL, _ALL, 0b011, 0b110)
    pods = [
        PodDemands(
            tuple(
                VfDemand(random.choice((0, 20, 30, 40, 50, 60)), random.choice(allowed))
                for _ in range(random.randint(1, 2))
            ),
            random.random() < 0.7,
        )
        for _ in range(random.randint(2, 4))
    ]
    return pods, free


@pytest.mark.parametrize("seed", range(200))
def test_a_placement_is_found_exactly_if_one_exists(seed: int) -> None:
    pods, free = _drawn(Random(seed))
    found, left = place_pods(pods, free, steps=Steps()), [(vfs, mbps) for vfs, mbps in free]
    assert (found is not None) == _exists(pods, left)
    for pod, chosen in zip(pods, found or (), strict=False):
        after = _after(pod, chosen, left)
        assert after is not None
        left = after


def test_a_search_ends_when_its_steps_have_run_out(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(subject, "BUDGET", 3)
    pods = [PodDemands((VfDemand(10, _ALL), VfDemand(10, _ALL)), is_distinct=True)] * 2
    assert place_pods(pods, [PfCapacity(2, 20)] * 2, steps=Steps()) is None

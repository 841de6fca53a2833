"""The loss of victims, as preemption compares it."""

from random import Random

import pytest

from scheduler.cache.assigned_pod import AssignedPod
from scheduler.cycle.preemption.potential_victims import NO_LOSS, Victim, add_loss, loss_of, single
from scheduler.kube.group_membership import GroupKey


def _victim(random: Random, number: int) -> Victim:
    """A pod, or a whole group, with or without a PodGroup."""
    priority, started = random.randint(-2, 2), f"2026-01-01T00:00:{number:02}Z"
    pods = tuple(
        AssignedPod(f"{number}-{k}", f"default/{number}-{k}", "n1") for k in range(random.choice((1, 1, 2, 5)))
    )
    if len(pods) == 1:
        return single(pods[0], priority)
    key = GroupKey("PodGroup" if random.random() < 0.5 else "annotation", "default", f"g{number}")
    return Victim(pods, pods, priority, started, key, is_whole=True)


@pytest.mark.parametrize("seed", range(30))
def test_the_loss_of_victims_is_the_sum_of_their_losses(seed: int) -> None:
    """In whatever portions they are added, also for priorities below zero."""
    random = Random(seed)
    victims = [_victim(random, number) for number in range(random.randint(0, 8))]
    loss, rest = NO_LOSS, list(victims)
    while rest:
        count = random.randint(1, len(rest))
        loss, rest = add_loss(loss, loss_of(rest[:count], 1)), rest[count:]
    assert loss == loss_of(victims, loss[0])

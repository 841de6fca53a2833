"""The loss of victims, as preemption compares it."""

import itertools
from typing import Literal

from scheduler.cache.assigned_pod import AssignedPod
from scheduler.cycle.preemption.potential_victims import Loss, Victim, loss_of, single
from scheduler.kube.group import GroupKey


def _victim(priority: int, count: int = 1, source: Literal["annotation", "PodGroup"] = "annotation") -> Victim:
    """A pod, or a whole group of several."""
    pods = tuple(AssignedPod(f"{number}", f"default/{number}", "n1") for number in range(count))
    if count == 1:
        return single(pods[0], priority)
    return Victim(pods, pods, priority, "", GroupKey(source, "default", "g"), is_whole=True)


def test_losses_are_compared_in_kube_schedulers_order() -> None:
    """Each is larger than the one before: more victims, whole groups, a higher priority, and broken budgets."""
    low, middle = _victim(-3), _victim(0)
    pods = [[], [low], [low, low], [middle], [middle, _victim(-1)], [middle, middle]]
    groups = [[_victim(0, 2)], [_victim(0, 3)], [_victim(1)]]
    losses = [*(loss_of(victims, 0) for victims in [*pods, *groups]), loss_of([_victim(-1)], 1)]
    assert all(first < second for first, second in itertools.pairwise(losses))


def test_a_group_by_annotation_counts_as_all_of_its_pods_and_a_pod_group_as_one() -> None:
    assert [loss_of([victim], 0).victims for victim in (_victim(0, 3), _victim(0, 3, "PodGroup"))] == [3, 1]
    assert loss_of([_victim(0, 3), _victim(5)], 0) == Loss(0, 5 + 2**31, 0, 5 + 2**31 + 3 * 2**31, 4, 3)

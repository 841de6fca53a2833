"""Which budgets count for a pod, and how many of a namespace."""

from typing import Any

import msgspec
import pytest

from scheduler.cache.assigned_pod import AssignedPod
from scheduler.cycle.preemption.disruption_budgets import MOST_OF_NAMESPACE, Budgets
from scheduler.kube.selecting_objects import PodDisruptionBudget
from scheduler.kube.selection.affinity import AffinityInfo


def _pod(number: int, namespace: str = "ns", **labels: str) -> AssignedPod:
    pairs = tuple(sorted(labels.items()))
    return AssignedPod(f"u{number}", f"{namespace}/p{number}", "n1", affinity_info=AffinityInfo(namespace, pairs))


def _put(budgets: Budgets, name: str, selector: dict[str, Any], namespace: str = "ns", allowed: int = 0) -> None:
    document = {
        "metadata": {"name": name, "namespace": namespace},
        "spec": {"selector": selector},
        "status": {"disruptionsAllowed": allowed},
    }
    budgets.put(msgspec.convert(document, PodDisruptionBudget))


@pytest.mark.parametrize(
    "selector",
    [
        {"matchLabels": {"app": "a"}},
        {"matchLabels": {"app": "a", "tier": "x"}},
        {"matchExpressions": [{"key": "app", "operator": "In", "values": ["a"]}]},
        {"matchExpressions": [{"key": "app", "operator": "NotIn", "values": ["b", "c"]}]},
        {"matchExpressions": [{"key": "tier", "operator": "Exists"}]},
    ],
)
def test_a_budget_counts_for_the_pods_that_it_selects(selector: dict[str, Any]) -> None:
    """Of its own namespace, whether by labels or by expressions; until it is removed."""
    budgets = Budgets()
    _put(budgets, "one", selector)
    _put(budgets, "other", {"matchLabels": {"app": "c"}})
    pods = [_pod(1, app="a", tier="x"), _pod(2, app="b"), _pod(3, "other", app="a", tier="x")]
    assert [budgets.violations([pod], {}) for pod in pods] == [1, 0, 0]
    budgets.remove("ns", "one")
    assert budgets.violations(pods, {}) == 0


def test_of_a_namespace_so_many_budgets_count_as_are_soon_read() -> None:
    """A tenant may create thousands, and pods of as many kinds: what they cost is bounded, and counted."""
    budgets = Budgets()
    differs = [{"key": "app", "operator": "NotIn", "values": [f"x{number}"]} for number in range(60)]
    for number in range(3000):
        _put(budgets, f"b{number:04}", {"matchExpressions": differs})
    _put(budgets, "last", {"matchLabels": {"app": "mine"}})
    most = MOST_OF_NAMESPACE // 64
    for number in range(50):
        assert budgets.violations([_pod(number, app=f"a{number}")], {}) == 1
    assert budgets.comparisons == 50 * most * 2, "each pod with each budget once, and those found are gone through"
    # A budget that comes last by name counts again when those before it are gone, and so does another namespace's.
    for number in range(most, 3000):
        budgets.remove("ns", f"b{number:04}")
    used: dict[int, int] = {}
    assert budgets.violations([_pod(99, app="mine")], used) == 1
    assert len(used) == most
    budgets.remove("ns", "b0000")
    budgets.violations([_pod(99, app="mine")], used := {})
    assert len(used) == most


def test_budgets_that_name_a_label_cost_only_pods_with_it() -> None:
    """As in a namespace of many applications with a budget each."""
    budgets = Budgets()
    for number in range(500):
        _put(budgets, f"b{number}", {"matchLabels": {"app": f"a{number}"}})
    assert budgets.violations([_pod(7, app="a7")], {}) == 1
    assert budgets.comparisons == 2

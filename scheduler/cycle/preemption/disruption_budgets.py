"""PodDisruptionBudgets for preemption: which victims would violate one. Pure.

Source: kube-scheduler's filterPodsWithPDBViolation. A budget without a selector, or with an empty one, selects no pod.
Users can create budgets in their namespaces, so only a limited number per namespace counts.
"""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Protocol
from weakref import WeakKeyDictionary

from scheduler.cache.assigned_pod import AssignedPod
from scheduler.kube.selecting_objects import PodDisruptionBudget
from scheduler.kube.selection.affinity import AffinityInfo
from scheduler.kube.selection.selectors import EVERYTHING, NOTHING, Selector, read_selector

# Limit of the budgets of a namespace: each costs `_A_BUDGET`, and 1 for each label and expression of its selector.
MOST_OF_NAMESPACE, _A_BUDGET = 4096, 4


@dataclass(frozen=True, slots=True)
class _Budget:
    selector: Selector
    max_disruptions: int
    # Pods by name whose eviction the API server has already counted.
    disruptions: frozenset[str]


class Objections(Protocol):
    """Reasons to remove some pods rather than others."""

    @property
    def has_any(self) -> bool:
        """Return whether any removal can violate something."""

    def violations(self, assigned_pods: Sequence[AssignedPod], counts: dict[int, int]) -> int:
        """Return how many removals of these pods violate something, in addition to those counted in ``counts``."""


class Budgets:
    def __init__(self) -> None:
        self._budgets: dict[str, dict[str, _Budget]] = {}
        # The budgets that count, by a label that a pod must have to be selected; under None those without such a label.
        self._by_label: dict[str, dict[tuple[str, str] | None, list[_Budget]]] = {}
        # How many selectors have been compared with pods, and how often a relevant field of a budget has changed.
        self.comparisons = self.changes = 0
        # The budgets that select pods of one signature; cleared whenever a budget changes.
        self._of_signature: WeakKeyDictionary[AffinityInfo, tuple[_Budget, ...]] = WeakKeyDictionary()

    def put(self, budget: PodDisruptionBudget) -> None:
        """Add or update a budget; raise ValueError for a malformed selector."""
        namespace, name, status = budget.metadata.namespace, budget.metadata.name, budget.status
        selector = read_selector(budget.spec.selector)
        if selector in (EVERYTHING, NOTHING):
            self.remove(namespace, name)
            return
        new = _Budget(selector, status.disruptions_allowed, frozenset(status.disrupted_pods or ()))
        # The status also counts pods, and changes with each of them.
        if self._budgets.get(namespace, {}).get(name) != new:
            self._forget(namespace)
            self._budgets.setdefault(namespace, {})[name] = new

    def remove(self, namespace: str, name: str) -> None:
        self._forget(namespace)
        budgets = self._budgets.get(namespace, {})
        budgets.pop(name, None)
        if not budgets:
            self._budgets.pop(namespace, None)

    def _forget(self, namespace: str) -> None:
        self._of_signature.clear()
        self._by_label.pop(namespace, None)
        self.changes += 1

    @property
    def has_any(self) -> bool:
        return bool(self._budgets)

    def violations(self, assigned_pods: Sequence[AssignedPod], counts: dict[int, int]) -> int:
        violations = 0
        for assigned_pod in assigned_pods if self._budgets else ():
            if (info := assigned_pod.affinity_info) is None:
                continue
            budgets = self._of_signature.get(info)
            if budgets is None:
                budgets = self._of_signature[info] = self._budgets_of(info)
            if budgets:
                self.comparisons += len(budgets)
                violations += _violates(assigned_pod, budgets, counts)
        return violations

    def _budgets_of(self, affinity_info: AffinityInfo) -> tuple[_Budget, ...]:
        """Return the budgets that select pods of one signature; no budget selects a pod without labels."""
        if not affinity_info.labels:
            return ()
        by_label = self._budgets_by_label(affinity_info.namespace)
        candidates = [budget for label in (None, *affinity_info.labels) for budget in by_label.get(label, ())]
        self.comparisons += len(candidates)
        return tuple(budget for budget in candidates if budget.selector.selects(affinity_info.labels))

    def _budgets_by_label(self, namespace: str) -> dict[tuple[str, str] | None, list[_Budget]]:
        """Return the budgets of a namespace that count: the first ones by name."""
        if namespace not in self._by_label:
            by_label, cost = dict[tuple[str, str] | None, list[_Budget]](), 0
            for _, budget in sorted(self._budgets.get(namespace, {}).items()):
                cost += _A_BUDGET + len(budget.selector.equal) + len(budget.selector.needs)
                if cost > MOST_OF_NAMESPACE:
                    break
                by_label.setdefault(next(iter(budget.selector.equal), None), []).append(budget)
            self._by_label[namespace] = by_label
        return self._by_label[namespace]


def _violates(assigned_pod: AssignedPod, budgets: Iterable[_Budget], counts: dict[int, int]) -> bool:
    """Count a pod against each of its budgets; return whether one of them has no disruption left."""
    is_violation, name = False, assigned_pod.pod.partition("/")[2]
    for budget in budgets:
        if name not in budget.disruptions:
            counts[id(budget)] = counts.get(id(budget), 0) + 1
            is_violation = is_violation or counts[id(budget)] > budget.max_disruptions
    return is_violation

"""PodDisruptionBudgets as preemption reads them: which victims would violate one. Pure.

Source: kube-scheduler's filterPodsWithPDBViolation. A budget without a selector, or with an empty one, selects no pod.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from weakref import WeakKeyDictionary

from scheduler.cache.cache import AssignedPod
from scheduler.kube.objects import PodDisruptionBudget
from scheduler.kube.selection.affinity import AffinityInfo
from scheduler.kube.selection.selectors import EVERYTHING, NOTHING, Selector, read_selector


@dataclass(frozen=True, slots=True)
class _Budget:
    selector: Selector
    allowed: int
    # Pods by name whose eviction the API server has already counted.
    disrupted: frozenset[str]


class Budgets:
    """The budgets by namespace and name."""

    def __init__(self) -> None:
        self._budgets: dict[str, dict[str, _Budget]] = {}
        # How often any of them has changed in what is read here.
        self.changes = 0
        # The budgets that select pods of one signature; cleared whenever a budget changes.
        self._about: WeakKeyDictionary[AffinityInfo, tuple[_Budget, ...]] = WeakKeyDictionary()

    def put(self, budget: PodDisruptionBudget) -> None:
        """Add or update a budget; raise ValueError for a malformed selector."""
        selector = read_selector(budget.spec.selector)
        if selector in (EVERYTHING, NOTHING):
            self.remove(budget.metadata.namespace, budget.metadata.name)
            return
        status, budgets = budget.status, self._budgets.setdefault(budget.metadata.namespace, {})
        new = _Budget(selector, status.disruptions_allowed, frozenset(status.disrupted_pods or ()))
        if budgets.get(budget.metadata.name) == new:
            # Its status counts pods too, and changes with each of them.
            return
        self._about.clear()
        self.changes += 1
        budgets[budget.metadata.name] = new

    def remove(self, namespace: str, name: str) -> None:
        self._about.clear()
        self.changes += 1
        budgets = self._budgets.get(namespace, {})
        budgets.pop(name, None)
        if not budgets:
            self._budgets.pop(namespace, None)

    @property
    def has_any(self) -> bool:
        """Return whether there is any budget."""
        return bool(self._budgets)

    def violations(self, assigned_pods: Sequence[AssignedPod], used: dict[int, int]) -> int:
        """Return how many of these pods' removals violate a budget, after those that are counted in ``used``."""
        return sum(self._breaks(assigned, used) for assigned in assigned_pods) if self._budgets else 0

    def _breaks(self, assigned: AssignedPod, used: dict[int, int]) -> bool:
        """Count a pod against each of its budgets; return whether one of them has no disruption left."""
        broken = False
        for budget in (
            self._speaking_of(assigned.affinity_info)
            if assigned.affinity_info is not None and assigned.affinity_info.labels
            else ()
        ):
            if assigned.pod.partition("/")[2] not in budget.disrupted:
                used[id(budget)] = used.get(id(budget), 0) + 1
                broken = broken or used[id(budget)] > budget.allowed
        return broken

    def _speaking_of(self, affinity_info: AffinityInfo) -> tuple[_Budget, ...]:
        found = self._about.get(affinity_info)
        if found is None:
            there = self._budgets.get(affinity_info.namespace, {}).values()
            found = self._about[affinity_info] = tuple(
                one for one in there if one.selector.selects(affinity_info.labels)
            )
        return found

"""PodDisruptionBudgets as preemption reads them: which of the pods that would go break one. Pure.

Source: kube-scheduler's filterPodsWithPDBViolation. A budget without a selector, or with an empty one, speaks of none.
"""

from collections.abc import Sequence
from dataclasses import dataclass

from scheduler.cluster import Seat
from scheduler.objects import PodDisruptionBudget
from scheduler.selectors import EVERYTHING, NOTHING, Selector, read_selector


@dataclass(frozen=True, slots=True)
class _Budget:
    selector: Selector
    allowed: int
    # Pods by name whose eviction the API server has counted already.
    disrupted: frozenset[str]


class Budgets:
    """The budgets by namespace and name."""

    def __init__(self) -> None:
        self._budgets: dict[str, dict[str, _Budget]] = {}

    def put(self, budget: PodDisruptionBudget) -> None:
        """Know a budget; raise ValueError in words for a malformed selector."""
        selector = read_selector(budget.spec.selector)
        if selector in (EVERYTHING, NOTHING):
            self.remove(budget.metadata.namespace, budget.metadata.name)
            return
        status = budget.status
        known = _Budget(selector, status.disruptions_allowed, frozenset(status.disrupted_pods or ()))
        self._budgets.setdefault(budget.metadata.namespace, {})[budget.metadata.name] = known

    def remove(self, namespace: str, name: str) -> None:
        budgets = self._budgets.get(namespace, {})
        budgets.pop(name, None)
        if not budgets:
            self._budgets.pop(namespace, None)

    def split(self, seats: Sequence[Seat]) -> tuple[list[Seat], list[Seat]]:
        """Part the pods, the order kept, into those whose going breaks a budget and the others.

        They are counted in their order: the first ones use up what a budget allows.
        """
        if not self._budgets:
            return [], list(seats)
        used: dict[int, int] = {}
        breaking, others = list[Seat](), list[Seat]()
        for seat in seats:
            (breaking if self._breaks(seat, used) else others).append(seat)
        return breaking, others

    def _breaks(self, seat: Seat, used: dict[int, int]) -> bool:
        """Count a pod against each of its budgets; say whether one of them has nothing left."""
        namespace, _, name = seat.pod.partition("/")
        labels = seat.kin.labels if seat.kin is not None else ()
        broken = False
        for budget in self._budgets.get(namespace, {}).values() if labels else ():
            if name not in budget.disrupted and budget.selector.selects(labels):
                used[id(budget)] = used.get(id(budget), 0) + 1
                broken = broken or used[id(budget)] > budget.allowed
        return broken

"""Limit how long a group decision runs before events are processed, and before other pods are scheduled. Pure.

The budget counts work and not time, so equal clusters give equal decisions. The unit is the evaluation of one node,
about 0.15 µs. At the end of a turn, events are processed; at the end of a quantum, others are scheduled.
"""

from collections.abc import Callable, Generator, Iterable
from typing import TypeVar

from scheduler.cycle.cycle import RecordPhase, ignore_phase
from scheduler.cycle.placement_budget import A_DECISION, PlacementBudget, TurnSpent
from scheduler.kube.pod_info import PodInfo
from scheduler.placement.place import SEARCH_TURN

Outcome = TypeVar("Outcome")
Item = TypeVar("Item")
# Generators that yield between turns, so that events can be processed.
Turns = Generator[None, None, Outcome]
# A group has this many times the steps of a single pod to search for VFs.
_STEPS = 8
# Costs in units of one node: a member before any node is evaluated, a step of a search for VFs, all nodes for one shape
# of members, a label that every node has a value of, a value that is evaluated for the first time (such as
# the PFs of a node for a request), and a member that is put on a known node.
_A_MEMBER, _A_STEP, _A_SHAPE, _A_COLUMN, _A_VALUE, _A_MOVE = 1_000, 8, 4, 10, 250, 150
# Maximum number of members that one turn tries. A machine with smaller turns also has smaller quanta.
MEMBERS_A_TURN = 16
# About 15 ms.
A_TURN = 100_000
VALUES_A_TURN = A_TURN // _A_VALUE
# Work before the end of a quantum. The first quantum is short: many groups may arrive at once, and most need less.
FIRST_QUANTUM, LATER_QUANTUM = 2 * A_TURN, 8 * A_TURN


class GroupBudget:
    """What one decision may do in one turn and in one quantum; ``placement`` limits its searches for VFs.

    ``is_exclusive``: changes invalidated the decision several times, and others wait until it ends, for a limited time.
    """

    def __init__(self, portion: int = MEMBERS_A_TURN) -> None:
        self.record_phase: RecordPhase = ignore_phase
        self.is_exclusive = False
        self._portion = portion
        self._turn_work = self._quantum_work = self._members_of_turn = 0
        self._later_quantum = LATER_QUANTUM if portion >= MEMBERS_A_TURN else portion * _A_MEMBER
        self._quantum = min(FIRST_QUANTUM, self._later_quantum)
        self._renew()

    def _renew(self) -> None:
        self.placement = PlacementBudget(SEARCH_TURN, _STEPS * A_DECISION, values=VALUES_A_TURN)
        self._value_count = self.placement.value_count

    def begin_turn(self, record_phase: RecordPhase = ignore_phase) -> None:
        self.placement.begin_turn()
        self.record_phase = record_phase
        self._turn_work = self._members_of_turn = 0
        self._value_count = self.placement.value_count

    def begin_quantum(self) -> None:
        self._quantum_work, self._quantum = 0, self._later_quantum

    def renew_placement(self) -> None:
        """Restore the full number of search steps, to try members again without some pods."""
        self._charge_values()
        self._renew()

    def charge(self, looks: int) -> None:
        self._turn_work += looks
        self._quantum_work += looks

    def charge_member(self, member: PodInfo, nodes: int, steps: int) -> None:
        affinity_info = member.affinity_info
        terms = (affinity_info.required_affinity, affinity_info.required_anti_affinity, affinity_info.preferences)
        self._members_of_turn += 1
        self.charge(_A_MEMBER + nodes * (1 + len(member.spread) + sum(map(len, terms))) + _A_STEP * steps)

    def charge_shape(self, nodes: int) -> None:
        self.charge(_A_SHAPE * (_A_MEMBER + nodes))

    def charge_column(self, nodes: int) -> None:
        self.charge(_A_COLUMN * (_A_MEMBER + nodes))

    @property
    def turn_is_over(self) -> bool:
        self._charge_values()
        return self._turn_work >= A_TURN or self._members_of_turn >= self._portion

    @property
    def quantum_is_over(self) -> bool:
        self._charge_values()
        return self._quantum_work >= self._quantum

    def _charge_values(self) -> None:
        last_count, self._value_count = self._value_count, self.placement.value_count
        self.charge(_A_VALUE * (self._value_count - last_count))

    def pause(self, looks: int = 0) -> Turns[None]:
        """Count work that was done; yield if the turn is over."""
        self.charge(looks)
        if self.turn_is_over:
            yield

    def move_all(self, move: Callable[[Item], None], items: Iterable[Item]) -> Turns[None]:
        for item in items:
            if self.turn_is_over:
                yield
            move(item)
            self.charge(_A_MOVE)

    def evaluate(self, evaluate: Callable[[], Outcome]) -> Turns[Outcome]:
        """Evaluate nodes, in several turns if the values to evaluate for the first time are too many for one."""
        while True:
            if self.turn_is_over:
                yield
            try:
                return evaluate()
            except TurnSpent:
                yield

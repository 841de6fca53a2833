"""Limit the steps that one decision may spend on the search for placements, over all nodes and in one turn. Pure.

One hard request costs a search on every node whose free VFs and rates differ: a valid pod with 23 rates took 8.8 s on
2,000 nodes. When a turn has spent its steps, events are processed. When a decision has spent all of its steps, it
searches the other nodes neither for VFs nor for victims; a later decision about the pod continues with them.
"""

import sys
from typing import Self

from scheduler.placement.place import SEARCH_TURN
from scheduler.placement.steps import Steps

# About half a second. Most decisions take a few hundred steps.
A_DECISION = 20 * SEARCH_TURN
# Values that a decision about a pod evaluates for the first time in one turn, about 20 ms.
VALUES_TURN = 2_000


class TurnSpent(Exception):  # noqa: N818 - an outcome on its way up, not an error
    """This turn has searched enough: the decision continues in another turn."""


class PlacementBudget(Steps):
    """The steps that a decision may spend. It is checked before each search, and the last search may exceed it.

    One call may evaluate ``values`` for the first time, such as the PFs of each node for a new request.
    """

    __slots__ = ("_a_decision", "_a_turn", "_turn_start", "_value_limit", "values")

    def __init__(self, a_turn: int = sys.maxsize, a_decision: int = A_DECISION, *, values: int = sys.maxsize) -> None:
        super().__init__()
        self._a_turn, self._a_decision, self.values = a_turn, a_decision, values
        # The steps spent when this turn began, and the number of values that may be evaluated in all.
        self._turn_start, self._value_limit = 0, sys.maxsize

    @property
    def is_spent(self) -> bool:
        return self.spent >= self._a_decision

    @property
    def is_turn_over(self) -> bool:
        return self.spent - self._turn_start >= self._a_turn

    def begin_turn(self) -> None:
        self._turn_start = self.spent

    def limit_values(self) -> Self:
        """Limit the values that one ``with`` block evaluates; more raise TurnSpent. Evaluated values are kept."""
        self._value_limit = self.value_count + self.values
        return self

    def __enter__(self) -> None: ...

    def __exit__(self, *_: object) -> None:
        self._value_limit = sys.maxsize

    def judge(self) -> None:
        if self.value_count >= self._value_limit:
            raise TurnSpent
        super().judge()

"""How many steps one decision may spend on the search for placements, over all nodes and in one turn. Pure.

One hard request costs a search on every node whose free VFs and rates differ: a valid pod with 23 rates took 8.8 s at
2,000 nodes. A turn that has spent its steps ends, so that events are taken in. A decision that has spent all of its own
leaves the other nodes unsearched, and looks for no victims there: a later decision about the pod goes on with them.
"""

import sys
from collections.abc import Callable

from scheduler.placement.assign import Placement
from scheduler.placement.place import SEARCHED_AT_ONCE, steps_taken

# Half a second. Most decisions take a few hundred steps.
A_DECISION = 20 * SEARCHED_AT_ONCE


class TurnSpent(Exception):  # noqa: N818 - an outcome on its way up, not an error
    """This turn has searched enough: the decision continues in another."""


class PlacementBudget:
    """The steps that a decision may still spend.

    ``values``: how many values one call may judge for the first time, as the PFs of each node are by a new request.
    """

    def __init__(self, a_turn: int = sys.maxsize, a_decision: int = A_DECISION, *, values: int = sys.maxsize) -> None:
        self.values = values
        self._a_turn = self._left_this_turn = a_turn
        self._left = self._a_decision = a_decision

    @property
    def spent(self) -> int:
        """How many steps the decision has spent."""
        return self._a_decision - self._left

    @property
    def is_spent(self) -> bool:
        return self._left <= 0

    @property
    def turn_is_spent(self) -> bool:
        return self._left_this_turn <= 0

    def begin_turn(self) -> None:
        self._left_this_turn = self._a_turn

    def search(self, choose: Callable[[int], Placement | str], row: int) -> Placement | str:
        """Search a row; raise TurnSpent if this turn has searched enough."""
        if self._left_this_turn <= 0:
            raise TurnSpent
        before = steps_taken()
        found = choose(row)
        self.charge_since(before)
        return found

    def charge_since(self, before: int) -> None:
        """Count the steps of searches that were made since `steps_taken` was ``before``."""
        if spent := steps_taken() - before:
            self._spend(spent)

    def _spend(self, steps: int) -> None:
        self._left -= steps
        self._left_this_turn -= steps

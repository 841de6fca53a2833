"""Steps: the one currency in which work is counted. What searches gets them as an argument and spends them.

A step is about a microsecond: a look at a PF or a VF in the search for a placement. Other work is counted in steps of
as much time. Steps are counted and not timed, so that equal clusters give equal decisions. An outcome that is
remembered costs none.
"""

import sys


class StepsSpent(Exception):  # noqa: N818 - an outcome on its way up, not an error
    """All steps are spent."""


class Steps:
    """The steps that were ``spent``, of ``limit`` that may be; ``value_count`` values were judged for the first time.

    A value is what nodes differ in, as the PFs of a node that is like no other.
    """

    __slots__ = ("limit", "spent", "value_count")

    def __init__(self, limit: int = sys.maxsize) -> None:
        self.spent, self.limit, self.value_count = 0, limit, 0

    @property
    def remaining(self) -> int:
        return self.limit - self.spent

    def spend(self, steps: int = 1) -> None:
        self.spent += steps
        if self.spent > self.limit:
            raise StepsSpent

    def judge(self) -> None:
        """Count a value that is about to be judged."""
        self.value_count += 1

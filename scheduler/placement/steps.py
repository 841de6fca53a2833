"""Steps: the unit in which all work is counted. Searches get a `Steps` as an argument and spend it.

A step is about a microsecond: evaluating a PF or a VF in the search for a placement. Other work is counted in steps of
equal duration. Steps are counted and not timed, so that equal clusters give equal decisions. A cached outcome costs no
steps.
"""

import sys


class OutOfSteps(Exception):  # noqa: N818 - an outcome on its way up, not an error
    """All steps are spent."""


class Steps:
    """The steps that were ``spent``, up to ``limit``; ``value_count`` values of nodes were evaluated first here."""

    __slots__ = ("limit", "spent", "value_count")

    def __init__(self, limit: int = sys.maxsize) -> None:
        self.spent, self.limit, self.value_count = 0, limit, 0

    @property
    def remaining(self) -> int:
        return self.limit - self.spent

    def spend(self, steps: int = 1) -> None:
        self.spent += steps
        if self.spent > self.limit:
            raise OutOfSteps

    def judge(self) -> None:
        """Count a value that is about to be evaluated."""
        self.value_count += 1

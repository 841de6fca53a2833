"""What the VFs of a pod reserve if its rates were changed after its assignment.

It is the maximum rate that a VF may have: the allocated rate, the previous rate while the allocated one is not in
force, and a rate that is being written. A write counts from its decision until its result is definite. On a node that
does not (or no longer) support rate changes, the assigned rates count too.
"""

from collections.abc import Mapping

from mooring.annotations.assignment import Assignment
from mooring.annotations.rates import PodRates, reserved_rates
from scheduler.placement.vf_accounting import reserve_rates


class ReservedRates:
    """The rates that are being written, by pod uid."""

    def __init__(self) -> None:
        self._writes: dict[str, PodRates] = {}

    def __bool__(self) -> bool:
        return bool(self._writes)

    def __contains__(self, uid: str) -> bool:
        return uid in self._writes

    def write(self, rates: PodRates) -> None:
        self._writes[rates.uid] = rates

    def finish(self, uid: str) -> PodRates | None:
        """Return the rates whose write has a definite result; None if there is no write."""
        return self._writes.pop(uid, None)

    def derive(
        self, uid: str, assignment: Assignment | None, rates: PodRates | None, in_force: Mapping[str, int] | None
    ) -> Assignment | None:
        """Return the assignment with what its VFs reserve; None if these are the assigned rates.

        ``in_force`` is the generation that the pod's node has put in force; None if it does not support rate changes.
        """
        write = self._writes.get(uid)
        if assignment is None or (rates is None and write is None):
            return None
        reserved = reserved_rates(assignment, rates, in_force)
        return reserve_rates(assignment, map(max, reserved, write.reserved) if write is not None else reserved)

"""Report the faults of constraints to the log. Pure."""

from collections.abc import Iterable
from dataclasses import dataclass

from scheduler.constraints.kinds import Kinds
from scheduler.cycle.instructions import Instruction, Notice
from scheduler.pending.part import Part


@dataclass(slots=True)
class ConstraintFaults(Part):
    """Takes the faults that each kind has recorded."""

    kinds: Kinds

    def tick(self, now: float) -> Iterable[Instruction]:
        return [Notice("constraint", text, {"constraint": kind}) for kind, text in self.kinds.take_faults()]

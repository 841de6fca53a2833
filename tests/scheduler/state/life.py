"""A machine and all that happens to it."""

from collections.abc import Iterable

from scheduler.cycle.decisions import Bind
from scheduler.cycle.instructions import Instruction
from scheduler.kube.objects import Node, Pod
from tests.scheduler import group_life
from tests.scheduler.group_life import binds
from tests.scheduler.state.steps import steps


class Life(group_life.Life):
    """A cluster of nodes with one PF, and the actions of its users, kubelets and API server."""

    def n1(self, **pf: object) -> Node:
        """Make node n1 with one PF."""
        return self.make_node("n1", (self.make_pf(**pf),))

    def steps(self, now: float | None = None) -> list[Instruction]:
        """Decide about all that is ready."""
        self.now = self.now if now is None else now
        return steps(self.machine, self.now)

    def binds(self, now: float | None = None) -> list[Bind]:
        return binds(self.steps(now))

    def decide(self, wait_s: float = 15.0) -> list[Instruction]:
        """Let backoffs end, and decide about all that is ready."""
        self.now += wait_s
        found: list[Instruction] = []
        while (instructions := self.machine.step(self.now)) is not None:
            found += instructions
            self.machine.check()
        return found

    def bind(self, instructions: Iterable[Instruction]) -> list[Pod]:
        """Carry out the binds; return the pods as the watch shows them."""
        return self.bound(*binds(instructions))

    def remove(self, pod: Pod, now: float) -> None:
        self.now = now
        self.gone(pod)

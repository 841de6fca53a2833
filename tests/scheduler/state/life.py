"""A machine and all that happens to it, and what a test sees of its preemptions."""

from collections.abc import Iterable
from typing import Any

from scheduler.cycle.decisions import Bind
from scheduler.cycle.instructions import Instruction, Report
from scheduler.kube.objects import Node, Pod
from tests.scheduler import group_life
from tests.scheduler.group_life import binds, changed, orders
from tests.scheduler.state.steps import steps

PREEMPTED = {"type": "DisruptionTarget", "status": "True", "reason": "PreemptionByScheduler"}
DELETED = {"deletionTimestamp": "2026-01-01T00:00:00Z"}


class Life(group_life.Life):
    """A cluster of nodes with one PF, and the actions of its users, kubelets and API server."""

    def node(self, name: str = "n1", vfs: int = 1, labels: dict[str, str] | None = None, **pf: Any) -> None:
        self.show_node(name, self.make_pf(vfs=vfs, **pf), labels=labels or {})

    def n1(self, **pf: Any) -> Node:
        """Make node n1 with one PF."""
        return self.make_node("n1", (self.make_pf(**pf),))

    def pod(self, priority: int, request: object = ({},), **fields: Any) -> Pod:
        """Create a pod that waits."""
        spec = {"priority": priority} | fields.pop("spec", {})
        return self.show(self.make_pod(request=request, spec=spec, **fields))

    def show(self, pod: Pod, **fields: Any) -> Pod:
        """Show a pod with other fields in its metadata or its status."""
        pod = changed(pod, **fields)
        self.see(pod)
        return pod

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

    def assigned(self, priority: int, request: object = ({},), **fields: Any) -> Pod:
        """Create a pod that is bound at once."""
        self.pod(priority, request, **fields)
        return self.bind(self.decide())[0]

    def preempt(self) -> tuple[Pod, Pod, list[Instruction]]:
        """Let a pod take the only VF of n1 from another; return that one, the pod, and what is decided."""
        self.node()
        low, high = self.assigned(0), self.pod(1)
        return low, high, self.decide()

    def bind(self, instructions: Iterable[Instruction]) -> list[Pod]:
        """Carry out the binds; return the pods as the watch shows them."""
        return self.bound(*binds(instructions))

    def remove(self, pod: Pod, now: float) -> None:
        self.now = now
        self.gone(pod)

    def terminate(self, pod: Pod) -> Pod:
        """Show a victim as it is once the API server has accepted its deletion."""
        return self.show(pod, status={"conditions": [PREEMPTED]}, metadata=DELETED)


def victims_of(instructions: Iterable[Instruction]) -> list[str]:
    return [assigned.uid for order in orders(instructions) for assigned in order.victims]


def binds_of(instructions: Iterable[Instruction]) -> list[tuple[str, str]]:
    return [(one.pod_info.uid, one.assigned.node) for one in binds(instructions)]


def nominated_in(instructions: Iterable[Instruction]) -> list[tuple[str, str | None]]:
    """Return what is written of pods' nominations."""
    return [(one.pod.metadata.uid, one.nominated) for one in instructions if isinstance(one, Report)]

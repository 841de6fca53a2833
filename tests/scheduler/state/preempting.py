"""A machine with pods of several priorities, and what a test sees of its preemptions."""

from collections.abc import Callable, Iterable
from typing import Any

import msgspec

from mooring.annotations.inventory import Pf
from mooring.kube.events import Changed, Identity, Removed
from scheduler.cycle.decisions import Bind
from scheduler.cycle.instructions import DeleteVictims, Instruction, Report
from scheduler.kube.objects import Node, Pod
from scheduler.kube.outcomes import BOUND
from scheduler.state.machine import Machine

MakePf = Callable[..., Pf]


MakeNode = Callable[..., Node]


MakePod = Callable[..., Pod]


PREEMPTED = {"type": "DisruptionTarget", "status": "True", "reason": "PreemptionByScheduler"}


DELETED = {"deletionTimestamp": "2026-01-01T00:00:00Z"}


class Life:
    """A cluster of nodes with one PF, and the actions of its users, kubelets and API server."""

    def __init__(self, machine: Machine, make_node: MakeNode, make_pf: MakePf, make_pod: MakePod) -> None:
        self.machine = machine
        self._make_node, self._make_pf, self._make_pod = make_node, make_pf, make_pod
        self.now = 0.0

    def node(
        self, name: str = "n1", vfs: int = 1, labels: dict[str, str] | None = None, **pf: Any
    ) -> list[Instruction]:
        node = self._make_node(name, (self._make_pf(vfs=vfs, **pf),), labels=labels or {})
        return self.machine.nodes(Changed(Identity(name), node), self.now)

    def lose_node(self, name: str) -> None:
        self.machine.nodes(Removed(Identity(name)), self.now)

    def pod(self, priority: int, request: object = ({},), **fields: Any) -> Pod:
        """Create a pod that waits."""
        spec = {"priority": priority} | fields.pop("spec", {})
        return self.show(self._make_pod(request=request, spec=spec, **fields))

    def show(self, pod: Pod, **metadata: Any) -> Pod:
        document = msgspec.to_builtins(pod)
        document["status"] |= metadata.pop("status", {})
        document["metadata"] |= metadata
        pod = msgspec.convert(document, Pod)
        self.machine.pods(Changed(identity(pod), pod), self.now)
        return pod

    def gone(self, pod: Pod) -> None:
        self.machine.pods(Removed(identity(pod)), self.now)

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

    def bind(self, instructions: Iterable[Instruction]) -> list[Pod]:
        """Carry out the binds; return the pods as the watch shows them."""
        return [self._bound(one) for one in instructions if isinstance(one, Bind)]

    def _bound(self, decision: Bind) -> Pod:
        self.machine.finished(decision, BOUND, self.now)
        document = msgspec.to_builtins(decision.pod_info.pod)
        document["spec"]["nodeName"] = decision.assigned.node
        document["metadata"]["annotations"] = {**decision.pod_info.pod.annotations, **decision.annotations}
        return self.show(msgspec.convert(document, Pod))

    def terminate(self, pod: Pod) -> Pod:
        """Show a victim as it is once the API server has accepted its deletion."""
        return self.show(pod, status={"conditions": [PREEMPTED]}, **DELETED)


def identity(pod: Pod) -> Identity:
    return Identity(pod.metadata.name, pod.metadata.namespace, pod.metadata.uid)


def orders_of(instructions: Iterable[Instruction]) -> list[DeleteVictims]:
    return [one for one in instructions if isinstance(one, DeleteVictims)]


def victims_of(instructions: Iterable[Instruction]) -> list[str]:
    return [assigned.uid for order in orders_of(instructions) for assigned in order.victims]


def binds_of(instructions: Iterable[Instruction]) -> list[tuple[str, str]]:
    return [(one.pod_info.uid, one.assigned.node) for one in instructions if isinstance(one, Bind)]


def nominated_in(instructions: Iterable[Instruction]) -> list[tuple[str, str | None]]:
    """Return what is written of pods' nominations."""
    return [(one.pod.metadata.uid, one.nominated) for one in instructions if isinstance(one, Report)]

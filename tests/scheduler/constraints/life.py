"""A machine with constraints, and what comes out of it."""

from collections.abc import Iterable, Mapping
from typing import Any

import msgspec

from mooring.annotations.assignment import Assignment, read_assignment
from mooring.kube.events import Changed, Identity, Removed
from scheduler.constraints.kinds import Kinds
from scheduler.constraints.protocol import NodeSide, PodSide, Proposal, Units
from scheduler.cycle.decisions import Bind
from scheduler.cycle.instructions import Instruction, Report
from scheduler.kube.objects import Node, Pod
from scheduler.kube.outcomes import BOUND
from scheduler.state.machine import Machine
from tests.scheduler.reference.messages import refusal

NOW = 1000.0


class Boxes:
    """A correct constraint: a node has named boxes, a pod gets any one; faulty ones are derived from it."""

    def read_request(self, pod: PodSide) -> Any:
        return int(pod.text)

    def read_inventory(self, node: NodeSide) -> Mapping[str, Any]:
        return dict.fromkeys(node.text.split(), "")

    def judge(self, request: Any, left: Units[Any]) -> Any:
        return 50 if left.free else "no box is free"

    def place(self, request: Any, left: Units[Any], beside: Mapping[str, Proposal]) -> Iterable[Any]:
        yield Proposal((left.free[0][0],))


class Life:
    """A machine with constraints, fed with nodes and pods as by the watches."""

    def __init__(self, kinds: Kinds) -> None:
        self.machine = Machine("mooring", kinds=kinds)
        self.now = NOW

    def see(self, *items: Node | Pod) -> list[Instruction]:
        found = []
        for item in items:
            identity = Identity(item.metadata.name, item.metadata.namespace, item.metadata.uid)
            found += self.machine.handle(type(item), Changed(identity, item), self.now)
        return found

    def end(self, pod: Pod) -> None:
        identity = Identity(pod.metadata.name, pod.metadata.namespace, pod.metadata.uid)
        self.machine.pods(Removed(identity), self.now)

    def step(self) -> Bind | Report | None:
        """Decide until a pod is bound, which succeeds, or a new report appears; None if neither happens."""
        self.now += 20.0
        while (instructions := self.machine.step(self.now)) is not None:
            for one in instructions:
                if isinstance(one, Bind):
                    self.machine.finished(one, BOUND, self.now)
                    return one
                if isinstance(one, Report):
                    return one
        return None

    def place(self, pod: Pod) -> Bind | str:
        """Add a pod and decide about it; return its bind, or the reason why no node fits."""
        self.see(pod)
        found = self.step()
        assert found is not None
        return found if isinstance(found, Bind) else refusal(found.message)


Found = Bind | Report | str | None


def assignment_of(bind: Found) -> Assignment:
    assert isinstance(bind, Bind), bind
    return read_assignment(bind.annotations["mooring.dev/assignment"])


def units_of(bind: Found, kind: str) -> object:
    section = assignment_of(bind).ext[kind]
    assert isinstance(section, Mapping)
    return section["units"]


def bound(pod: Pod, bind: Found) -> Pod:
    """Return a pod as the API server shows it after its bind."""
    assert isinstance(bind, Bind)
    copy = msgspec.convert(msgspec.to_builtins(pod), Pod)
    copy.spec.node_name = bind.assigned.node
    copy.metadata.annotations = {**pod.annotations, **bind.annotations}
    return copy

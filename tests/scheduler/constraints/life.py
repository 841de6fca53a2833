"""A machine with constraints, and what comes out of it."""

from collections.abc import Iterable, Mapping
from typing import Any

import msgspec

from mooring import names
from mooring.annotations.assignment import Assignment, read_assignment
from mooring.annotations.inventory import Pf
from mooring.kube.events import Changed, Removed
from scheduler.constraints.kinds import Kind, Kinds
from scheduler.constraints.protocol import NodeSide, PodSide, Proposal, Units
from scheduler.cycle.decisions import Bind
from scheduler.cycle.instructions import Instruction, Report
from scheduler.kube.objects import Node, Pod
from scheduler.kube.outcomes import BOUND
from scheduler.state.machine import Machine
from tests.scheduler.conftest import MakeNode, MakePf, MakePod
from tests.scheduler.group_life import identity
from tests.scheduler.reference.messages import refusal


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


BOXES = Kinds([Kind("box", Boxes())])


class Life:
    """A machine with constraints, fed with nodes and pods as by the watches."""

    def __init__(self, kinds: Kinds, make_node: MakeNode, make_pf: MakePf, make_pod: MakePod) -> None:
        self.machine = Machine("mooring", kinds=kinds)
        self.make_node, self.make_pf, self.make_pod = make_node, make_pf, make_pod
        self.time = 1000.0

    def show_node(self, name: str = "n1", pfs: tuple[Pf, ...] = (), **fields: Any) -> list[Instruction]:
        """Show a node; in place of ``annotations``, ``box`` is the text of its inventory of that kind."""
        return self.see(self.make_node(name, pfs, **_kind_annotations(names.INVENTORY_OF, fields)))

    def asking(self, **fields: Any) -> Pod:
        """Make a pod; in place of ``annotations``, ``box`` is the text of its request of that kind."""
        return self.make_pod(**_kind_annotations(names.REQUEST_OF, fields))

    def see(self, *items: Node | Pod) -> list[Instruction]:
        found = []
        for item in items:
            found += self.machine.handle(type(item), Changed(identity(item), item), self.time)
        return found

    def end(self, pod: Pod) -> None:
        self.machine.pods(Removed(identity(pod)), self.time)

    def decide(self) -> Bind | Report | None:
        """Decide until a pod is bound, which succeeds, or a new report appears; None if neither happens."""
        self.time += 20.0
        while (instructions := self.machine.step(self.time)) is not None:
            for one in instructions:
                if isinstance(one, Bind):
                    self.machine.finished(one, BOUND, self.time)
                    return one
                if isinstance(one, Report):
                    return one
        return None

    def place(self, pod: Pod) -> Bind | str:
        """Add a pod and decide about it; return its bind, or the reason why no node fits."""
        self.see(pod)
        found = self.decide()
        assert found is not None
        return found if isinstance(found, Bind) else refusal(found.message)


def _kind_annotations(prefix: str, fields: dict[str, Any]) -> dict[str, Any]:
    """Return the fields with the annotations of the kinds that they name."""
    kinds = {kind: fields.pop(kind) for kind in ("box", "licence", "fpga", "gpu") if kind in fields}
    annotations = {prefix + kind: text for kind, text in kinds.items() if text is not None}
    return fields | {"annotations": annotations | fields.get("annotations", {})}


Found = Bind | Report | str | None


def assignment_of(bind: Found) -> Assignment:
    assert isinstance(bind, Bind), bind
    return read_assignment(bind.annotations["mooring.dev/assignment"])


def units_of(bind: Found, kind: str) -> list[str]:
    section = assignment_of(bind).ext[kind]
    assert isinstance(section, Mapping)
    return list(section["units"])


def bound(pod: Pod, bind: Found) -> Pod:
    """Return a pod as the API server shows it after its bind."""
    assert isinstance(bind, Bind)
    copy = msgspec.convert(msgspec.to_builtins(pod), Pod)
    copy.spec.node_name = bind.assigned.node
    copy.metadata.annotations = {**pod.annotations, **bind.annotations}
    return copy

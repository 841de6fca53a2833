"""A machine with constraints, and what comes out of it."""

from abc import ABC, abstractmethod
from collections.abc import Iterable, Mapping
from typing import Any

from mooring import names
from mooring.annotations.assignment import Assignment, read_assignment
from mooring.annotations.inventory import Pf
from scheduler.constraints.kinds import Kind, Kinds
from scheduler.constraints.protocol import NodeSide, PodSide, Proposal, Units
from scheduler.cycle.decisions import Bind
from scheduler.cycle.instructions import Instruction, Report
from scheduler.kube.objects import Pod
from scheduler.kube.outcomes import BOUND
from scheduler.state.machine import Machine
from tests.scheduler import group_life
from tests.scheduler.conftest import MakeNode, MakePf, MakePod
from tests.scheduler.group_life import as_bound
from tests.scheduler.reference.messages import refusal


class Boxes:
    """A correct constraint: a node has named boxes, a pod gets any so many; faulty ones are derived from it."""

    def read_request(self, pod: PodSide) -> Any:
        return int(pod.text)

    def read_inventory(self, node: NodeSide) -> Mapping[str, Any]:
        return dict.fromkeys(node.text.split(), "")

    def judge(self, request: Any, left: Units[Any]) -> Any:
        return 50 if len(left.free) >= request else "not enough free boxes"

    def place(self, request: Any, left: Units[Any], beside: Mapping[str, Proposal]) -> Iterable[Any]:
        yield Proposal(tuple([box for box, _ in left.free[:request]]))


BOXES = Kinds([Kind("box", Boxes())])


class Life(group_life.Life):
    """A machine with constraints; a field ``box`` is the text of an inventory or a request of that kind."""

    def __init__(self, kinds: Kinds, make_node: MakeNode, make_pf: MakePf, make_pod: MakePod) -> None:
        super().__init__(Machine("mooring", kinds=kinds), make_node, make_pf, make_pod)
        self.now = 1000.0

    def show_node(self, name: str = "n1", *pfs: Pf, **fields: Any) -> list[Instruction]:
        return super().show_node(name, *pfs, **_kind_annotations(names.INVENTORY_OF, fields))

    def asking(self, **fields: Any) -> Pod:
        return self.make_pod(**_kind_annotations(names.REQUEST_OF, fields))

    def decide(self) -> Bind | Report | None:
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

    def outcome(self, pod: Pod) -> Bind | str:
        """Add a pod and decide about it; return its bind, or the reason why no node fits."""
        self.see(pod)
        found = self.decide()
        assert found is not None
        return found if isinstance(found, Bind) else refusal(found.message)


class KindStory(ABC):
    """Pods by name that request units of a kind; each that is bound is shown by the watch."""

    def __init__(self, life: Life) -> None:
        self.life = life
        self.pods: dict[str, Pod] = {}

    def come(self, name: str, **fields: Any) -> None:
        self.pods[name] = self.life.asking(name=name, **fields)
        self.life.see(self.pods[name])

    def delete(self, name: str) -> None:
        self.life.gone(self.pods[name])

    def decide(self) -> str:
        """Decide until a pod is bound or told why not; return what it is given, or the reason."""
        found = self.life.decide()
        if not isinstance(found, Bind):
            return refusal(found.message).removeprefix("0/1 nodes are available: 1 ") if found is not None else ""
        pod = self.pods[found.pod_info.pod.metadata.name] = as_bound(found)
        self.life.see(pod)
        return self.given(found)

    @abstractmethod
    def given(self, bind: Bind) -> str:
        """Return what a pod is given, as stories write it."""


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

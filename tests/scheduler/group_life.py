"""A machine with groups, and what a test sees of its decisions."""

from collections.abc import Callable, Iterable
from typing import Any, Self

import msgspec
import pytest

from mooring import names
from mooring.annotations.assignment import AssignedVf, Assignment, dump_assignment
from mooring.annotations.inventory import Pf
from mooring.kube.events import Changed, Identity, Removed
from mooring.nic import pci
from scheduler.constraints.kinds import NONE, Kinds
from scheduler.cycle.decisions import Bind
from scheduler.cycle.instructions import DeleteVictims, Instruction, Notice, Report
from scheduler.kube.objects import Node, Pod
from scheduler.kube.outcomes import BOUND
from scheduler.kube.pod_info import PodInfo, read_pod_info
from scheduler.kube.workload_objects import PodGroup
from scheduler.state.machine import Machine
from tests.scheduler.reference.messages import refusal

MakePf = Callable[..., Pf]
MakeNode = Callable[..., Node]
MakePod = Callable[..., Pod]
HINT = (
    "a StatefulSet needs podManagementPolicy Parallel, and a launcher that waits for its workers must not count in min"
)
TRAIN = '{"name":"train","min":3}'


class Life:
    """A machine and what happens to it; ``now`` is the time of each event."""

    def __init__(self, machine: Machine, make_node: MakeNode, make_pf: MakePf, make_pod: MakePod) -> None:
        self.machine, self.make_node, self.make_pf, self.make_pod = machine, make_node, make_pf, make_pod
        self.now = 0.0

    def successor(self, machine: Machine | None = None) -> Self:
        """Return the life of another scheduler, which has seen nothing yet."""
        other = type(self)(machine or Machine("mooring"), self.make_node, self.make_pf, self.make_pod)
        other.now = self.now
        return other

    def nodes(self, *names: str, vfs: int = 2, **fields: Any) -> None:
        for name in names:
            self.show_node(name, self.make_pf(vfs=vfs), **fields)

    def show_node(self, name: str, *pfs: Pf, **fields: Any) -> list[Instruction]:
        return self.machine.nodes(Changed(Identity(name), self.make_node(name, pfs, **fields)), self.now)

    def remove_node(self, name: str) -> None:
        self.machine.nodes(Removed(Identity(name)), self.now)

    def member(self, name: str = "", group: str = TRAIN, **fields: Any) -> Pod:
        """Make a pod of the group that wants two VFs, which is all that a node has."""
        annotations = {names.GROUP: group} if group else {}
        fields.setdefault("request", [{}, {}])
        return self.make_pod(name, annotations=annotations, **fields)

    def members(self, count: int, group: str = TRAIN, **fields: Any) -> list[Pod]:
        """Let members m0, m1 and so on come."""
        pods = [self.member(f"m{number}", group, **fields) for number in range(count)]
        self.see(*pods)
        return pods

    def see(self, *items: Pod | Node, now: float | None = None) -> list[Instruction]:
        self.now = self.now if now is None else now
        return [one for item in items for one in self.machine.handle(type(item), changed_event(item), self.now)]

    def gone(self, *pods: Pod) -> None:
        for pod in pods:
            self.machine.pods(Removed(identity(pod)), self.now)

    def pod_group(self, name: str = "train", metadata: dict[str, str] | None = None, **spec: Any) -> None:
        metadata = {"name": name, "namespace": "default"} | (metadata or {})
        show_object(self.machine, PodGroup, {"metadata": metadata, "spec": spec}, self.now)

    def work(self, later_s: float = 0.0) -> list[Instruction]:
        """Let time pass, and do all that is due."""
        self.now += later_s
        return [*self.machine.tick(self.now), *self.decide_ready(), *self.machine.tick(self.now)]

    def decide_ready(self, now: float | None = None) -> list[Instruction]:
        """Decide about all that is ready."""
        self.now = self.now if now is None else now
        found: list[Instruction] = []
        while (instructions := self.machine.step(self.now)) is not None:
            found += instructions
            self.machine.check()
        return found

    def bound(self, *decisions: Bind) -> list[Pod]:
        """Let Bindings succeed, and the watch show them."""
        pods = [as_bound(one) for one in decisions]
        for decision, pod in zip(decisions, pods, strict=True):
            self.machine.finished(decision, BOUND, self.now)
            self.see(pod)
        return pods

    def place(self, *pods: Pod) -> list[Pod]:
        """Let pods come, and bind all that are decided about."""
        self.see(*pods)
        return self.bound(*binds(self.work()))


def show_object(machine: Machine, kind: type[Any], document: dict[str, Any], now: float = 0.0) -> Any:
    """Let the watch show an object; return it."""
    item = msgspec.convert(document, kind)
    machine.handle(kind, changed_event(item), now)
    return item


def pod_info_of(pod: Pod, kinds: Kinds = NONE) -> PodInfo:
    """Read a pod that is not refused."""
    pod_info = read_pod_info(pod, kinds)
    assert isinstance(pod_info, PodInfo), pod_info
    return pod_info


def identity(item: Any) -> Identity:
    return Identity(item.metadata.name, item.metadata.namespace, item.metadata.uid)


def changed_event(item: Any) -> Changed[Any]:
    return Changed(identity(item), item)


def as_bound(decision: Bind) -> Pod:
    document = msgspec.to_builtins(decision.pod_info.pod)
    document["spec"]["nodeName"] = decision.assigned.node
    document["metadata"]["annotations"] = {**decision.pod_info.pod.annotations, **decision.annotations}
    return msgspec.convert(document, Pod)


def changed(pod: Pod, **fields: Any) -> Pod:
    """Return a pod with other fields in its metadata or its status."""
    document = msgspec.to_builtins(pod)
    for section, values in fields.items():
        document[section] |= values
    return msgspec.convert(document, Pod)


def annotated(pod: Pod, annotations: dict[str, str]) -> Pod:
    """Return a pod with more annotations."""
    return changed(pod, metadata={"annotations": {**pod.annotations, **annotations}})


def claiming(pod: Pod, *vfs: int, pf: int = 0) -> Pod:
    """Return a bound pod with an assignment of these VFs."""
    first = f"0000:{pf + 4:02x}:00.2"
    given = [AssignedVf(f"pf{pf}", vf, pci.vf_address(first, 1, vf), "ethernet", "rail0") for vf in vfs]
    assignment = Assignment(pod.metadata.uid, pod.spec.node_name or "", tuple(given))
    return annotated(pod, {names.ASSIGNMENT: dump_assignment(assignment)})


def binds(instructions: Iterable[Instruction]) -> list[Bind]:
    return [one for one in instructions if isinstance(one, Bind)]


def bound_names(instructions: Iterable[Instruction]) -> list[str]:
    return sorted(one.pod_info.pod.metadata.name for one in binds(instructions))


def apart(key: str, **labels: str) -> dict[str, Any]:
    """Return the spec of a pod that must keep away from pods with these labels."""
    return _required("podAntiAffinity", key, labels)


def beside(key: str, **labels: str) -> dict[str, Any]:
    """Return the spec of a pod that must be beside a pod with these labels."""
    return _required("podAffinity", key, labels)


def _required(kind: str, key: str, labels: dict[str, str]) -> dict[str, Any]:
    term = {"topologyKey": key, "labelSelector": {"matchLabels": labels}}
    return {"affinity": {kind: {"requiredDuringSchedulingIgnoredDuringExecution": [term]}}}


def reports_of(instructions: Iterable[Instruction]) -> list[str]:
    """Return the reports; of waiting pods why no node fits."""
    return [refusal(one.message) for one in instructions if isinstance(one, Report)]


def notices(instructions: Iterable[Instruction]) -> list[Notice]:
    return [one for one in instructions if isinstance(one, Notice)]


def told(instructions: Iterable[Instruction]) -> dict[str, str]:
    """Return what waiting pods are told, by name."""
    return {
        one.pod.metadata.name: one.message
        for one in instructions
        if isinstance(one, Report) and one.reason == "Unschedulable"
    }


def orders(found: Iterable[Instruction]) -> list[DeleteVictims]:
    return [one for one in found if isinstance(one, DeleteVictims)]


def victims(found: Iterable[Instruction]) -> list[str]:
    """Return the names of the pods that are sent away."""
    return sorted(one.pod.removeprefix("default/") for order in orders(found) for one in order.victims)


@pytest.fixture
def life(machine: Machine, make_node: MakeNode, make_pf: MakePf, make_pod: MakePod) -> Life:
    """Return a machine for groups; a folder whose tests need one imports this in its ``conftest.py``."""
    return Life(machine, make_node, make_pf, make_pod)

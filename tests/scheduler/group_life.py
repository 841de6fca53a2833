"""A machine with groups, and what a test sees of its decisions."""

from collections.abc import Callable
from typing import Any

import msgspec
import pytest

from mooring import names
from mooring.annotations.inventory import Pf
from mooring.kube.events import Changed, Identity, Removed
from scheduler.cache.groups.group_sources import PodGroup
from scheduler.cycle.decisions import Bind
from scheduler.cycle.instructions import DeleteVictims, Instruction, Report
from scheduler.kube.objects import Node, Pod
from scheduler.kube.outcomes import BOUND
from scheduler.state.machine import Machine

MakePf = Callable[..., Pf]


MakeNode = Callable[..., Node]


MakePod = Callable[..., Pod]


HINT = (
    "a StatefulSet needs podManagementPolicy Parallel, and a launcher that waits for its workers must not count in min"
)


class Life:
    """A machine and what happens to it; ``now`` is the time of each event."""

    def __init__(self, machine: Machine, make_node: MakeNode, make_pf: MakePf, make_pod: MakePod) -> None:
        self.machine, self.make_node, self.make_pf, self.make_pod = machine, make_node, make_pf, make_pod
        self.now = 0.0

    def nodes(self, *names: str, vfs: int = 2, **fields: Any) -> None:
        for name in names:
            node = self.make_node(name, (self.make_pf(vfs=vfs),), **fields)
            self.machine.nodes(Changed(Identity(name), node), self.now)

    def remove_node(self, name: str) -> None:
        self.machine.nodes(Removed(Identity(name)), self.now)

    def member(self, name: str = "", group: str = '{"name":"train","min":3}', **fields: Any) -> Pod:
        """Make a pod of the group that wants two VFs, which is all that a node has."""
        annotations = {names.GROUP: group} if group else {}
        fields.setdefault("request", [{}, {}])
        return self.make_pod(name, annotations=annotations, **fields)

    def see(self, *pods: Pod) -> list[Instruction]:
        return [one for pod in pods for one in self.machine.pods(Changed(identity(pod), pod), self.now)]

    def gone(self, *pods: Pod) -> None:
        for pod in pods:
            self.machine.pods(Removed(identity(pod)), self.now)

    def pod_group(self, name: str = "train", **spec: Any) -> None:
        item = msgspec.convert({"metadata": {"name": name, "namespace": "default"}, "spec": spec}, PodGroup)
        self.machine.handle(PodGroup, Changed(Identity(name, "default"), item), self.now)

    def work(self, later_s: float = 0.0) -> list[Instruction]:
        """Let time pass, and do all that is due."""
        self.now += later_s
        found = self.machine.tick(self.now)
        while (instructions := self.machine.step(self.now)) is not None:
            found += instructions
            self.machine.check()
        return found + self.machine.tick(self.now)

    def bound(self, *decisions: Bind) -> list[Pod]:
        """Let Bindings succeed, and the watch show them."""
        pods = [as_bound(one) for one in decisions]
        for decision, pod in zip(decisions, pods, strict=True):
            self.machine.finished(decision, BOUND, self.now)
            self.see(pod)
        return pods


def identity(pod: Pod) -> Identity:
    return Identity(pod.metadata.name, pod.metadata.namespace, pod.metadata.uid)


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


def binds(instructions: list[Instruction]) -> list[Bind]:
    return [one for one in instructions if isinstance(one, Bind)]


def told(instructions: list[Instruction]) -> dict[str, str]:
    """Return what waiting pods are told, by name."""
    return {
        one.pod.metadata.name: one.message
        for one in instructions
        if isinstance(one, Report) and one.reason == "Unschedulable"
    }


PAIR = '{"name":"pair","min":2}'


def fill(life: Life, *nodes: str, **fields: Any) -> list[Pod]:
    """Fill each node with a pod that is named after it."""
    life.nodes(*nodes)
    life.see(*(life.make_pod(f"on-{node}", [{}, {}], **fields) for node in nodes))
    return life.bound(*binds(life.work()))


def pair(life: Life, priority: int = 10, group: str = PAIR, **spec: Any) -> list[Pod]:
    """Let two members of a group come."""
    members = [life.member(f"m{number}", group, spec={"priority": priority, **spec}) for number in range(2)]
    life.see(*members)
    return members


def orders(found: list[Instruction]) -> list[DeleteVictims]:
    return [one for one in found if isinstance(one, DeleteVictims)]


def victims(found: list[Instruction]) -> list[str]:
    """Return the names of the pods that are sent away."""
    return sorted(one.pod.removeprefix("default/") for order in orders(found) for one in order.victims)


@pytest.fixture
def life(machine: Machine, make_node: MakeNode, make_pf: MakePf, make_pod: MakePod) -> Life:
    """Return a machine for groups; a folder whose tests need one imports this in its ``conftest.py``."""
    return Life(machine, make_node, make_pf, make_pod)

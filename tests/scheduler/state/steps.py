"""Steps of a machine, and what a test sees of them."""

from collections.abc import Callable
from typing import Any

import msgspec

from mooring import names
from mooring.annotations.assignment import AssignedVf, Assignment, dump_assignment
from mooring.annotations.inventory import Pf
from mooring.kube.events import Changed, Identity, Removed
from scheduler.cycle.decisions import Bind
from scheduler.cycle.instructions import Instruction, Notice, Report
from scheduler.kube.objects import Node, Pod
from scheduler.state.machine import Machine
from tests.scheduler.reference.messages import refusal

MakePf = Callable[..., Pf]


MakeNode = Callable[..., Node]


MakePod = Callable[..., Pod]


def changed_pod(pod: Pod) -> Changed[Pod]:
    return Changed(Identity(pod.metadata.name, pod.metadata.namespace, pod.metadata.uid), pod)


def changed_node(node: Node) -> Changed[Node]:
    return Changed(Identity(node.metadata.name), node)


def take_in(machine: Machine, *things: Pod | Node, now: float = 0.0) -> list[Instruction]:
    found: list[Instruction] = []
    for thing in things:
        if isinstance(thing, Pod):
            found += machine.pods(changed_pod(thing), now)
        else:
            found += machine.nodes(changed_node(thing), now)
    return found


def remove(machine: Machine, pod: Pod, now: float = 0.0) -> None:
    machine.pods(Removed(Identity(pod.metadata.name, pod.metadata.namespace, pod.metadata.uid)), now)


def steps(machine: Machine, now: float = 0.0) -> list[Instruction]:
    """Decide about everything that is ready; return all instructions."""
    found: list[Instruction] = []
    while (instructions := machine.step(now)) is not None:
        found += instructions
    return found


def binds(instructions: list[Instruction]) -> list[Bind]:
    return [one for one in instructions if isinstance(one, Bind)]


def reports_of(instructions: list[Instruction]) -> list[str]:
    """Return the reports; of waiting pods why no node fits."""
    return [refusal(one.message) for one in instructions if isinstance(one, Report)]


def notices(instructions: list[Instruction]) -> list[Notice]:
    return [one for one in instructions if isinstance(one, Notice)]


def as_bound(decision: Bind) -> Pod:
    """Return the pod as the API server shows it after the bind."""
    document = msgspec.to_builtins(decision.pod_info.pod)
    document["spec"]["nodeName"] = decision.assigned.node
    document["metadata"]["annotations"] = {**decision.pod_info.pod.annotations, **decision.annotations}
    return msgspec.convert(document, Pod)


def claiming(make_pod: MakePod, vf: int, node: str = "n1", pf: int = 0, **fields: Any) -> Pod:
    """Make a bound pod whose assignment claims VF ``vf`` of a PF."""
    pod = make_pod(node=node, **fields)
    vfs = (AssignedVf(f"pf{pf}", vf, f"0000:{pf + 4:02x}:00.{vf + 2}", "ethernet", "rail0"),)
    annotations = {names.ASSIGNMENT: dump_assignment(Assignment(pod.metadata.uid, "n1", vfs))}
    document = msgspec.to_builtins(pod)
    document["metadata"]["annotations"] = annotations
    return msgspec.convert(document, Pod)


def annotated(pod: Pod, annotations: dict[str, str], **spec: Any) -> Pod:
    """Return the same pod with other annotations."""
    document = msgspec.to_builtins(pod)
    document["metadata"]["annotations"] = annotations
    document["spec"] |= spec
    return msgspec.convert(document, Pod)

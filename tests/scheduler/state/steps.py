"""Steps of a machine, and what a test sees of them."""

from collections.abc import Iterable
from typing import Any

import msgspec

from mooring.kube.events import Removed
from scheduler.cycle.instructions import Instruction, Notice, Report
from scheduler.kube.objects import Node, Pod
from scheduler.state.machine import Machine
from tests.scheduler.group_life import changed_event, identity
from tests.scheduler.reference.messages import refusal


def take_in(machine: Machine, *items: Pod | Node, now: float = 0.0) -> list[Instruction]:
    return [one for item in items for one in machine.handle(type(item), changed_event(item), now)]


def remove(machine: Machine, pod: Pod, now: float = 0.0) -> None:
    machine.pods(Removed(identity(pod)), now)


def steps(machine: Machine, now: float = 0.0) -> list[Instruction]:
    """Decide about everything that is ready; return all instructions."""
    found: list[Instruction] = []
    while (instructions := machine.step(now)) is not None:
        found += instructions
    return found


def reports_of(instructions: Iterable[Instruction]) -> list[str]:
    """Return the reports; of waiting pods why no node fits."""
    return [refusal(one.message) for one in instructions if isinstance(one, Report)]


def notices(instructions: Iterable[Instruction]) -> list[Notice]:
    return [one for one in instructions if isinstance(one, Notice)]


def annotated(pod: Pod, annotations: dict[str, str], **spec: Any) -> Pod:
    """Return the same pod with other annotations."""
    document = msgspec.to_builtins(pod)
    document["metadata"]["annotations"] = annotations
    document["spec"] |= spec
    return msgspec.convert(document, Pod)

"""Decide about a pod as the scheduler would now, from the objects as the API shows them. Pure: time is an argument.

The scheduler's own decisions, with two things that only the running one knows left out: what it has assumed but not yet
bound, and other kinds of resource (constraints), which are packages beside it.
"""

from collections.abc import Mapping, Sequence
from typing import Any

from cli.plugin.explain import Told
from mooring.kube.events import Changed, Identity, Synced
from scheduler.cycle import Bind, Decider
from scheduler.machine import Machine
from scheduler.objects import Node, Pod
from scheduler.surroundings import PATHS as AROUND
from scheduler.task import Refusal, read_task
from scheduler.volumes.catalogue import PATHS as STORED

PATHS: Mapping[type[Any], str] = {Node: "/api/v1/nodes", Pod: "/api/v1/pods", **AROUND, **STORED}


def recompute(objects: Mapping[type[Any], Sequence[Any]], uid: str, now: float) -> Told:
    """Return what becomes of the pod ``uid``; nodes are all named, however many one reason refuses."""
    pod = next((one for one in objects[Pod] if one.metadata.uid == uid), None)
    if pod is None:
        return Told("none", "the pod is gone", {})
    task = read_task(pod)
    if isinstance(task, Refusal):
        return Told("recomputed", task.reason, {"v": 1})
    machine = Machine(pod.spec.scheduler_name)
    for kind, items in objects.items():
        machine.see(kind, Synced(tuple(Changed(_identity(item), item) for item in items)), now)
    decision = Decider(machine.cluster, named=len(objects[Node])).decide(task, now)
    if isinstance(decision, Bind):
        return Told("recomputed", f"would be bound to {decision.seat.node}", decision.why)
    return Told("recomputed", decision.reason, decision.why)


def _identity(item: Any) -> Identity:
    known = item.metadata
    return Identity(known.name, known.namespace, known.uid, known.resource_version)

"""What the machine wants done: values, carried out at the edge."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Literal

from scheduler.cycle import Bind, Why
from scheduler.objects import Pod
from scheduler.volumes.plan import Plan

Blame = Literal["pod", "node", "inventory", "assignment", "dispute", "surroundings", "constraint", "storage"]


@dataclass(frozen=True, slots=True)
class Report:
    """Tell a pod's owner: by an event, and unless the pod was scheduled by its PodScheduled condition."""

    pod: Pod
    reason: Literal["Scheduled", "Unschedulable", "InvalidRequest", "DisputedVf", "NeverStarts"]
    message: str
    why: Why = field(default_factory=lambda: {"v": 1})


@dataclass(frozen=True, slots=True)
class Notice:
    """Something to log and to count: an object left out, an assignment not believed, a VF claimed twice."""

    blame: Blame
    event: str
    fields: Mapping[str, str] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Evict:
    """Evict a pod that can never start where it is; somebody makes it anew. ``reason`` is for its owner."""

    pod: Pod
    reason: str


@dataclass(frozen=True, slots=True)
class Prepare:
    """Write what the pod's volumes need; it is bound when they are."""

    decision: Bind
    plan: Plan


@dataclass(frozen=True, slots=True)
class Prepared:
    """What became of these writes: the objects' versions since, or why one was refused."""

    versions: Mapping[str, str] = field(default_factory=dict)
    fault: str = ""


Instruction = Bind | Prepare | Evict | Report | Notice
# Of an eviction. gone: the pod is, or another has its name.
Ending = Literal["evicted", "gone", "refused"]

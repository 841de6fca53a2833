"""What the machine wants done: values, carried out at the edge."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Literal

import msgspec

from scheduler.cache.cache import AssignedPod
from scheduler.cache.volumes.plan import VolumePlan
from scheduler.cycle.decisions import Bind, Why
from scheduler.kube.binding_outcome import Outcome
from scheduler.kube.objects import Pod

Subject = Literal["pod", "node", "inventory", "assignment", "dispute", "cluster_objects", "constraint", "storage"]


class Report(msgspec.Struct, frozen=True):
    """Tell a pod's owner: by an event, and while the pod waits by its PodScheduled condition."""

    pod: Pod
    reason: Literal[
        "Scheduled",
        "Unschedulable",
        "InvalidRequest",
        "DisputedVf",
        "DisputedUnit",
        "NeverStarts",
        "Preempted",
        "NoAssignment",
    ]
    message: str
    why: Why = msgspec.field(default_factory=lambda: {"v": 1})
    # What to write as the node on which the pod is nominated, empty for none; None leaves it as it is.
    nominated: str | None = None
    # The pod for whose sake it happens.
    related: Pod | None = None


@dataclass(frozen=True, slots=True)
class Notice:
    """Something to log and to count: an object left out, an assignment not believed, a VF claimed twice."""

    subject: Subject
    event: str
    fields: Mapping[str, str] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Evict:
    """Evict a pod that can never start where it is; somebody makes it again. ``reason`` is for its owner."""

    pod: Pod
    reason: str


@dataclass(frozen=True, slots=True)
class PreBind:
    """Write what the pod's volumes need; it is bound when they are."""

    decision: Bind
    plan: VolumePlan


@dataclass(frozen=True, slots=True)
class PreBindResult:
    """What became of these writes: the objects' versions since, or why one was refused."""

    versions: Mapping[str, str] = field(default_factory=dict)
    fault: str = ""


@dataclass(frozen=True, slots=True)
class DeleteVictims:
    """Delete these pods on a node for the sake of one of higher priority."""

    pod: Pod
    node: str
    victims: tuple[AssignedPod, ...]


@dataclass(frozen=True, slots=True)
class DeleteVictimsResult:
    """What became of it: who was deleted by us, and why the API server refused the others, empty if it did not."""

    deleted: tuple[AssignedPod, ...]
    refused: str = ""


# What is written to the API server, and whose result the machine waits for.
Order = Bind | PreBind | Evict | DeleteVictims
Instruction = Order | Report | Notice
# Of an eviction. gone: the pod is, or another has its name.
EvictionResult = Literal["evicted", "gone", "refused"]
# Of each kind of order, in the same sequence.
Result = Outcome | PreBindResult | EvictionResult | DeleteVictimsResult

"""A decision about a pod, as data: bind it, with all that the one write needs, or why no node is possible. Pure."""

import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import lru_cache

import msgspec

from mooring import names
from mooring.parsing import MAX_BYTES
from scheduler.cache.assigned_pod import AssignedPod
from scheduler.cache.volumes.plan import VolumePlan
from scheduler.cycle.preemption.preemption import Nominate
from scheduler.kube.cluster_event import ClusterEvent
from scheduler.kube.pod_info import PodInfo

# Data about a decision, for `mooring.dev/why`; written as JSON only if a report is sent.
Why = Mapping[str, object]
# Returns the signature annotation of an assignment annotation.
SignAssignment = Callable[[str], str]
# The pattern of validation.IsQualifiedName: the API server does not check it in a Binding.
_KEY = re.compile(r"(?:[a-z0-9](?:[-a-z0-9.]{0,251}[a-z0-9])?/)?[A-Za-z0-9](?:[-\w.]{0,61}[A-Za-z0-9])?", re.ASCII)


class Bind(msgspec.Struct, frozen=True):
    """Bind this pod to this node with these annotations, in one write; ``assigned`` is what is assumed from now on.

    ``plan`` is what must be written for the pod's volumes before that; None if nothing must.
    """

    pod_info: PodInfo
    assigned: AssignedPod
    annotations: Mapping[str, str]
    why: Why
    plan: VolumePlan | None = None


@dataclass(frozen=True, slots=True)
class Unschedulable:
    """No node is possible now; ``requeue_on`` lists the events that can change that.

    ``nominate`` is the node where the pod waits for room that victims make; None for no node. ``is_incomplete`` if the
    decision had no steps left for some nodes: another one goes on there.
    """

    pod_info: PodInfo
    reason: str
    requeue_on: ClusterEvent
    why: Why
    nominate: Nominate | None = None
    is_incomplete: bool = False


Decision = Bind | Unschedulable


@dataclass(frozen=True, slots=True)
class GroupPlacement:
    """All of a group that had to fit does: these are assumed.

    ``refusal`` is why others are not placed, None if all are.
    """

    binds: tuple[Bind, ...]
    refusal: Unschedulable | None = None


@dataclass(frozen=True, slots=True)
class GroupUnschedulable:
    """Fewer members of a group fit than are needed; nothing is assumed.

    ``fitting`` did, and ``refusal`` is why the next one did not.
    ``where`` is the domain in which the most did, in words; empty for the whole cluster. ``binds`` is where they did.
    ``is_cut`` if not all domains and networks were tried, and ``go_on_from`` is the domain, by its number, from which
    another decision may find more; 0 if none can. ``comes_again`` if one may though nothing happens.
    """

    fitting: int
    wanted: int
    refusal: Unschedulable
    where: str = ""
    binds: tuple[Bind, ...] = ()
    is_cut: bool = False
    go_on_from: int = 0
    comes_again: bool = False


def annotations_of(assignment: str, sign: SignAssignment | None) -> dict[str, str]:
    """Return a Binding's annotations, given the assignment's text, empty for none."""
    if not assignment:
        return {}
    return {names.ASSIGNMENT: assignment} | ({names.SIGNATURE: sign(assignment)} if sign is not None else {})


def validate_annotations(present: Mapping[str, str], added: Mapping[str, str]) -> str:
    """Return why a Binding must not carry these annotations; empty if it may.

    The API server checks neither keys nor size in a Binding, and refuses every later write to such a pod, so that it
    could only be deleted.
    """
    for key in added:
        if not _is_qualified(key):
            return f"annotation key {key!r} is not a qualified name"
    every = {**present, **added}
    size = len("".join([*every, *every.values()]).encode())
    if size > MAX_BYTES:
        return f"annotations would have {size} bytes with the assignment; the limit is {MAX_BYTES}"
    return ""


@lru_cache(maxsize=64)
def _is_qualified(key: str) -> bool:
    return _KEY.fullmatch(key) is not None

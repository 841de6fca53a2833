"""The result of a decision about a pod or a group, as data: what to bind, or why no node is possible. Pure."""

import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass

import msgspec

from mooring import names
from mooring.annotations.assignment import Assignment, assignment_fields
from mooring.parsing import MAX_BYTES
from scheduler.cache.assigned_pod import AssignedPod
from scheduler.cache.volumes.plan import VolumePlan
from scheduler.cycle.reserved_room import Reservation
from scheduler.kube.cluster_event import ClusterEvent
from scheduler.kube.objects import Pod
from scheduler.kube.outcomes import Refused
from scheduler.kube.pod_info import PodInfo

# Data about a decision for `mooring.dev/why`. It is encoded as JSON only if a report is sent.
Why = Mapping[str, object]
# Returns the signature annotation of an assignment annotation.
SignAssignment = Callable[[str], str]
_encode = msgspec.json.Encoder(order="sorted").encode
# The pattern of validation.IsQualifiedName. The API server does not check it in a Binding.
_KEY = re.compile(r"(?:[a-z0-9](?:[-a-z0-9.]{0,251}[a-z0-9])?/)?[A-Za-z0-9](?:[-\w.]{0,61}[A-Za-z0-9])?", re.ASCII)


class Bind(msgspec.Struct, frozen=True):
    """Bind this pod to this node with these annotations, in one write. ``assigned`` is the pod that the cache assumes.

    ``plan`` lists the writes for the pod's volumes that come before the Binding; None if there are none.
    """

    pod_info: PodInfo
    assigned: AssignedPod
    annotations: Mapping[str, str]
    why: Why
    plan: VolumePlan | None = None


@dataclass(frozen=True, slots=True)
class Nominate:
    """Let the pod wait for room on a node; ``victims`` must be deleted for it, empty if they are already being deleted.

    ``reason`` is why there are no further victims, if the pod already waits. ``why`` names the victims as data.
    """

    reservation: Reservation
    victims: tuple[AssignedPod, ...] = ()
    reason: str = ""

    @property
    def node(self) -> str:
        (room,) = self.reservation.rooms.values()
        return room.node

    @property
    def why(self) -> Why:
        return {"node": self.node, "victims": [assigned_pod.pod for assigned_pod in self.victims]}


@dataclass(frozen=True, slots=True)
class Unschedulable:
    """No node is possible now; ``requeue_on`` lists the events that can change that.

    ``nominate`` is where the pod waits for its victims to leave. ``is_incomplete``: the decision ran out of steps for
    some nodes, and another decision continues with them.
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
    """Enough members of a group fit. ``binds`` are assumed, and ``spares`` is room for further members."""

    binds: tuple[Bind, ...]
    spares: tuple[AssignedPod, ...] = ()


@dataclass(frozen=True, slots=True)
class GroupUnschedulable:
    """Too few members of a group fit; nothing is assumed.

    ``fitting`` is the number of members that fit, and ``refusal`` the reason for the next one. ``where`` is the domain
    in which most members fit, as text; empty for the whole cluster. ``binds`` are the places of those members.
    ``is_cut``: not all orders and networks were tried there. ``comes_again``: another decision may find more even if no
    event happens.
    """

    fitting: int
    wanted: int
    refusal: Unschedulable
    where: str = ""
    binds: tuple[Bind, ...] = ()
    is_cut: bool = False
    comes_again: bool = False


def binding_annotations(
    pod: Pod, assignment: Assignment | None, sign: SignAssignment | None
) -> dict[str, str] | Refused:
    """Return the annotations of a pod's Binding, or why it must not carry them."""
    annotations: dict[str, str] = {}
    if assignment is not None:
        # This writes the same bytes as `dump_assignment`, in a sixth of the time.
        annotations[names.ASSIGNMENT] = text = _encode(assignment_fields(assignment)).decode()
        if sign is not None:
            annotations[names.SIGNATURE] = sign(text)
    fault = validate_annotations(pod.annotations, annotations)
    return Refused(fault) if fault else annotations


def with_annotation(bind: Bind, key: str, value: str) -> Bind:
    """Return a Bind with one more annotation, if the pod may have it."""
    annotations = {**bind.annotations, key: value}
    if validate_annotations(bind.pod_info.pod.annotations, annotations):
        return bind
    return msgspec.structs.replace(bind, annotations=annotations)


def validate_annotations(present: Mapping[str, str], additions: Mapping[str, str]) -> str:
    """Return why a Binding must not carry these annotations; empty if it may.

    The API server checks neither the keys nor the size in a Binding, but rejects every later write to such a pod. The
    pod could then only be deleted.
    """
    for key in additions:
        if _KEY.fullmatch(key) is None:
            return f"annotation key {key!r} is not a qualified name"
    annotations = {**present, **additions}
    size = len("".join([*annotations, *annotations.values()]).encode())
    if size > MAX_BYTES:
        return f"annotations would have {size} bytes with the assignment; the limit is {MAX_BYTES}"
    return ""


def no_node_available(total: int, reasons: str) -> str:
    return f"0/{total} nodes are available: {reasons}."


def for_member(reason: str, number: int) -> str:
    """Return a message of `no_node_available` that names one member of a group; return other messages unchanged."""
    ending = "th" if number % 100 in (11, 12, 13) else {1: "st", 2: "nd", 3: "rd"}.get(number % 10, "th")
    return reason.replace("nodes are available: ", f"nodes are available for the {number}{ending} member: ", 1)


def none_available(total: int, counts: Mapping[str, int]) -> str:
    """Return `no_node_available` with the number of nodes for each reason."""
    return no_node_available(total, ", ".join(sorted(f"{count} {text}" for text, count in counts.items() if count)))

"""Read what a bound pod uses on its node from the pod object of the API server."""

from collections.abc import Mapping
from dataclasses import dataclass
from functools import lru_cache
from typing import Literal

import msgspec

from mooring import names
from mooring.assignment import Assignment, verified_assignment
from mooring.errors import AnnotationError
from scheduler.cache.cache import AssignedPod
from scheduler.kube.affinity import read_affinity_info, without_terms
from scheduler.kube.objects import Container, Metadata, Pod, PodSpec, Quantities, Resources
from scheduler.kube.pod_info import HostPort, host_ports
from scheduler.kube.pod_resources import NO_DEFAULTS, Amounts, pod_requests, scored_requests
from scheduler.kube.pod_volumes import read_pod_volumes

# The reason of the condition DisruptionTarget of a pod that a scheduler preempts.
PREEMPTED = "PreemptionByScheduler"


@dataclass(frozen=True, slots=True)
class UnreadablePart:
    """A part of a bound pod that cannot be read: which part, the rule broken in words, and the pod, node and reason."""

    part: Literal["pod", "assignment"]
    event: str
    fields: Mapping[str, str]


def read_assigned_pod(pod: Pod, known: AssignedPod | None = None) -> tuple[AssignedPod, list[UnreadablePart]]:
    """Return what a bound pod uses; what cannot be read counts as nothing and is listed.

    ``known`` is what the cache held of the pod before.
    """
    uid, node = pod.metadata.uid, pod.spec.node_name or ""
    faults: list[UnreadablePart] = []
    assignment = _given(known, node)
    about = {"pod": pod.key, "uid": uid, "node": node}
    try:
        assignment = _shown(pod, known) or assignment
    except AnnotationError as unreadable:
        faults.append(UnreadablePart("assignment", "assignment is not believed", about | {"reason": str(unreadable)}))
    use = _use_of(pod.spec)
    if use.error:
        faults.append(UnreadablePart("pod", "pod's resources cannot be read", about | {"reason": use.error}))
    try:
        affinity_info = read_affinity_info(pod)
    except ValueError as unreadable:
        affinity_info = without_terms(pod)
        faults.append(UnreadablePart("pod", "pod's affinity cannot be read", about | {"reason": str(unreadable)}))
    assigned = AssignedPod(
        uid=uid,
        pod=pod.key,
        node=node,
        resources=use.resources,
        scored=use.scored,
        ports=use.ports,
        assignment=assignment,
        affinity_info=affinity_info,
        volumes=read_pod_volumes(pod),
        priority=pod.spec.priority or 0,
        preempted=_is_preempted(pod),
        started=pod.status.start_time or "",
        version=pod.metadata.resource_version,
    )
    return assigned, faults


@dataclass(frozen=True, slots=True)
class _Use:
    """What the containers of a pod use, or why that cannot be read."""

    resources: Amounts
    scored: Amounts
    ports: frozenset[HostPort]
    error: str = ""


# JSON takes integers of any size.
_encode = msgspec.json.Encoder().encode
_ResourceFields = tuple[list[Container] | None, list[Container] | None, Quantities | None, Resources | None]
_decode = msgspec.json.Decoder(_ResourceFields).decode
# A longer text is rare, and must not fill the memory.
_SHORT = 4096


def _use_of(spec: PodSpec) -> _Use:
    """Return what the containers use; replicas request the same and share one value."""
    asked = _encode((spec.containers, spec.init_containers, spec.overhead, spec.resources))
    return _read_short(asked) if len(asked) <= _SHORT else _read_use(asked)


def _read_use(asked: bytes) -> _Use:
    containers, starting, overhead, together = _decode(asked)
    spec = PodSpec(containers, starting, overhead=overhead, resources=together)
    ports = frozenset(host_ports(spec))
    try:
        resources = pod_requests(spec)
        return _Use(resources, scored_requests(spec, resources), ports)
    except ValueError as unreadable:
        return _Use(NO_DEFAULTS, NO_DEFAULTS, ports, str(unreadable))


_read_short = lru_cache(maxsize=4096)(_read_use)


def _is_preempted(pod: Pod) -> bool:
    """Return whether a scheduler preempts the pod."""
    if pod.metadata.deletion_timestamp is None:
        return False
    target = next((one for one in pod.status.conditions or () if one.type == "DisruptionTarget"), None)
    return target is not None and target.status == "True" and target.reason == PREEMPTED


def _given(known: AssignedPod | None, node: str) -> Assignment | None:
    """Return the assignment that a pod is known to hold: it stands though its annotation is removed or made unreadable.

    An assignment that is only assumed does not stand: another scheduler may have bound the pod.
    """
    return None if known is None or known.assumed or known.node != node else known.assignment


def _shown(pod: Pod, known: AssignedPod | None) -> Assignment | None:
    if known is not None and known.written and _is_as_written(pod, known):
        return known.assignment
    shown = verified_assignment(pod.annotations, pod.metadata.uid, pod.spec.node_name or "")
    # Return the value that is known already, so that it is kept once.
    return known.assignment if known is not None and known.assignment == shown else shown


def _is_as_written(pod: Pod, known: AssignedPod) -> bool:
    return pod.spec.node_name == known.node and pod.annotations.get(names.ASSIGNMENT) == known.written


def pod_reference(assigned: AssignedPod) -> Pod:
    """Return as much of a bound pod as an Event needs: the pod object itself is not kept."""
    namespace, _, name = assigned.pod.partition("/")
    return Pod(Metadata(name=name, namespace=namespace, uid=assigned.uid))

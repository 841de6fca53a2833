"""Outcomes in place of a value: a refusal with its reason, and the definite outcomes of a Binding.

A Binding's cases are those of kube-apiserver's pods/binding: 201 means bound; 409 has several meanings, which
``details.kind`` and the message distinguish. An answer that is not definite is none of these, and the Binding is
repeated.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Literal

from mooring import names
from mooring.kube.failures import Conflict, Denied, KubeError, NotFound, Status
from scheduler.kube.objects import Pod

Kind = Literal["bound", "taken", "changed", "gated", "deleting", "gone", "refused", "forbidden", "denied"]


@dataclass(frozen=True, slots=True)
class Refused:
    """Why something is not possible, as a text for a pod's owner."""

    reason: str


@dataclass(frozen=True, slots=True)
class Outcome:
    """The definite outcome of one Binding.

    bound: node and annotations are written. taken: another scheduler bound the pod. changed: the pod, or its version,
    is not the one that was scheduled. gated, deleting, gone: it must not, or cannot, be bound. refused: the API server
    never accepts this Binding. forbidden: our permissions do not allow it, until they are changed. denied: admission
    rejected it, or could not call its webhook, which may change. ``reason`` is the API server's text.
    """

    kind: Kind
    reason: str = ""


BOUND = Outcome("bound")


def classify(error: KubeError) -> Outcome | None:
    """Return what a definite failure of a Binding means.

    None if the pod has a node, or the conflict is of an unknown kind: only reading the pod shows whether it is our
    Binding.
    """
    status = error.status
    if isinstance(error, Denied):
        return Outcome("denied", status.message)
    if isinstance(error, NotFound):
        return Outcome("gone", status.message)
    if isinstance(error, Conflict):
        return _conflict(status)
    return Outcome("forbidden" if status.code in (401, 403) else "refused", status.message)


def _conflict(status: Status) -> Outcome | None:
    text = status.message
    # etcd's own limit on a request, which the API server returns as a 409: not a conflict, and repeating does not help.
    if "ResourceExhausted" in text:
        return Outcome("refused", text)
    if status.kind == "pods":
        return Outcome("changed", text)
    if "schedulingGates" in text:
        return Outcome("gated", text)
    if "is being deleted" in text:
        return Outcome("deleting", text)
    return None


def another_pod(pod: Pod) -> str:
    """Return the reason why a write to a pod's uid changed nothing: another pod has its name now."""
    return f"another pod with that name has the uid {pod.metadata.uid!r}"


def compare(pod: Pod, uid: str, node: str, annotations: Mapping[str, str]) -> Outcome:
    """Return what a pod that was read back means for the Binding of ``uid`` to ``node``."""
    if pod.metadata.uid != uid:
        return Outcome("gone", another_pod(pod))
    if pod.spec.node_name:
        has_annotations = all(pod.annotations.get(key) == value for key, value in annotations.items())
        if pod.spec.node_name == node and has_annotations:
            return BOUND
        node = pod.spec.node_name
        return Outcome("taken", f"is bound to node {node!r} without the expected annotation {names.ASSIGNMENT!r}")
    if pod.metadata.deletion_timestamp is not None:
        return Outcome("deleting", "is being deleted")
    if pod.spec.scheduling_gates:
        return Outcome("gated", "has scheduling gates")
    return Outcome("changed", "is not bound")

"""Report pods that request VFs and were bound without an assignment; their nodes refuse to start them. Pure.

Another scheduler has bound them, or kube-scheduler itself, if its configuration lets the extender filter but not bind
(no ``bindVerb``).
"""

from collections.abc import Iterable, Iterator

from mooring import names
from mooring.annotations.request import read_request
from mooring.errors import AnnotationError
from scheduler.cache.assigned_pod import AssignedPod
from scheduler.cycle.instructions import Instruction, Notice, Report
from scheduler.kube.objects import Pod
from scheduler.pending.part import Part, PodChange

# The kubelet's mark of a mirror pod. Source: k8s.io/api/core/v1 MirrorPodAnnotationKey.
_MIRROR = "kubernetes.io/config.mirror"


class BoundWithoutVfs(Part):
    """Bound pods without an assignment, by uid."""

    def __init__(self) -> None:
        self._pods: dict[str, Pod] = {}

    def pod_assigned(self, change: PodChange, now: float) -> Iterable[Instruction]:
        """Check a bound pod; report it once if it requests VFs and has none."""
        pod, uid = change.pod, change.assigned.uid
        is_new = uid not in self._pods
        self._pods.pop(uid, None)
        if not _is_bound_without_vfs(pod):
            return []
        self._pods[uid] = pod
        if not is_new:
            return []
        about = {"pod": pod.key, "uid": uid, "node": pod.spec.node_name or ""}
        return [Notice("assignment", "pod that requests VFs was bound without them", about), _report(pod)]

    def pod_deleted(self, uid: str, assigned_pod: AssignedPod | None, now: float) -> None:
        self._pods.pop(uid, None)

    def report_again(self) -> Iterator[Instruction]:
        return (_report(pod) for pod in self._pods.values())


def _is_bound_without_vfs(pod: Pod) -> bool:
    """Return whether a bound pod requests VFs and has no assignment; an unreadable request counts as none."""
    annotations = pod.annotations
    if names.ASSIGNMENT in annotations or pod.metadata.deletion_timestamp is not None:
        return False
    if names.REQUEST not in annotations and names.RIT_REQUEST not in annotations:
        return False
    try:
        request = read_request(annotations)
    except AnnotationError:
        return False
    return request is not None and bool(request.interfaces)


def _report(pod: Pod) -> Report:
    remedy = (
        "It is the mirror pod of a static pod, and no scheduler chooses VFs for static pods: remove the request from "
        "the manifest on the node, or create the pod through the API server"
        if _MIRROR in pod.annotations
        else "Delete it, and set bindVerb in kube-scheduler's extender configuration or, in the pod, schedulerName "
        f"{names.SCHEDULER_NAME!r}"
    )
    message = f"bound to node {pod.spec.node_name} without the VFs that it requests: it cannot start. {remedy}"
    return Report(pod, "NoAssignment", message)

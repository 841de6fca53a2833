"""Detect pods that request VFs and were bound without an assignment; their nodes refuse to start them. Pure.

If kube-scheduler bound such a pod after asking the extender about it, its configuration lets the extender filter but
not bind (no ``bindVerb``). While such a pod exists, the extender rejects further pods, which protects them.

Users who may bind pods of a namespace can create such a pod too. If kube-scheduler has bound through the extender
before, pods of a single namespace are therefore no proof, and each Binding through the extender clears the earlier
evidence.
"""

from collections.abc import Iterable, Iterator

from mooring import names
from mooring.annotations.request import read_request
from mooring.errors import AnnotationError
from scheduler.cache.assigned_pod import AssignedPod
from scheduler.cycle.instructions import Instruction, Notice, Report
from scheduler.kube.objects import Pod
from scheduler.pending.part import Part, PodChange
from scheduler.placement.memo import Memo

# The most recent pods that kube-scheduler has asked about; far more than are between its question and its Binding.
_MAX_OFFERS = 1 << 14
# The kubelet's mark of a mirror pod. Source: k8s.io/api/core/v1 MirrorPodAnnotationKey.
_MIRROR = "kubernetes.io/config.mirror"
NO_BIND_VERB = "kube-scheduler binds pods without VFs: its extender configuration has no bindVerb"


class BoundWithoutVfs(Part):
    """Bound pods without an assignment, by uid, and the pods that kube-scheduler may bind at any time."""

    def __init__(self, scheduler_name: str = names.SCHEDULER_NAME) -> None:
        self._scheduler_name = scheduler_name
        self._pods: dict[str, Pod] = {}
        self._offers = Memo[str, bool](_MAX_OFFERS)
        # The pods that kube-scheduler seems to have bound itself.
        self._evidence: set[str] = set()
        # Whether kube-scheduler has bound through the extender, in this process or before.
        self._has_bound = False

    @property
    def fault(self) -> str:
        """Return a message with a pod that shows that kube-scheduler binds without the extender; empty if none does."""
        pods = [self._pods[uid] for uid in self._evidence]
        if not pods or (self._has_bound and len({pod.metadata.namespace for pod in pods}) == 1):
            return ""
        return f"{NO_BIND_VERB} (after adding it, delete pod {pods[0].key})"

    def offer(self, uid: str) -> None:
        """Record that kube-scheduler has received the nodes that fit a pod."""
        self._offers.keep(uid, True)

    def clear_evidence(self, uid: str) -> None:
        """Record that the extender was asked to bind a pod; a missing assignment is then not kube-scheduler's fault."""
        self._offers.drop(uid)
        self._evidence.clear()
        self._has_bound = True

    def pod_assigned(self, change: PodChange, now: float) -> Iterable[Instruction]:
        pod, uid = change.pod, change.assigned_pod.uid
        if names.ASSIGNMENT in pod.annotations and pod.spec.scheduler_name != self._scheduler_name:
            self._has_bound = True
        if not _is_bound_without_vfs(pod):
            self.pod_deleted(uid, None, now)
            return []
        has_offer, is_new = self._offers.get(uid), uid not in self._pods
        self._offers.drop(uid)
        self._pods[uid] = pod
        if has_offer:
            self._evidence.add(uid)
        if not is_new:
            return []
        about = {"pod": pod.key, "uid": uid, "node": pod.spec.node_name or ""}
        return [Notice("assignment", "pod that requests VFs was bound without them", about), _report(pod)]

    def pod_deleted(self, uid: str, assigned_pod: AssignedPod | None, now: float) -> None:
        self._pods.pop(uid, None)
        self._evidence.discard(uid)
        self._offers.drop(uid)

    def repeat_reports(self) -> Iterator[Instruction]:
        return (_report(pod) for pod in self._pods.values())


def _is_bound_without_vfs(pod: Pod) -> bool:
    """Return whether a bound pod requests VFs and has no assignment; an unreadable request counts as none."""
    if names.ASSIGNMENT in pod.annotations or pod.metadata.deletion_timestamp is not None:
        return False
    try:
        request = read_request(pod.annotations)
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

"""What a bound pod uses where it is, read from the pod as the API server shows it."""

from mooring import names
from mooring.assignment import Assignment, believe, dump_assignment
from mooring.errors import AnnotationError
from scheduler.cluster import Seat
from scheduler.instructions import Instruction, Notice
from scheduler.objects import Metadata, Pod
from scheduler.resources import NO_DEFAULTS, pod_requests, scored_requests
from scheduler.task import host_ports
from scheduler.ties import bare_kin, read_kin


def read_seat(pod: Pod, known: Seat | None = None) -> tuple[Seat, list[Instruction]]:
    """Return what a bound pod uses; what cannot be read counts as nothing, and a notice says so.

    ``known`` is what was known of it before.
    """
    uid, node = pod.metadata.uid, pod.spec.node_name or ""
    notices: list[Instruction] = []
    assignment = _given(known, node)
    resources = scored = NO_DEFAULTS
    about = {"pod": pod.key, "uid": uid, "node": node}
    try:
        assignment = _shown(pod, known) or assignment
    except AnnotationError as unreadable:
        notices.append(Notice("assignment", "assignment is not believed", about | {"reason": str(unreadable)}))
    try:
        resources = pod_requests(pod.spec)
        scored = scored_requests(pod.spec, resources)
    except ValueError as unreadable:
        notices.append(Notice("pod", "pod's resources cannot be read", about | {"reason": str(unreadable)}))
    try:
        kin = read_kin(pod)
    except ValueError as unreadable:
        kin = bare_kin(pod)
        notices.append(Notice("pod", "pod's affinity cannot be read", about | {"reason": str(unreadable)}))
    ports, version = frozenset(host_ports(pod.spec)), pod.metadata.resource_version
    return Seat(uid, pod.key, node, resources, scored, ports, assignment, kin=kin, version=version), notices


def _given(known: Seat | None, node: str) -> Assignment | None:
    """Return what a pod is known to have been given: it stands though its annotation is taken away or made unreadable.

    What is only assumed does not: somebody else may have bound the pod.
    """
    return None if known is None or known.assumed or known.node != node else known.assignment


def _shown(pod: Pod, known: Seat | None) -> Assignment | None:
    # Writing one takes a sixth of reading one, and a pod changes many times while it starts.
    node, given = pod.spec.node_name or "", known.assignment if known is not None else None
    if given is not None and given.node == node and pod.annotations.get(names.ASSIGNMENT) == dump_assignment(given):
        return given
    return believe(pod.annotations, pod.metadata.uid, node)


def stand_in(seat: Seat) -> Pod:
    """Return as much of a bound pod as an event needs: the pod itself is not kept."""
    namespace, _, name = seat.pod.partition("/")
    return Pod(Metadata(name=name, namespace=namespace, uid=seat.uid))

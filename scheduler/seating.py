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
    assignment: Assignment | None = None
    resources = scored = NO_DEFAULTS
    about = {"pod": pod.key, "uid": uid, "node": node}
    try:
        assignment = _given(pod, known) or believe(pod.annotations, uid, node)
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


def _given(pod: Pod, known: Seat | None) -> Assignment | None:
    """Return what is known to have been given to a pod where it is; later changes of its annotation change nothing.

    What is assumed so far was given only if the API server shows the same: somebody else may have bound the pod.
    """
    if known is None or known.assignment is None or known.node != pod.spec.node_name:
        return None
    if known.assumed and pod.annotations.get(names.ASSIGNMENT) != dump_assignment(known.assignment):
        return None
    return known.assignment


def stand_in(seat: Seat) -> Pod:
    """Return as much of a bound pod as an event needs: the pod itself is not kept."""
    namespace, _, name = seat.pod.partition("/")
    return Pod(Metadata(name=name, namespace=namespace, uid=seat.uid))

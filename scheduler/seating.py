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

    ``known`` is what was known of it before; an assignment that has not changed since is not read again.
    """
    uid, node = pod.metadata.uid, pod.spec.node_name or ""
    notices: list[Instruction] = []
    assignment: Assignment | None = None
    resources = scored = NO_DEFAULTS
    kin = bare_kin(pod)
    about = {"pod": pod.key, "uid": uid, "node": node}
    try:
        assignment = _assignment(pod, known)
    except AnnotationError as unreadable:
        notices.append(Notice("assignment", "assignment is not believed", about | {"reason": str(unreadable)}))
    try:
        kin = read_kin(pod)
        resources = pod_requests(pod.spec)
        scored = scored_requests(pod.spec, resources)
    except ValueError as unreadable:
        notices.append(Notice("pod", "pod's spec cannot be read", about | {"reason": str(unreadable)}))
    ports = frozenset(host_ports(pod.spec))
    return Seat(uid, pod.key, node, resources, scored, ports, assignment, kin=kin), notices


def _assignment(pod: Pod, known: Seat | None) -> Assignment | None:
    # Writing one takes a sixth of reading one, and a pod changes many times while it starts.
    node, given = pod.spec.node_name or "", known.assignment if known is not None else None
    if given is not None and given.node == node and pod.annotations.get(names.ASSIGNMENT) == dump_assignment(given):
        return given
    return believe(pod.annotations, pod.metadata.uid, node)


def stand_in(seat: Seat) -> Pod:
    """Return as much of a bound pod as an event needs: the pod itself is not kept."""
    namespace, _, name = seat.pod.partition("/")
    return Pod(Metadata(name=name, namespace=namespace, uid=seat.uid))

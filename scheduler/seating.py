"""What a bound pod uses where it is, read from the pod as the API server shows it."""

from collections.abc import Mapping

from mooring.assignment import Assignment, believe
from mooring.errors import AnnotationError
from scheduler.cluster import Seat
from scheduler.instructions import Instruction, Notice
from scheduler.objects import Metadata, Pod
from scheduler.resources import pod_requests
from scheduler.task import host_ports


def read_seat(pod: Pod) -> tuple[Seat, list[Instruction]]:
    """Return what a bound pod uses; what cannot be read counts as nothing, and a notice says so."""
    uid, node = pod.metadata.uid, pod.spec.node_name or ""
    notices: list[Instruction] = []
    assignment: Assignment | None = None
    resources: Mapping[str, int] = {}
    about = {"pod": pod.key, "uid": uid, "node": node}
    try:
        assignment = believe(pod.annotations, uid, node)
    except AnnotationError as unreadable:
        notices.append(Notice("assignment", "assignment is not believed", about | {"reason": str(unreadable)}))
    try:
        resources = pod_requests(pod.spec)
    except ValueError as unreadable:
        notices.append(Notice("pod", "pod's resources cannot be read", about | {"reason": str(unreadable)}))
    return Seat(uid, pod.key, node, resources, tuple(host_ports(pod.spec)), assignment), notices


def stand_in(seat: Seat) -> Pod:
    """Return as much of a bound pod as an event needs: the pod itself is not kept."""
    namespace, _, name = seat.pod.partition("/")
    return Pod(Metadata(name=name, namespace=namespace, uid=seat.uid))

"""Whether a pod that does not end in time may be on a node where room is reserved from a later time. Pure.

Now the pod needs room beside the pods that are there; from then on it needs room beside the owner of the reservation,
when the pods that end by then have left. Its exact VFs must be free now and not reserved, and the rates of each PF must
hold at both times. With other kinds of resource the pods that end count as if they stayed.
"""

from collections.abc import Sequence
from dataclasses import replace

from mooring.annotations.assignment import Assignment
from scheduler.cache.assigned_pod import AssignedPod
from scheduler.cache.cache import Cache
from scheduler.cycle.node_dry_run import DryRuns
from scheduler.cycle.reservations import ReservedRoom
from scheduler.kube.pod_info import PodInfo
from scheduler.placement.steps import Steps
from scheduler.placement.vf_accounting import Claim, reserve_rates


def fits_beside(
    pod_info: PodInfo, cache: Cache, reserved: ReservedRoom, row: int, rooms: Sequence[AssignedPod], steps: Steps
) -> tuple[bool, Assignment | None]:
    """Return whether a pod may be on a row where this room is reserved, some from later on, and its VFs there."""
    node, since = cache.nodes.names[row], reserved.first_since(rooms)
    leaving_pods = [pod for pod in cache.assigned_pods_on(node) if since is not None and reserved.has_left(pod, since)]
    if not leaving_pods or pod_info.wishes or any(room.assignment and room.assignment.ext for room in rooms):
        return False, None
    with DryRuns(pod_info, cache, steps).on(row, rooms, off=leaving_pods) as dry_run:
        if dry_run.refusal():
            return False, None
    present_rooms = [room for room in rooms if not reserved.is_later(room)]
    with DryRuns(pod_info, cache, steps).on(row, present_rooms) as dry_run:
        if dry_run.refusal():
            return False, None
    if not pod_info.interfaces:
        return True, None
    without_rates = [room if not reserved.is_later(room) else _without_rates(room) for room in rooms]
    for counted_rooms in (rooms, without_rates):
        with DryRuns(pod_info, cache, steps, reserves_only=True).on(row, counted_rooms) as dry_run:
            assignment = dry_run.assigned().assignment
        if assignment is not None and _has_room(pod_info, cache, node, leaving_pods, rooms, assignment):
            return True, assignment
    return False, None


def _without_rates(room: AssignedPod) -> AssignedPod:
    """Return reserved room that keeps its VFs and no rates."""
    if room.assignment is None:
        return room
    return replace(room, assignment=reserve_rates(room.assignment, [0] * len(room.assignment.vfs)))


def _has_room(
    pod_info: PodInfo,
    cache: Cache,
    node: str,
    leaving_pods: Sequence[AssignedPod],
    rooms: Sequence[AssignedPod],
    assignment: Assignment,
) -> bool:
    """Return whether the VFs of an assignment and those of the reserved room are enough when pods have left."""
    accounting = cache.vf_accounting(node).copy()
    for claim in (pod.claim for pod in leaving_pods):
        if claim is not None:
            accounting.remove(claim)
    for claim in (Claim(pod_info.uid, assignment, pod_info.pod.key), *(room.claim for room in rooms)):
        if claim is not None:
            accounting.add(claim)
    free_vfs = accounting.free_vfs
    is_within_shares = all(count <= share.most for share in free_vfs.shares for count in share.held.values())
    return (
        not accounting.disputes() and is_within_shares and all(capacity.mbps >= 0 for capacity in free_vfs.capacities)
    )

"""Read the rates that a running pod requests now. Pure."""

from mooring import names
from mooring.annotations.rates import VfRates, assigned_rates
from mooring.annotations.request import read_request
from mooring.errors import AnnotationError
from scheduler.cache.assigned_pod import AssignedPod
from scheduler.cache.cache import Cache
from scheduler.kube.objects import Pod
from scheduler.kube.outcomes import Refused
from scheduler.placement.rate_change import asks_as_assigned, wanted_rates
from scheduler.state.rates import rates_condition
from scheduler.state.rates.feasibility import is_in_force


def read_new_rates(pod: Pod, assigned_pod: AssignedPod, cache: Cache) -> tuple[VfRates, ...] | Refused | None:
    """Return the rates that a pod requests, or why they are rejected; None if nothing is to be done or reported."""
    assignment, text = assigned_pod.assignment, pod.annotations.get(names.REQUEST)
    if assignment is None or pod.metadata.deletion_timestamp is not None or not (assignment.vfs or text):
        return None
    allocated = assigned_pod.rates.rates if assigned_pod.rates is not None else None
    condition = pod.condition(rates_condition.CONDITION)
    try:
        if text is None and names.RIT_REQUEST not in pod.annotations:
            return wanted_rates(None, assignment)
        request = read_request({names.REQUEST: text}) if text is not None else None
        if allocated is None and (request is None or asks_as_assigned(request.interfaces, assignment.vfs)):
            return assigned_rates(assignment) if rates_condition.is_open(condition) else None
        new_rates = wanted_rates(request, assignment) if request is not None else allocated
    except AnnotationError as error:
        return Refused(str(error))
    is_settled = (
        new_rates == allocated and is_in_force(assigned_pod, cache) and rates_condition.says_in_force(condition)
    )
    return None if is_settled else new_rates

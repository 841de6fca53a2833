"""Build the patches of a pod's status about its rates. Bodies only, pure."""

import msgspec

from scheduler.cycle.instructions import RatesReason, ReportRates, WriteRates
from scheduler.kube.objects import Pod
from scheduler.state.rates.rates_condition import CONDITION


def rates_patch(order: WriteRates, now: str) -> bytes:
    """Return the strategic merge patch of pods/status that allocates rates; ``now`` is RFC 3339.

    Uid and version are preconditions.
    """
    metadata = {
        "uid": order.rates.uid,
        "resourceVersion": order.pod.metadata.resource_version,
        "annotations": dict(order.annotations),
    }
    condition = _condition(order.pod, "Allocated", order.message, now)
    return msgspec.json.encode({"metadata": metadata, "status": {"conditions": [condition]}})


def rates_condition_patch(report: ReportRates, now: str) -> bytes:
    """Return the strategic merge patch of the condition alone; the uid is a precondition."""
    condition = _condition(report.pod, report.reason, report.message, now)
    return msgspec.json.encode(
        {"metadata": {"uid": report.pod.metadata.uid}, "status": {"conditions": [condition]}},
    )


def _condition(pod: Pod, reason: RatesReason, message: str, now: str) -> dict[str, str]:
    status, condition = "True" if reason == "InForce" else "False", pod.condition(CONDITION)
    # A deferred change is as old as its condition, by which a new leader orders them.
    stands = condition is not None and (condition.status, condition.reason) == (status, reason)
    transition_time = (condition.last_transition_time if condition is not None and stands else None) or now
    return {
        "type": CONDITION,
        "status": status,
        "reason": reason,
        "message": message,
        "lastTransitionTime": transition_time,
    }

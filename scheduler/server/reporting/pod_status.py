"""Build the PodScheduled condition of a pod, and Events. Bodies only, pure."""

import msgspec

from mooring import names
from scheduler.cycle.decisions import Why
from scheduler.cycle.instructions import Report
from scheduler.kube.objects import Pod
from scheduler.server.reporting.event_correlator import EventRecord

# The API server rejects an event with a longer note.
_LONGEST_MESSAGE = 1024
# kube-scheduler reports the first two as normal events.
_GOOD_NEWS = ("Scheduled", "Preempted", "RatesAllocated", "RatesInForce")
# Equal to `mooring.parsing.dump`, in a sixth of the time.
_encode = msgspec.json.Encoder(order="sorted").encode
_OF_PENDING = ("Unschedulable", "InvalidRequest")


def is_of_pending(report: Report) -> bool:
    """Return whether the report is about a pending pod, so that it also belongs in the PodScheduled condition."""
    return report.reason in _OF_PENDING


def status_patch(report: Report, now: str) -> bytes:
    """Return the strategic merge patch of pods/status; ``now`` is RFC 3339.

    The version in it is a precondition: a pod that was bound meanwhile must not be reported as unscheduled. So is the
    uid, in effect: the API server answers 409 to another version, and 422 to another uid with the same version.
    """
    condition = {
        "type": "PodScheduled",
        "status": "False",
        "reason": report.reason,
        "message": report.message,
        "lastTransitionTime": _since(report.pod, now),
    }
    metadata = {"uid": report.pod.metadata.uid, "resourceVersion": report.pod.metadata.resource_version}
    status: dict[str, object] = {"conditions": [condition]}
    if report.nominated is not None:
        status["nominatedNodeName"] = report.nominated or None
    return msgspec.json.encode({"metadata": metadata, "status": status})


def event(report: Report, component: str, record: EventRecord, now: str) -> bytes:
    """Return the Event for a pod's owner."""
    pod = report.pod.metadata
    related_fields = {} if report.related is None else {"action": "Preempting", "related": _reference(report.related)}
    return msgspec.json.encode(
        {
            "apiVersion": "v1",
            "kind": "Event",
            "metadata": {
                "name": record.name,
                "namespace": pod.namespace,
                "annotations": {names.WHY: _dump(report.why)},
            },
            "involvedObject": _reference(report.pod),
            "reason": event_reason(report),
            "message": report.message[:_LONGEST_MESSAGE],
            "type": "Normal" if report.reason in _GOOD_NEWS else "Warning",
            "source": {"component": component},
            "reportingComponent": component,
            "reportingInstance": component,
            "firstTimestamp": record.first,
            "lastTimestamp": now,
            "count": record.count,
        }
        | related_fields
    )


def _reference(pod: Pod) -> dict[str, str]:
    return {
        "apiVersion": "v1",
        "kind": "Pod",
        "name": pod.metadata.name,
        "namespace": pod.metadata.namespace,
        "uid": pod.metadata.uid,
        "resourceVersion": pod.metadata.resource_version,
    }


def repetition(report: Report, record: EventRecord, now: str) -> bytes:
    """Return the merge patch that counts a repeated event."""
    annotations = {names.WHY: _dump(report.why)}
    return msgspec.json.encode(
        {"count": record.count, "lastTimestamp": now, "metadata": {"annotations": annotations}},
    )


def _dump(reason: Why) -> str:
    return _encode(reason).decode()


def event_reason(report: Report) -> str:
    return "FailedScheduling" if is_of_pending(report) else report.reason


def _since(pod: Pod, now: str) -> str:
    """Return since when the condition has been False: another message is not a transition."""
    condition = pod.condition("PodScheduled")
    return condition.last_transition_time or now if condition is not None and condition.status == "False" else now

"""What is written for people beside a bind: the pod's PodScheduled condition, and Events. Bodies only, pure."""

import msgspec

from mooring import names
from scheduler.machine import Report
from scheduler.objects import Condition, Pod

# The API server refuses an event whose note is longer.
_LONGEST_MESSAGE = 1024


def status_patch(report: Report, now: str) -> bytes:
    """Return the strategic merge patch of pods/status; the uid in it is a precondition. ``now`` is RFC 3339."""
    condition = {
        "type": "PodScheduled",
        "status": "False",
        "reason": report.reason,
        "message": report.message,
        "lastTransitionTime": _since(report.pod, now),
    }
    return msgspec.json.encode({"metadata": {"uid": report.pod.metadata.uid}, "status": {"conditions": [condition]}})


def event(report: Report, component: str, name: str, now: str) -> bytes:
    """Return the Event that tells a pod's owner; ``name`` makes it one of its own."""
    pod = report.pod.metadata
    involved = {
        "apiVersion": "v1",
        "kind": "Pod",
        "name": pod.name,
        "namespace": pod.namespace,
        "uid": pod.uid,
        "resourceVersion": pod.resource_version,
    }
    scheduled = report.reason == "Scheduled"
    return msgspec.json.encode(
        {
            "apiVersion": "v1",
            "kind": "Event",
            "metadata": {"name": name, "namespace": pod.namespace, "annotations": {names.WHY: report.why}},
            "involvedObject": involved,
            "reason": event_reason(report),
            "message": report.message[:_LONGEST_MESSAGE],
            "type": "Normal" if scheduled else "Warning",
            "source": {"component": component},
            "reportingComponent": component,
            "reportingInstance": component,
            "firstTimestamp": now,
            "lastTimestamp": now,
            "count": 1,
        }
    )


def event_reason(report: Report) -> str:
    return report.reason if report.reason in ("Scheduled", "DisputedVf") else "FailedScheduling"


def _since(pod: Pod, now: str) -> str:
    """Return since when the condition has been False: a change of words is no transition."""
    known: Condition | None = next((one for one in pod.status.conditions or () if one.type == "PodScheduled"), None)
    return known.last_transition_time or now if known is not None and known.status == "False" else now

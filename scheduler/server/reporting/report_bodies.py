"""Build the bodies of reports: conditions of pods and PodGroups, and Events. Pure; ``now`` is always RFC 3339."""

from collections.abc import Iterator

import msgspec

from mooring import names
from scheduler.cycle.decisions import Why
from scheduler.cycle.instructions import RatesReason, Report, ReportGroup, ReportRates, WriteRates
from scheduler.kube.objects import Condition, Pod
from scheduler.kube.pod_groups import CONDITION_TYPES
from scheduler.server.reporting.event_correlator import EventRecord
from scheduler.state.rates.pod_rates import CONDITION

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
    """Return the strategic merge patch of pods/status with the condition PodScheduled.

    The version in it is a precondition: a pod that was bound meanwhile must not be reported as unscheduled. So is the
    uid, in effect: the API server answers 409 to another version, and 422 to another uid with the same version.
    """
    shown = report.pod.condition("PodScheduled")
    condition = _condition("PodScheduled", "False", report.reason, report.message, _since(shown, "False", now))
    metadata = {"uid": report.pod.metadata.uid, "resourceVersion": report.pod.metadata.resource_version}
    status: dict[str, object] = {"conditions": [condition]}
    if report.nominated is not None:
        status["nominatedNodeName"] = report.nominated or None
    return msgspec.json.encode({"metadata": metadata, "status": status})


def rates_patch(order: WriteRates, now: str) -> bytes:
    """Return the strategic merge patch of pods/status that allocates rates; uid and version are preconditions."""
    metadata = {
        "uid": order.rates.uid,
        "resourceVersion": order.pod.metadata.resource_version,
        "annotations": dict(order.annotations),
    }
    condition = _rates_condition(order.pod, "Allocated", order.message, now)
    return msgspec.json.encode({"metadata": metadata, "status": {"conditions": [condition]}})


def rates_condition_patch(report: ReportRates, now: str) -> bytes:
    """Return the strategic merge patch of the condition alone; the uid is a precondition."""
    condition = _rates_condition(report.pod, report.reason, report.message, now)
    metadata = {"uid": report.pod.metadata.uid}
    return msgspec.json.encode({"metadata": metadata, "status": {"conditions": [condition]}})


def _rates_condition(pod: Pod, reason: RatesReason, message: str, now: str) -> dict[str, object]:
    status, shown = "True" if reason == "InForce" else "False", pod.condition(CONDITION)
    # A deferred change is as old as its condition, by which a new leader orders them.
    since = now if shown is None or shown.reason != reason else _since(shown, status, now)
    return _condition(CONDITION, status, reason, message, since)


def pod_group_patches(report: ReportGroup, now: str) -> Iterator[tuple[str, bytes]]:
    """Yield the path and the strategic merge patch of podgroups/status for each version, the newest first.

    One version is served; the condition's type differs between them. A condition that is not True has the
    resourceVersion as a precondition, so that it does not replace one that has become True.
    """
    about = report.pod_group.metadata
    metadata: dict[str, object] = {"uid": about.uid}
    if report.status != "True":
        metadata["resourceVersion"] = about.resource_version
    for version, name in CONDITION_TYPES.items():
        shown = next((entry for entry in report.pod_group.status.conditions or () if entry.type == name), None)
        condition = _condition(name, report.status, report.reason, report.message, _since(shown, report.status, now))
        condition["observedGeneration"] = about.generation
        path = f"/apis/scheduling.k8s.io/{version}/namespaces/{about.namespace}/podgroups/{about.name}/status"
        yield path, msgspec.json.encode({"metadata": metadata, "status": {"conditions": [condition]}})


def _condition(kind: str, status: str, reason: str, message: str, since: str) -> dict[str, object]:
    return {"type": kind, "status": status, "reason": reason, "message": message, "lastTransitionTime": since}


def _since(shown: Condition | None, status: str, now: str) -> str:
    """Return since when a condition has had its status: another message is not a transition."""
    return shown.last_transition_time or now if shown is not None and shown.status == status else now


def event(report: Report, component: str, record: EventRecord, now: str) -> bytes:
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
    annotations = {names.WHY: _dump(report.why)}
    return msgspec.json.encode(
        {"count": record.count, "lastTimestamp": now, "metadata": {"annotations": annotations}},
    )


def _dump(reason: Why) -> str:
    return _encode(reason).decode()


def event_reason(report: Report) -> str:
    return "FailedScheduling" if is_of_pending(report) else report.reason
